"""Changes every run that a filter names: counts, asks, then one part after the other until there are no more."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import typer

from toban_cli import report
from toban_cli.options import Format
from toban_cli.output import show_done

# Servers answer after 4 s with what they have done.
CALL_SECONDS = 30.0
# A command that could change nothing: its exit code.
NOTHING_CHANGED = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """The runs that options name. `ask`: a person confirms first, at a terminal."""

    wanted: Any
    dry_run: bool
    ask: bool
    terminal: bool


def change(
    client: Any, method: str, request: Any, selection: Selection, output: Format, *, words: tuple[str, str]
) -> int:
    """Calls `method` part by part, and shows how many runs it changed, and why it skipped others. 1 when it changed none of some.

    Raises BadParameter when it should ask and there is no terminal, and JOB_NOT_FOUND.
    """
    verb, past = words
    if selection.ask and not selection.terminal:
        raise typer.BadParameter(
            "is needed without a terminal, where there is no prompt; --dry-run counts the runs", param_hint="--yes"
        )
    if selection.dry_run or selection.ask:
        counted = _all(client, method, request, dry_run=True)
        if selection.dry_run:
            show_done(output, counted, [f"{_runs(counted.matched)} match", *_reasons(counted)], name=_count)
            return 0
        if not counted.matched:
            report.note("no run matches")
            return 0
        typer.confirm(f"{verb.capitalize()} {_runs(counted.matched)}?", abort=True, err=True)
    done = _all(client, method, request, dry_run=False)
    show_done(output, done, [f"{_runs(done.changed)} {past}", *_reasons(done)], name=_count)
    return NOTHING_CHANGED if done.skipped and not done.changed else 0


def _all(client: Any, method: str, request: Any, *, dry_run: bool) -> Any:
    """The sum of all parts."""
    from toban_proto.v1.coordinator_pb2 import ChangeRunsResponse, GetJobRequest

    part = type(request)()
    part.CopyFrom(request)
    part.dry_run = dry_run
    total = ChangeRunsResponse()
    while True:
        answer = client.call(f"JobControl.{method}", part, timeout=CALL_SECONDS)
        total.matched += answer.matched
        total.changed += answer.changed
        total.run_ids.extend(answer.run_ids)
        _add_skipped(total, answer.skipped)
        if not answer.next_cursor:
            if part.filter.job and not total.matched:
                # Raises JOB_NOT_FOUND with the nearest name when there is no such job.
                client.call("JobReader.GetJob", GetJobRequest(name=part.filter.job))
            return total
        part.filter.page.cursor = answer.next_cursor
        if not dry_run:
            report.note(f"{_runs(total.changed)} so far")


def _add_skipped(total: Any, skipped: Any) -> None:
    known = {one.code: one for one in total.skipped}
    for one in skipped:
        if one.code in known:
            known[one.code].runs += one.runs
        else:
            total.skipped.append(one)


def _reasons(answer: Any) -> list[str]:
    """A line for each reason to skip runs."""
    lines = []
    for one in answer.skipped:
        named = ", ".join(str(run) for run in one.run_ids)
        more = ", …" if one.runs > len(one.run_ids) else ""
        lines.append(f"{_runs(one.runs)} skipped, {one.code}: {one.message} (runs {named}{more})")
    return lines


def _count(answer: Any) -> str:
    return str(answer.changed or answer.matched)


def _runs(count: int) -> str:
    return f"{count} run" if count == 1 else f"{count} runs"
