"""Applies an import; changes nothing that is not from the same file."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from toban_cli import report
from toban_cli.importers.parts import parts
from toban_cli.importers.result import ORIGIN_LABEL
from toban_domain.errors import ErrorCode, TobanError

if TYPE_CHECKING:
    from toban_cli.importers.result import Imported
    from toban_cli.ports import Client

APPLY_SECONDS = 60.0
# Of one call; the server takes 4 MiB.
_MAX_BYTES = 3 * 1024 * 1024
# Of each manifest, beside its JSON and source.
_FRAMING_BYTES = 32
_NAMED = 20
# Each kind of files: one of them, and this one.
_FILES = {
    "crontab": ("a crontab", "crontab"),
    "systemd": ("a systemd timer", "timer"),
    "kubernetes": ("a Kubernetes CronJob", "file"),
    "celery-beat": ("a celery beat schedule", "file"),
    "airflow": ("an Airflow DAG", "file"),
}


def apply_imported(client: Client, done: Imported, *, kind: str, replace: bool) -> None:
    """All documents in calls of bounded size; each job goes with its schedules. Applying again changes nothing. `kind` is that of the files.

    Asks first what each document would do. Raises ALREADY_EXISTS, before anything is written, naming each job and schedule that would be
    changed although it is not from the same file; with `replace` these are changed. What changes between the question and the
    writing is refused by the server (ALREADY_EXISTS or CONFLICT). The error of a later call has the number of applied documents.
    """
    batches = _batches(done)
    answers = [_apply(client, batch, dry_run=True) for batch in batches]
    foreign: list[str] = []
    for batch, answer in zip(batches, answers, strict=True):
        for manifest, planned in zip(batch, answer.applied, strict=True):
            manifest.expect_version = _expected(client, manifest, planned, foreign, replace=replace)
    if foreign:
        raise _refused(foreign, kind)
    written = 0
    for batch in batches:
        try:
            answer = _apply(client, batch, dry_run=False)
        except TobanError as error:
            raise _in_part(error, written, sum(map(len, batches))) from None
        written += len(batch)
        for item in answer.applied:
            report.echo(f"{item.kind.lower()} {item.name} {item.action}")


def _batches(done: Imported) -> list[list[Any]]:
    """The manifests by call; a job and its schedules are in the same one."""
    from toban_proto.v1.coordinator_pb2 import Manifest

    pairs = [
        [
            Manifest(json=json.dumps(document), source=f"{entry.place.source}, {entry.place}")
            for document in entry.documents
        ]
        for entry in done.entries
    ]
    split = parts(
        pairs,
        documents=len,
        size=lambda pair: sum(manifest.ByteSize() + _FRAMING_BYTES for manifest in pair),
        max_bytes=_MAX_BYTES,
    )
    return [batch for part in split if (batch := [manifest for pair in part for manifest in pair])]


def _in_part(error: TobanError, written: int, total: int) -> TobanError:
    """The error of a call, with what the calls before it have applied."""
    if not written:
        return error
    again = "run the same command again, which changes nothing that is applied already"
    return TobanError(
        error.code,
        f"{error.message} ({written} of {total} documents were applied before; {again})",
        detail=error.detail,
    )


def _apply(client: Client, batch: list[Any], *, dry_run: bool) -> Any:
    from toban_proto.v1.coordinator_pb2 import ApplyRequest

    return client.call("JobControl.Apply", ApplyRequest(manifests=batch, dry_run=dry_run), timeout=APPLY_SECONDS)


def _expected(client: Client, manifest: Any, planned: Any, foreign: list[str], *, replace: bool) -> int:
    """The version that must be there when it is written; 0 = none. Adds to `foreign` what is not ours to change."""
    if planned.action == "created":
        return 0
    if planned.action == "unchanged":
        return int(planned.version)
    stored = _stored(client, planned.kind, planned.name)
    theirs = json.loads(stored.spec_json or "{}").get("labels") or {}
    ours = json.loads(manifest.json)["metadata"]["labels"]
    if not replace and not _same_origin(theirs, ours):
        foreign.append(f"{planned.kind.lower()} {planned.name} ({_origin(theirs, ours[ORIGIN_LABEL])})")
    return int(stored.version)


def _stored(client: Client, kind: str, name: str) -> Any:
    from toban_proto.v1.coordinator_pb2 import GetJobRequest, GetScheduleRequest

    if kind == "Job":
        return client.call("JobReader.GetJob", GetJobRequest(name=name))
    return client.call("JobReader.GetSchedule", GetScheduleRequest(name=name))


def _same_origin(theirs: Mapping[str, str], ours: Mapping[str, str]) -> bool:
    kind = ours[ORIGIN_LABEL]
    return theirs.get(ORIGIN_LABEL) == kind and theirs.get(kind) == ours[kind]


def _origin(labels: Mapping[str, str], kind: str) -> str:
    one, name = _FILES[kind]
    if labels.get(ORIGIN_LABEL) != kind:
        return f"not from {one}"
    return f"from {name} {labels[kind]}" if kind in labels else f"from an unknown {name}"


def _refused(foreign: list[str], kind: str) -> TobanError:
    more = f" and {len(foreign) - _NAMED} more" if len(foreign) > _NAMED else ""
    return TobanError(
        ErrorCode.ALREADY_EXISTS,
        f"nothing was applied, since this would change what is not from this {_FILES[kind][1]}: {', '.join(foreign[:_NAMED])}{more}; "
        "choose other names with --name-prefix, or change these too with --replace",
        detail={"foreign": foreign},
    )
