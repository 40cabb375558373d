"""`toban apply` and `toban validate`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any

import typer

from toban_cli import report
from toban_cli.client import connect
from toban_cli.formatting import to_time
from toban_cli.messages import pb
from toban_cli.options import AuditReason, Files, Format, Output, SomeFiles, all_files
from toban_cli.output import Column, show, show_data
from toban_cli.sanitize import clean

if TYPE_CHECKING:
    from collections.abc import Sequence

    from toban_manifests.read import Document, Manifest

DryRun = Annotated[bool, typer.Option("--dry-run", help="Print what would change; change nothing.")]
Force = Annotated[
    bool,
    typer.Option(
        "--force", help="Also when payloads of schedules or triggers no longer fit their job: they fail then."
    ),
]
APPLY_SECONDS = 30.0
# Of a schedule that was created or changed.
SLOTS_SHOWN = 3


def apply(
    file: Files = None,
    files: SomeFiles = None,
    dry_run: DryRun = False,
    force: Force = False,
    reason: AuditReason = "",
    output: Output = Format.TABLE,
) -> None:
    """Create or change jobs, schedules and triggers as defined in files: all of them, or none.

    Examples:
    toban apply -f job.yaml
    toban apply jobs/ --dry-run
    toban apply -f job.yaml --reason "longer timeout for the new disk"
    cat job.yaml | toban apply -
    """
    documents, _ = checked_files(file, files)
    with connect() as client:
        applied = send(client, documents, dry_run=dry_run, force=force, reason=reason)
    if output is Format.TABLE:
        for item in applied:
            _print_applied(item, dry_run=dry_run)
    else:
        show(output, applied, table=_COLUMNS, name=lambda item: f"{item.kind.lower()}/{item.name}")


def validate(file: Files = None, files: SomeFiles = None, output: Output = Format.TABLE) -> None:
    """Check files without a cluster.

    Examples:
    toban validate -f job.yaml
    toban validate jobs/ more.yaml
    """
    documents, _ = checked_files(file, files)
    if output.is_data:
        show_data(output, {"valid": True, "documents": len(documents)})
    elif output is Format.NAME:
        for document in documents:
            report.echo(_name(document))
    else:
        report.echo(f"{len(documents)} document{'s are' if len(documents) != 1 else ' is'} valid")


_COLUMNS = [
    Column("KIND", lambda item: item.kind),
    Column("NAME", lambda item: item.name, name=True),
    Column("ACTION", lambda item: item.action),
    Column("VERSION", lambda item: str(item.version or "-")),
    Column("NEXT", lambda item: ", ".join(slot.local for slot in item.next_slots[:1]) or item.note or "-", loose=True),
]


def _print_applied(item: Any, *, dry_run: bool) -> None:
    """The action on a document; of a changed schedule also when it fires next."""
    report.echo(f"{item.kind.lower()} {item.name} {item.action}{' (dry run)' if dry_run else ''}")
    if item.note:
        report.echo(clean(f"  {item.note}"))
    for slot in item.next_slots[:SLOTS_SHOWN]:
        report.echo(f"  {format_slot(slot)}")
    if item.clock_change:
        report.echo(clean(f"  clocks change: {item.clock_change}"))


def format_slot(slot: Any) -> str:
    """A slot as the clocks of its zone show it, in UTC, and which rule acted: "2026-11-22T03:00:00+01:00 = 02:00:00Z, gap shift"."""
    at = to_time(slot.at)
    utc = f"{at:%Y-%m-%dT%H:%M:%SZ}" if at is not None else ""
    # What the clocks show is UTC itself where they are not ahead or behind.
    shown = utc if utc and slot.local.endswith("+00:00") else " = ".join(filter(None, [slot.local, utc]))
    return shown + (f", {slot.rule_note}" if slot.rule_note else "")


def noun_of(manifest: Manifest) -> str:
    """As the commands have it: job, schedule or trigger."""
    return manifest.kind.lower().removeprefix("event")


def _name(document: Document) -> str:
    body: Any = document.body
    return f"{body['kind'].lower()}/{body['metadata']['name']}"


def send(client: Any, documents: Sequence[Document], *, dry_run: bool, force: bool, reason: str = "") -> Sequence[Any]:
    """What applying the documents did, or with `dry_run` would do, one answer for each."""
    manifests = [pb.Manifest(json=json.dumps(document.body), source=document.source) for document in documents]
    request = pb.ApplyRequest(manifests=manifests, dry_run=dry_run, force=force, reason=reason)
    applied: Sequence[Any] = client.call("JobControl.Apply", request, timeout=APPLY_SECONDS).applied
    return applied


def checked_files(*given: Sequence[str] | None) -> tuple[list[Document], list[Manifest]]:
    """The documents of the files, each also as it was read; raises with every mistake in them before any call to a cluster."""
    from toban_cli.manifest_files import read_documents
    from toban_manifests.payload_schema import schema_problems
    from toban_manifests.problems import raise_for
    from toban_manifests.read import find_problems
    from toban_schedule import problems

    documents = read_documents(all_files(*given))
    manifests, found = find_problems(documents, check_rule=problems)
    found += [problem for manifest in manifests for problem in schema_problems(manifest)]
    raise_for(found, detail_bytes=None)
    return documents, manifests
