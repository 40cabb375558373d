"""`toban job logs`."""

from __future__ import annotations

import sys
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated, Any

import typer

from toban_cli import report
from toban_cli.client import connect
from toban_cli.commands.logs import AtLeast, Grep, LogFormat, Regex, Stderr, Stdout, Until
from toban_cli.commands.logs import Output as LogOutput
from toban_cli.formatting import count, size
from toban_cli.messages import common_pb, logs_pb, pb
from toban_cli.options import JobName

if TYPE_CHECKING:
    from toban_cli.ports import Client

# Clocks of executors, which date lines, and of PostgreSQL, which dates runs, may differ by less than this, seconds.
CLOCK_SECONDS = 60

Since = Annotated[
    str, typer.Option("--since", metavar="TIME", help='Lines from then on: 2h (ago), "2026-12-01 09:00", a date.')
]
Limit = Annotated[int, typer.Option("--limit", "-n", min=1, max=10_000, metavar="N", help="At most N lines.")]
After = Annotated[
    str, typer.Option("--after", metavar="PLACE", help="Continue where an earlier search with the same options ended.")
]


def job_logs(
    job: JobName,
    grep: Grep = "",
    regex: Regex = False,
    since: Since = "24h",
    until: Until = "",
    stdout: Stdout = False,
    stderr: Stderr = False,
    level: AtLeast = None,
    limit: Limit = 1000,
    after: After = "",
    output: LogOutput = LogFormat.TEXT,
) -> int:
    """Search the output of all runs of a job: the run with the highest number first, its lines in order.

    Examples:
    toban job logs backup --grep "timed out"
    toban job logs backup --since 7d --level error -o json
    """
    from toban_cli.log_search import Search, read_place, run_pages

    query = _search_request(grep, regex=regex, since=since, until=until, stdout=stdout, stderr=stderr, level=level)
    with connect() as client:
        search = Search(client, query=query, limit=limit, after=read_place(after))
        printer = _Printer(client, as_json=output is LogFormat.JSON)
        try:
            for run, hit in search.hits(run_pages(lambda cursor: _runs(client, job, query, cursor))):
                printer.show(run, hit)
        except KeyboardInterrupt:
            report.note(f"\nthe search is incomplete; continue with --after {search.place}" if search.place else "")
            raise
        if not search.runs and not search.lines:
            # Raises JOB_NOT_FOUND when there is no such job.
            client.call("JobReader.GetJob", pb.GetJobRequest(name=job))
    _report_search(search, job)
    return 0


def _search_request(grep: str, *, regex: bool, since: str, until: str, stdout: bool, stderr: bool, level: Any) -> Any:
    from toban_cli.commands.logs import chosen_streams, set_times

    if regex and not grep:
        raise typer.BadParameter("is for --grep, which is not given", param_hint="--regex")
    query = logs_pb.SearchLogRequest(grep=grep, regex=regex, level=level or "")
    query.streams.extend(chosen_streams(stdout=stdout, stderr=stderr, raw=False))
    set_times(query, since, until)
    return query


def _runs(client: Client, job: str, query: Any, cursor: str) -> Any:
    from toban_cli.log_search import RUNS_PAGE

    request = pb.ListRunsRequest(page=common_pb.Page(limit=RUNS_PAGE, cursor=cursor), job=job)
    for name, bound, doubt in (("active_from", "since", -CLOCK_SECONDS), ("active_until", "until", CLOCK_SECONDS)):
        if query.HasField(bound):
            moment = getattr(query, bound).ToDatetime() + timedelta(seconds=doubt)
            getattr(request, name).FromDatetime(moment)
    return client.call("JobReader.ListRuns", request)


class _Printer:
    """A line a hit: run, time, stream and text; or an object."""

    def __init__(self, client: Client, *, as_json: bool) -> None:
        self._client = client
        self._as_json = as_json
        self._attempts: dict[int, dict[int, int]] = {}

    def show(self, run: Any, hit: Any) -> None:
        from toban_cli.log_printer import STREAM_NAMES, json_line, line_facts, line_time, write
        from toban_cli.sanitize import clean_bytes

        if self._as_json:
            facts = line_facts(hit.token, self._attempt(run, hit.token), hit.line)
            write(sys.stdout, json_line({"run": hit.run_id, **facts}))
            return
        at = line_time(hit.line).astimezone().isoformat(timespec="milliseconds")
        stream = STREAM_NAMES.get(hit.line.stream, "system")
        text = clean_bytes(hit.line.text) if sys.stdout.isatty() else hit.line.text
        write(sys.stdout, f"{hit.run_id} {at} {stream} ".encode() + text + b"\n")

    def _attempt(self, run: Any, token: int) -> int | None:
        """Runs of a list have their last attempt only: the others are fetched once a run."""
        from toban_domain.errors import TobanError

        if token == run.token:
            return int(run.attempt)
        if run.id not in self._attempts:
            try:
                found = self._client.call("JobReader.GetRun", pb.GetRunRequest(id=run.id)).attempts
            except TobanError:
                found = []
            self._attempts[run.id] = {item.token: item.attempt for item in found}
        return self._attempts[run.id].get(token)


def _report_search(search: Any, job: str) -> None:
    """On stderr: what was not shown, and, on a terminal or when nothing was found, what was searched."""
    if search.expired:
        report.note(f"the output of {count(search.expired, 'attempt')} expired: older than log_retention_days_archive")
    if search.cut:
        report.note(f"stopped after {count(search.lines, 'line')}; continue with --after {search.place}")
    elif not search.lines or sys.stderr.isatty():
        found = count(search.lines, "line") if search.lines else "nothing found"
        report.note(f"{found} in {count(search.runs, 'run')} of {job} ({size(search.bytes)} searched)")
