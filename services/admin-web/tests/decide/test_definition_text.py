"""Definitions as text: what is stored comes back, another definition is refused, mistakes have a place."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlencode

import pytest

from toban_admin_web.decide.definition_text import (
    document_of,
    example_document,
    form_bytes,
    shown_text,
    stored_document,
    stored_text,
    text_digest,
    yaml_of,
)
from toban_domain.errors import ErrorCode, TobanError
from toban_manifests.read import Document, read_manifests
from toban_schedule import problems

JOB = {
    "name": "hello",
    "description": "yes",
    "labels": {"team": "ops"},
    "steps": [{"id": "main", "argv": ["echo", "a: b", "5", "two\nlines", "\u202e"]}],
    "env": {"KEY": "***"},
}


def test_a_stored_definition_is_the_same_after_it_was_text() -> None:
    text = stored_text("Job", JOB)
    assert "\u202e" not in text
    assert document_of(text, "Job", "hello") == {
        "apiVersion": "toban/v1",
        "kind": "Job",
        "metadata": {"name": "hello", "description": "yes", "labels": {"team": "ops"}},
        "spec": {"steps": JOB["steps"], "env": {"KEY": "***"}},
    }


@pytest.mark.parametrize("kind", ["Job", "Schedule"])
def test_examples_are_valid_manifests(kind: str) -> None:
    [manifest] = read_manifests(
        [Document("x", document_of(yaml_of(example_document(kind, "a.b")), kind))], check_rule=problems
    )
    assert manifest.kind == kind
    if kind == "Schedule":
        assert (manifest.spec.job, manifest.name) == ("a.b", "a.b-daily")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "manifest: 0 documents; write one"),
        ("a: 1\n---\nb: 1\n", "manifest: 2 documents; write one"),
        ("- a\n", "manifest: is not a mapping; begin with `apiVersion:`"),
        ("kind: Schedule\n", "manifest: kind: is another one than this page is for; write Job"),
        (
            "kind: Job\nmetadata: {name: other}\n",
            "manifest: metadata.name: is another one than this page is for; write hello",
        ),
        ("kind: Job\nmetadata: {name\n", "manifest:3:1: "),
        ("kind: Job\nkind: Job\n", "manifest:2:1: the key 'kind' is given twice"),
    ],
)
def test_mistakes_have_a_place_and_a_remedy(text: str, message: str) -> None:
    with pytest.raises(TobanError) as caught:
        document_of(text, "Job", "hello")
    assert caught.value.code is ErrorCode.MANIFEST_INVALID and caught.value.message.startswith(message)


def test_a_document_of_another_order_is_shown_alike() -> None:
    def shown(spec: dict[str, Any], metadata: dict[str, Any]) -> str:
        return shown_text({"spec": spec, "kind": "Job", "metadata": metadata, "x": 1})

    assert shown({"a": 1, "b": 2}, {"name": "n", "labels": {}}) == shown({"b": 2, "a": 1}, {"labels": {}, "name": "n"})
    assert shown({}, {}).startswith("kind: Job\nmetadata: {}\n")


def test_line_ends_do_not_change_the_digest() -> None:
    assert text_digest("a\r\nb") == text_digest("a\nb\n") != text_digest("a\nc")


def test_what_is_stored_is_shown_as_its_text_is() -> None:
    stored = stored_document("Job", JOB)
    assert shown_text(stored) == shown_text(document_of(stored_text("Job", JOB), "Job"))


def test_the_size_of_a_form_counts_what_a_browser_escapes() -> None:
    text = "a: 1\nb: 長い\n"
    sent = urlencode({"manifest": text.replace("\n", "\r\n")})
    assert form_bytes(text) == len(sent) - len("manifest=")
