"""`toban diff`: what `toban apply` would change."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from toban_cli import report
from toban_cli.client import connect
from toban_cli.commands.apply import Force, checked_files, noun_of, send
from toban_cli.definition_diff import diff_lines
from toban_cli.messages import pb
from toban_cli.options import Files, Format, Output, SomeFiles
from toban_cli.output import show_data
from toban_cli.sanitize import clean

if TYPE_CHECKING:
    from toban_manifests.read import Manifest

DIFFERENT = 1


def diff(file: Files = None, files: SomeFiles = None, force: Force = False, output: Output = Format.TABLE) -> int:
    """Print what `toban apply` would change in the stored definitions, with all defaults. It needs the rights to apply, and changes nothing.

    The exit code is 0 when nothing differs, 1 when something does, and more than 1 after an error. -o json and -o yaml print both definitions
    whole.

    Examples:
    toban diff -f job.yaml
    toban diff jobs/
    cat job.yaml | toban diff -
    """
    documents, manifests = checked_files(file, files)
    with connect() as client:
        planned = send(client, documents, dry_run=True, force=force)
        changed = [
            (manifest, item.action, _stored(client, manifest) if item.action != "created" else None)
            for manifest, item in zip(manifests, planned, strict=True)
            if item.action != "unchanged"
        ]
    if output.is_data:
        rows = [
            {
                "kind": one.kind,
                "name": one.name,
                "action": action,
                "before": before,
                "after": _ordered(one.spec.to_json()),
            }
            for one, action, before in changed
        ]
        show_data(output, rows)
    else:
        for one, action, before in changed:
            if output is Format.NAME:
                report.echo(clean(f"{noun_of(one)}/{one.name}"))
            else:
                _print(one, action, before)
    return DIFFERENT if changed else 0


def _print(manifest: Manifest, action: str, before: Any) -> None:
    named = f"{noun_of(manifest)} {manifest.name}"
    lines = diff_lines(
        before,
        _ordered(manifest.spec.to_json()),
        "/dev/null" if before is None else f"{named} (stored)",
        f"{named} ({manifest.source})",
    )
    for line in lines or [f"{named} {action}: only values differ that are hidden here"]:
        report.echo(clean(line))


def _stored(client: Any, manifest: Manifest) -> Any:
    name = manifest.name
    if manifest.kind == "EventTrigger":
        [found] = client.call("JobReader.ListTriggers", pb.ListTriggersRequest(name=name)).triggers
    elif manifest.kind == "Schedule":
        found = client.call("JobReader.GetSchedule", pb.GetScheduleRequest(name=name))
    else:
        found = client.call("JobReader.GetJob", pb.GetJobRequest(name=name))
    return _ordered(json.loads(found.spec_json or "{}"))


def _ordered(spec: Any) -> Any:
    """With its keys in the order in which the servers store them."""
    from toban_domain.payload import canonical_json

    return json.loads(canonical_json(spec))
