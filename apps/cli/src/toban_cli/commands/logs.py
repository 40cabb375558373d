"""`toban run logs`."""

from __future__ import annotations

import sys
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from toban_cli import report
from toban_cli.client import connect
from toban_cli.formatting import local, to_time
from toban_cli.messages import logs_pb, pb
from toban_cli.options import RunId
from toban_cli.sanitize import clean

if TYPE_CHECKING:
    from toban_cli.ports import Client


class LogFormat(StrEnum):
    """How lines are shown."""

    TEXT = "text"
    JSON = "json"


class Level(StrEnum):
    """Levels of structured lines, the least severe first."""

    TRACE = "trace"
    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"
    FATAL = "fatal"
    CRITICAL = "critical"


Follow = Annotated[bool, typer.Option("--follow", "-f", help="Continue until the run ends.")]
Attempt = Annotated[int, typer.Option("--attempt", min=0, metavar="N", help="Only this attempt; 0 = all.")]
Step = Annotated[
    str,
    typer.Option("--step", metavar="NAME", help="Only this step (id, name or number), of the last attempt with it."),
]
Tail = Annotated[int, typer.Option("--tail", min=0, max=10_000, metavar="N", help="Only the last N lines; 0 = all.")]
Head = Annotated[int, typer.Option("--head", min=0, metavar="N", help="Only the first N lines; 0 = all.")]
Since = Annotated[
    str, typer.Option("--since", metavar="TIME", help='Lines from then on: 10m (ago), "2026-12-01 09:00", a date.')
]
Until = Annotated[str, typer.Option("--until", metavar="TIME", help="Lines before then, written as for --since.")]
Stdout = Annotated[bool, typer.Option("--stdout", help="Only what went to stdout (with --stderr: both).")]
Stderr = Annotated[bool, typer.Option("--stderr", help="Only what went to stderr.")]
Grep = Annotated[str, typer.Option("--grep", metavar="TEXT", help="Only lines that contain this text.")]
Regex = Annotated[bool, typer.Option("--regex", help="--grep is an RE2 expression; (?i) before it ignores case.")]
AtLeast = Annotated[Level | None, typer.Option("--level", help="Only structured lines of at least this level.")]
Raw = Annotated[bool, typer.Option("--raw", help="The bytes as the job wrote them, also on a terminal; no markers.")]
Timestamps = Annotated[bool, typer.Option("--timestamps", help="Print the time at which each line was read before it.")]
Verbose = Annotated[
    bool, typer.Option("--verbose", help="Print on stderr where the lines come from, also when stderr is no terminal.")
]
Output = Annotated[LogFormat, typer.Option("--output", "-o", help="text, or json with one object a line.")]


def logs(
    run: RunId,
    follow: Follow = False,
    attempt: Attempt = 0,
    step: Step = "",
    tail: Tail = 0,
    head: Head = 0,
    since: Since = "",
    until: Until = "",
    stdout: Stdout = False,
    stderr: Stderr = False,
    grep: Grep = "",
    regex: Regex = False,
    level: AtLeast = None,
    raw: Raw = False,
    timestamps: Timestamps = False,
    verbose: Verbose = False,
    output: Output = LogFormat.TEXT,
) -> int:
    """The output of a run: its stdout on stdout, its stderr on stderr.

    Examples:
    toban run logs 12 --tail 20
    toban run logs 12 --step load --attempt 1
    toban run logs 12 --follow --stderr
    toban run logs 12 --since 10m --grep "timed out"
    toban run logs 12 --level warning -o json
    """
    from toban_cli.log_printer import LinePrinter, Style

    _check_together(follow=follow, step=step, tail=tail, head=head, grep=grep, regex=regex)
    if raw and (timestamps or output is LogFormat.JSON):
        raise typer.BadParameter("is the output alone: leave --timestamps and -o json out", param_hint="--raw")
    request = _request(run, tail=tail, head=head, grep=grep, regex=regex, level=level)
    set_times(request, since, until)
    request.streams.extend(chosen_streams(stdout=stdout, stderr=stderr, raw=raw))
    with connect() as client:
        found = client.call("JobReader.GetRun", pb.GetRunRequest(id=run))
        request.tokens.extend(_tokens(found, attempt))
        if step and not set_step(request, found, step, attempt):
            return 0
        style = Style(
            raw=raw,
            timestamps=timestamps,
            as_json=output is LogFormat.JSON,
            attempts={item.token: item.attempt for item in found.attempts},
        )
        _show(client, request, LinePrinter(style), run=found, follow=follow, verbose=verbose)
    return 0


def _show(client: Client, request: Any, printer: Any, *, run: Any, follow: bool, verbose: bool) -> None:
    from toban_cli.log_reader import check, format_log_places, read_all

    # A follower would only warn, and try again.
    if follow and request.regex:
        check(client, request)
    if (verbose or sys.stderr.isatty()) and client.can_describe:
        stored = client.call("LogReader.Describe", logs_pb.DescribeLogRequest(run_id=request.run_id)).attempts
        wanted = [item for item in stored if not request.tokens or item.token in request.tokens]
        if place := format_log_places(wanted):
            report.note(f"run {request.run_id}, {place}")
    elif verbose:
        report.note("where lines are stored needs `toban --direct`")
    if follow and not request.tokens:
        from toban_cli.commands.runs import attend_run

        attend_run(client, request.run_id, query=request, printer=printer)
        return
    request.follow = follow
    narrowed = any((request.grep, request.level, request.streams, request.HasField("since"), request.HasField("until")))
    if not read_all(client, request, printer) and not printer.has_expired:
        report.note(_no_lines_reason(run, narrowed=narrowed))


