"""`toban job versions` and `toban job days`: what a job was, and how its runs ended."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any

import typer

from toban_cli import report
from toban_cli.client import call, collect, connect, note_more
from toban_cli.definition_diff import diff_lines
from toban_cli.formatting import NOTHING, age, wall_now
from toban_cli.messages import common_pb, pb
from toban_cli.options import Format, JobName, Limit, Output
from toban_cli.output import Column, show
from toban_cli.sanitize import clean

if TYPE_CHECKING:
    from datetime import datetime

Diff = Annotated[bool, typer.Option("--diff", help="Print what changed between two versions, as YAML.")]
Version = Annotated[
    int | None,
    typer.Option(
        "--version", min=1, help="With --diff: the later version; the newest one without.", show_default=False
    ),
]
Before = Annotated[
    int | None,
    typer.Option(
        "--before", min=1, help="With --diff: the earlier version; the one before without.", show_default=False
    ),
]
Days = Annotated[int, typer.Option("--days", min=1, max=366, help="So many days, today included.")]
# The server stops counting there.
_MOST = 100


def list_versions(
    name: JobName,
    diff: Diff = False,
    version: Version = None,
    before: Before = None,
    limit: Limit = 20,
    output: Output = Format.TABLE,
) -> None:
    """List the definitions that a job has had, newest first, or print what changed between two of them.

    With --diff, -o json and -o yaml print both definitions whole, the earlier one first.

    Examples:
    toban job versions hello
    toban job versions hello --diff
    toban job versions hello --diff --version 7 --before 3
    """
    from toban_domain.errors import ErrorCode, TobanError

    if (version or before) and not diff:
        raise TobanError(ErrorCode.INVALID_ARGUMENT, "--version and --before are for --diff; give that too")
    with connect() as client:

        def fetch(page: Any) -> Any:
            return client.call("JobReader.ListJobVersions", pb.ListJobVersionsRequest(name=name, page=page))

        if diff:
            later, earlier = _pair(fetch, name, version or 0, before or 0)
            if output in (Format.TABLE, Format.WIDE):
                _print_diff(name, earlier, later)
            else:
                compared = [one for one in (earlier, later) if one is not None]
                show(output, compared, table=[], name=lambda one: str(one.version))
            return
        found, more = collect(fetch, "versions", limit)
        show(output, found, table=_columns(wall_now()), name=lambda one: str(one.version))
        if more:
            note_more("versions", limit)


def list_days(name: JobName, days: Days = 30, output: Output = Format.TABLE) -> None:
    """Show how the runs of a job ended on each of the last days, in UTC. More than 100 runs of a kind are counted as 100.

    Examples:
    toban job days hello
    toban job days hello --days 7 -o json
    """
    found = call("JobReader.GetJobDays", pb.GetJobDaysRequest(name=name, days=days)).days
    table = [
        Column("DAY", lambda one: one.day, name=True),
        Column("SUCCEEDED", lambda one: _counted(one.succeeded)),
        Column("FAILED", lambda one: _counted(one.failed)),
        Column("OTHER", lambda one: _counted(one.other)),
    ]
    show(
        output,
        found,
        table=table,
        empty=f"No run of {name} has ended in these days. `toban run start {name}` starts one.",
    )


def _columns(now: datetime) -> list[Column]:
    return [
        Column("VERSION", lambda one: str(one.version)),
        Column("APPLIED", lambda one: age(one.created_at, now)),
        Column("BY", lambda one: one.created_by or NOTHING, loose=True),
    ]


def _counted(number: int) -> str:
    return f"{_MOST}+" if number >= _MOST else str(number)


def _pair(fetch: Any, name: str, version: int, before: int) -> tuple[Any, Any]:
    """The later version and the earlier one, None when there is none. Raises NOT_FOUND for a number that the job has not had."""
    later = _one(fetch, name, version)
    if not before:
        return later, _at_or_below(fetch, later.version - 1)
    return later, _one(fetch, name, before)


def _one(fetch: Any, name: str, version: int) -> Any:
    from toban_domain.errors import ErrorCode, TobanError

    found = _at_or_below(fetch, version)
    if found is None or (version and found.version != version):
        raise TobanError(
            ErrorCode.NOT_FOUND, f"job {name!r} has no version {version}; `toban job versions {name}` lists them"
        )
    return found


def _at_or_below(fetch: Any, version: int) -> Any:
    """The latest version up to this one, of all with 0; None without one."""
    if version < 0:
        return None
    found = fetch(common_pb.Page(limit=1, cursor=str(version + 1) if version else "")).versions
    return found[0] if found else None


def _print_diff(name: str, earlier: Any, later: Any) -> None:
    if earlier is None:
        report.echo(f"version {later.version} is the first one of {name}")
        return
    before, after = (f"{name} version {one.version}" for one in (earlier, later))
    specs = [json.loads(one.spec_json or "{}") for one in (earlier, later)]
    lines = diff_lines(specs[0], specs[1], before, after)
    for line in lines or ["nothing differs"]:
        report.echo(clean(line))
