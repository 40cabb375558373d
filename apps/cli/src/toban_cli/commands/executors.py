"""`toban executor list|show|drain|undrain|detach`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from toban_cli import report
from toban_cli.client import connect
from toban_cli.completion_values import executor_numbers
from toban_cli.formatting import NOTHING, age, count, day, size, wall_now
from toban_cli.messages import pb
from toban_cli.options import AuditReason, Format, Output
from toban_cli.output import Column, show, show_done, show_one
from toban_cli.watch import Watch, watch
from toban_domain.errors import ErrorCode, TobanError

if TYPE_CHECKING:
    from datetime import datetime

    from toban_cli.ports import Client

Executor = Annotated[
    str,
    typer.Argument(
        metavar="EXECUTOR",
        help="Number, node or instance of the executor.",
        show_default=False,
        autocompletion=executor_numbers,
    ),
]
Wait = Annotated[bool, typer.Option("--wait", "-w", help="Wait until the executor has no runs.")]
Timeout = Annotated[
    float, typer.Option("--timeout", min=0, metavar="SECONDS", help="With --wait: give up after this time; 0 = never.")
]
Stop = Annotated[bool, typer.Option("--stop", help="Stop its runs at once; without this they run to completion.")]
# Between two requests for what still runs, seconds.
POLL_SECONDS = 0.5
_OFF = "off"


def list_executors(
    every: Annotated[bool, typer.Option("--all", help="Include executors that have left.")] = False,
    output: Output = Format.TABLE,
    watch_seconds: Watch = None,
) -> None:
    """List the executors.

    Examples:
    toban executor list
    toban executor list --all -o wide
    """
    with connect() as client:

        def refresh() -> None:
            found = client.call("JobReader.ListExecutors", pb.ListExecutorsRequest(include_off=every)).executors
            table, wide = executor_columns(wall_now())
            show(output, found, table=table, wide=wide, empty="No executors.")

        watch(refresh, watch_seconds, output)


def get_executor(executor: Executor, output: Output = Format.TABLE) -> None:
    """Show one executor, and what isolates its jobs.

    Examples:
    toban executor get host-a
    """
    with connect() as client:
        found = _find(client, executor)
    show_one(output, found, page=lambda _: _executor_page(found, wall_now()))


def drain(
    executor: Executor,
    reason: AuditReason = "",
    wait: Wait = False,
    timeout: Timeout = 0.0,
    output: Output = Format.TABLE,
) -> None:
    """Assign no new runs to an executor, even after its restart. Its present runs continue.

    Examples:
    toban executor drain host-a --reason "new disk" --wait
    """
    with connect() as client:
        epoch = _seen_epoch(client)
        found = _find(client, executor)
        request = pb.DrainExecutorRequest(worker_id=found.worker_id, reason=reason, epoch=epoch)
        answer = client.call("Operations.DrainExecutor", request)
        if wait:
            _wait_until_idle(client, answer, timeout)
            answer = _find(client, str(found.worker_id))
        runs = _continuing(answer.running) if answer.running else "it has no runs"
        show_done(output, answer, f"executor {answer.worker_id} on {answer.node_id} gets no new runs; {runs}")


def undrain(executor: Executor, reason: AuditReason = "", output: Output = Format.TABLE) -> None:
    """Assign runs again to a drained executor.

    Examples:
    toban executor undrain host-a
    """
    with connect() as client:
        epoch = _seen_epoch(client)
        found = _find(client, executor)
        request = pb.UndrainExecutorRequest(worker_id=found.worker_id, reason=reason, epoch=epoch)
        answer = client.call("Operations.UndrainExecutor", request)
        result = "gets runs again" if found.drained else "was not drained"
        show_done(output, answer, f"executor {answer.worker_id} on {answer.node_id} {result}")


def detach(executor: Executor, stop: Stop = False, reason: AuditReason = "", output: Output = Format.TABLE) -> None:
    """Detach an executor. Its process registers again under a new number when its runs have ended.

    Drain it first if it must get no runs afterwards. Repeat the command with --stop if the runs take too long.

    Examples:
    toban executor detach 5
    toban executor detach 5 --stop --reason "its jobs hang"
    """
    with connect() as client:
        epoch = _seen_epoch(client)
        found = _find(client, executor)
        mode = "stop" if stop else "let_finish"
        request = pb.DetachExecutorRequest(worker_id=found.worker_id, mode=mode, reason=reason, epoch=epoch)
        answer = client.call("Operations.DetachExecutor", request)
        result = (
            "its runs are stopped and repeat on other executors"
            if stop
            else f"{_continuing(answer.running)} to completion"
        )
        show_done(output, answer, f"executor {answer.worker_id} on {answer.node_id} is detached; {result}")


def executor_columns(now: datetime) -> tuple[list[Column], list[Column]]:
    """The columns of a table of executors, and those that -o wide adds."""
    table = [
        Column("ID", lambda item: str(item.worker_id)),
        Column("NODE", lambda item: item.node_id, name=True),
        Column("ADDRESS", lambda item: item.address, loose=True),
        Column("STATE", _executor_state),
        Column("CLASS", _executor_class),
        Column("RUNNING", lambda item: f"{item.running}/{item.slots}"),
        Column("SEEN", lambda item: age(item.last_heartbeat_at, now)),
        Column(
            "LABELS", lambda item: ",".join(f"{k}={v}" for k, v in sorted(item.labels.items())) or NOTHING, loose=True
        ),
    ]
    wide = [
        Column("GROUP", lambda item: item.group or NOTHING),
        Column("VERSION", lambda item: item.version or NOTHING),
        Column("REGISTERED", lambda item: age(item.registered_at, now)),
        Column("LEASE", lambda item: f"{item.lease_ms / 1000:g}s" if item.lease_ms else NOTHING),
        Column("CLOCK", clock_skew),
        Column("DISK FREE", lambda item: size(item.disk_free_bytes) if item.disk_free_bytes else NOTHING),
        Column("CERTIFICATE ENDS", lambda item: day(item.certificate_not_after, now)),
        Column("WHY", lambda item: item.off_reason or item.drain_reason or NOTHING, loose=True),
    ]
    return table, wide


def _executor_page(executor: Any, now: datetime) -> None:
    from toban_cli.tables import facts

    table, wide = executor_columns(now)
    cells = [(column.header.capitalize(), column.cell(executor)) for column in [*table[1:], *wide]]
    facts(
        [
            ("Executor", str(executor.worker_id)),
            ("Instance", executor.instance),
            *((name, cell) for name, cell in cells if cell != NOTHING),
            ("Isolation", ", ".join(executor.isolation_details)),
        ]
    )


def _executor_class(executor: Any) -> str:
    # A coordinator of the release before states none, and knows of none that is isolated.
    from toban_domain.job import SHARED

    return executor.isolation or SHARED


def _executor_state(executor: Any) -> str:
    return f"{executor.state}, drained" if executor.drained else str(executor.state)


def clock_skew(process: Any) -> str:
    """Clock offset, seconds."""
    return f"{process.clock_skew_seconds:+.3f}s" if process.HasField("clock_skew_seconds") else "-"


def _seen_epoch(client: Client) -> int:
    """The leader in whose time the executor was looked up: a coordinator refuses the operation in another one's."""
    return int(client.call("JobReader.GetCluster", pb.GetClusterRequest()).epoch)