def _no_lines_reason(run: Any, *, narrowed: bool) -> str:
    """Why there is no line."""
    from toban_domain.run import TERMINAL
    from toban_runtime.clock import SystemClock

    over = run.state in TERMINAL
    if run.token or run.attempts:
        return f"run {run.id} has written nothing{' of this kind' if narrowed else ''}{'' if over else ' yet'}"
    why = run.cancel_reason or run.error_summary or run.reason
    if over:
        return clean(f"run {run.id} never started, so it has no output: {run.state}{f', {why}' if why else ''}")
    now = SystemClock().wall()
    due = to_time(run.scheduled_for)
    waits = f"due {local(run.scheduled_for, now)}" if due and due > now else "it waits for an executor"
    return clean(f"run {run.id} has not started, so it has no output yet: {run.state}, {why or waits}")


def _check_together(*, follow: bool, step: str, tail: int, head: int, grep: str, regex: bool) -> None:
    if head and tail:
        raise typer.BadParameter("and --tail exclude each other", param_hint="--head")
    if head and follow:
        raise typer.BadParameter("ends after N lines and --follow continues: give one of them", param_hint="--head")
    if step and follow:
        raise typer.BadParameter("reads what is stored and --follow continues: give one of them", param_hint="--step")
    if regex and not grep:
        raise typer.BadParameter("is for --grep, which is not given", param_hint="--regex")


def _request(run: int, *, tail: int, head: int, grep: str, regex: bool, level: Level | None) -> Any:

    return logs_pb.ReadLogRequest(run_id=run, tail=tail, head=head, grep=grep, regex=regex, level=level or "")


def set_step(request: Any, run: Any, wanted: str, attempt: int) -> bool:
    """Bounds a ReadLogRequest to the lines of a step, in the last attempt that has begun it; false when it has none. Raises NOT_FOUND."""
    item, step = _find_step(run, wanted, attempt)
    if to_time(step.finished_at) and step.seq_to < step.seq_from:
        report.note(f"step {step.number} of run {run.id} has written nothing in attempt {item.attempt}")
        return False
    request.tokens[:] = [item.token]
    # One without an end is the last of its attempt.
    request.from_seq, request.to_seq = step.seq_from, step.seq_to if to_time(step.finished_at) else 0
    return True


def _find_step(run: Any, wanted: str, attempt: int) -> tuple[Any, Any]:
    """The last attempt that has begun the step, and the step. Raises NOT_FOUND."""
    from toban_domain.errors import ErrorCode, TobanError

    if not run.steps:
        raise TobanError(ErrorCode.NOT_FOUND, f"--step: the job of run {run.id} has one step: leave --step out")
    for item in reversed(run.attempts):
        for step in item.steps:
            if wanted in (step.id, step.name, str(step.number)) and attempt in (0, item.attempt):
                return item, step
    if any(wanted in (step.id, step.name, str(step.number)) for step in run.steps):
        who = f"attempt {attempt}" if attempt else "no attempt"
        raise TobanError(
            ErrorCode.NOT_FOUND, f"--step: {who} of run {run.id} has {'not ' if attempt else ''}begun {wanted!r}"
        )
    known = ", ".join(step.id for step in run.steps)
    raise TobanError(ErrorCode.NOT_FOUND, f"--step: run {run.id} has no step {wanted!r}; it has {known}")


def set_times(request: Any, since: str, until: str) -> None:
    """The bounds of a ReadLogRequest or SearchLogRequest. Raises INVALID_ARGUMENT."""
    from toban_cli.times import read_time_bound
    from toban_domain.errors import ErrorCode, TobanError
    from toban_runtime.clock import SystemClock

    now = SystemClock().wall()
    if since:
        request.since.FromDatetime(read_time_bound("--since", since, now))
    if until:
        request.until.FromDatetime(read_time_bound("--until", until, now))
    if since and until and request.until.ToNanoseconds() <= request.since.ToNanoseconds():
        raise TobanError(
            ErrorCode.INVALID_ARGUMENT, f"--until {until!r} is not after --since {since!r}: no line is between them"
        )


def chosen_streams(*, stdout: bool, stderr: bool, raw: bool) -> list[Any]:
    """Empty = all; the markers of the executor are of no stream of the job."""
    if raw and not (stdout or stderr):
        stdout = stderr = True
    return [
        *([logs_pb.LOG_STREAM_STDOUT] if stdout else []),
        *([logs_pb.LOG_STREAM_STDERR] if stderr else []),
    ]


def _tokens(run: Any, attempt: int) -> list[int]:
    """An attempt that was lost and dispatched again has several."""
    from toban_domain.errors import ErrorCode, TobanError

    if not attempt:
        return []
    tokens = [item.token for item in run.attempts if item.attempt == attempt]
    if not tokens:
        known = sorted({item.attempt for item in run.attempts})
        has = f"it has {', '.join(map(str, known))}" if known else "it has not begun"
        raise TobanError(ErrorCode.NOT_FOUND, f"--attempt: run {run.id} has no attempt {attempt}; {has}")
    return tokens
