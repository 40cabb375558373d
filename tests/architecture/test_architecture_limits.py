"""Limits of a service that a client repeats, because neither imports the other."""

from toban_cli.importers.parts import MAX_DOCUMENTS
from toban_coordinator.app.definitions.apply import MAX_MANIFESTS


def test_an_import_sends_as_many_documents_in_a_call_as_the_coordinator_takes() -> None:
    assert MAX_DOCUMENTS == MAX_MANIFESTS
