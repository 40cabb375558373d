"""`toban run wait`."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

import typer

from toban_cli.client import connect
from toban_cli.commands.runs import attend_run
from toban_cli.completion_values import run_numbers
from toban_cli.options import Format, Output
from toban_cli.output import show
from toban_cli.param_types import LARGEST
from toban_domain.errors import ErrorCode, TobanError

RunIds = Annotated[
    list[int],
    typer.Argument(
        metavar="RUN...", min=1, max=LARGEST, help="Numbers of runs.", show_default=False, autocompletion=run_numbers
    ),
]
Timeout = Annotated[
    str, typer.Option("--timeout", metavar="SPAN", help="Wait at most so long for all of them: 30s, 5m, 1h30m.")
]


def wait(runs: RunIds, timeout: Timeout = "", output: Output = Format.TABLE) -> int:
    """Wait until runs have ended. The exit code is that of `toban run start --wait`: of several runs, of the first that did not succeed.

    After --timeout the exit code is 75, and the runs go on.

    Examples:
    toban run wait 12
    toban run wait 12 13 14 --timeout 10m
    toban run start import -o name | xargs toban run wait
    """
    from toban_cli.exit_status import result_code
    from toban_cli.times import read_span

    seconds = read_span("--timeout", timeout) if timeout else 0
    ended = []
    with connect(waits=True) as client:
        try:
            with _at_most(seconds):
                for run_id in runs:
                    ended.append(attend_run(client, run_id, show_log=False))
        except _TimeIsUpError:
            for run_id in runs[len(ended) :]:
                message = f"run {run_id} has not ended within {timeout}; `toban run wait {run_id}` waits for it again"
                raise TobanError(ErrorCode.DEADLINE_EXCEEDED, message) from None
    if output.is_data or output is Format.NAME:
        show(output, ended, table=[])
    return next((code for code in map(result_code, ended) if code), 0)


class _TimeIsUpError(KeyboardInterrupt):
    """Ends a wait wherever it is, as Ctrl-C does."""


@contextmanager
def _at_most(seconds: int) -> Iterator[None]:
    """Ends the block after so many seconds; 0 = never."""

    def end(*_: object) -> None:
        raise _TimeIsUpError

    before = signal.signal(signal.SIGALRM, end)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
