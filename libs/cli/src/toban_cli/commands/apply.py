"""`toban apply` and `toban validate`."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from toban_cli import report
from toban_cli.options import Files, Format, Output
from toban_domain.manifest import Document

DryRun = Annotated[bool, typer.Option("--dry-run", help="Say what would change, change nothing.")]
APPLY_SECONDS = 30.0


def apply(file: Files, dry_run: DryRun = False, output: Output = Format.TABLE) -> None:
    """Make jobs and schedules as the files say: all of them, or none."""
    from toban_cli.client import connect
    from toban_cli.plain import plain_list
    from toban_proto.v1.coordinator_pb2 import ApplyRequest, Manifest

    documents = _checked(file)
    manifests = [Manifest(json=json.dumps(document.body), source=document.source) for document in documents]
    with connect() as client:
        answer = client.control("Apply", ApplyRequest(manifests=manifests, dry_run=dry_run), timeout=APPLY_SECONDS)
    if output is Format.JSON:
        report.data(plain_list(answer.applied))
        return
    for item in answer.applied:
        report.say(f"{item.kind.lower()} {item.name} {item.action}{' (dry run)' if dry_run else ''}")


def validate(file: Files, output: Output = Format.TABLE) -> None:
    """Check files without a cluster."""
    documents = _checked(file)
    if output is Format.JSON:
        report.data({"valid": True, "documents": len(documents)})
    else:
        report.say(f"{len(documents)} document{'s are' if len(documents) != 1 else ' is'} valid")


def _checked(names: list[str]) -> list[Document]:
    """The documents; raises with every mistake in them, so that a cluster is not asked about what is wrong anyway."""
    from toban_cli.documents import read_documents
    from toban_domain.manifest import find_problems, raise_for
    from toban_schedule import problems

    documents = read_documents(names)
    _, found = find_problems(documents, check_rule=problems)
    raise_for(found, detail_bytes=None)
    return documents