def _find(client: Client, word: str) -> Any:

    def fetch(include_off: bool) -> Any:
        return client.call("JobReader.ListExecutors", pb.ListExecutorsRequest(include_off=include_off)).executors

    return find_executor(fetch, word)


def find_executor(fetch: Callable[[bool], Sequence[Any]], word: str) -> Any:
    """The executor that `word` names: a present one, else the newest of those that have left.

    `fetch(include_off)` lists the executors. Raises EXECUTOR_NOT_FOUND with the nearest names, INVALID_ARGUMENT when several are meant.
    """
    present = fetch(False)
    found = _named(present, word) or _newest(_named(every := fetch(True), word))
    if not found:
        raise _not_found([*present, *every], word)
    if len(found) > 1:
        numbers = ", ".join(str(item.worker_id) for item in found)
        raise TobanError(
            ErrorCode.INVALID_ARGUMENT, f"{word} has {len(found)} executors: name one by its number ({numbers})"
        )
    return found[0]


def _named(executors: Sequence[Any], word: str) -> list[Any]:
    """By number; else by instance, which is unique; else by node or address."""
    for fits in (
        lambda item: word.isdecimal() and item.worker_id == int(word),
        lambda item: item.instance == word,
        lambda item: word in (item.node_id, item.address),
    ):
        if found := [item for item in executors if fits(item)]:
            return _newest(found)
    return []


def _newest(executors: Sequence[Any]) -> list[Any]:
    """The newest incarnation of each instance."""
    newest = {item.instance: item for item in sorted(executors, key=lambda item: item.worker_id)}
    return sorted(newest.values(), key=lambda item: item.worker_id)


def _not_found(executors: Sequence[Any], word: str) -> TobanError:
    import difflib

    known = {item.node_id for item in executors} | {item.instance for item in executors}
    known |= {str(item.worker_id) for item in executors if item.state != _OFF}
    close = difflib.get_close_matches(word, sorted(known), n=2, cutoff=0.6)
    hint = f"; did you mean {' or '.join(close)}?" if close else "; `toban executor list` shows them"
    return TobanError(ErrorCode.EXECUTOR_NOT_FOUND, f"there is no executor {word!r}{hint}")


def _wait_until_idle(client: Client, executor: Any, timeout: float) -> None:
    from threading import Event

    from toban_runtime.clock import SystemClock

    clock, reported = SystemClock(), 0
    end = clock.monotonic() + timeout
    while True:
        present = client.call("JobReader.ListExecutors", pb.ListExecutorsRequest()).executors
        running = sum(item.running for item in present if item.instance == executor.instance)
        if not running:
            return
        if timeout and clock.monotonic() >= end:
            raise TobanError(
                ErrorCode.DEADLINE_EXCEEDED,
                f"executor {executor.worker_id} still has {count(running, 'run')} after {timeout:g} s and stays drained; "
                "raise --timeout, or cancel its runs",
            )
        if running != reported:
            report.note(f"waiting for {count(running, 'run')} on executor {executor.worker_id}")
        reported = running
        Event().wait(POLL_SECONDS)


def _continuing(running: int) -> str:
    return f"{count(running, 'run')} {'continues' if running == 1 else 'continue'}"
