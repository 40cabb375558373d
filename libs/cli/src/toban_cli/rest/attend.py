"""Waits for the end of a run over REST while showing its output. One stream of the site has the lines and their end."""

from __future__ import annotations

from collections.abc import Iterator
from threading import Event
from typing import TYPE_CHECKING, Any

from toban_cli import report
from toban_cli.follow import OUTAGE_SECONDS, PAUSE_SECONDS
from toban_cli.log_printer import LinePrinter
from toban_cli.log_reader import position_after
from toban_cli.rest.events import server_events
from toban_cli.rest.logs import StreamEndedError, follow_lines
from toban_domain.errors import ErrorCode, TobanError
from toban_domain.run import TERMINAL

if TYPE_CHECKING:
    from toban_cli.rest.client import RestClient

_TERMINAL = frozenset(str(state) for state in TERMINAL)
# The person may not read this, or there is no such run.
_FINAL = frozenset(
    {
        ErrorCode.UNAUTHENTICATED,
        ErrorCode.PERMISSION_DENIED,
        ErrorCode.NOT_FOUND,
        ErrorCode.RUN_NOT_FOUND,
        ErrorCode.INVALID_ARGUMENT,
    }
)
_AWAY = frozenset({ErrorCode.UNAVAILABLE, ErrorCode.DEADLINE_EXCEEDED})


def attend(client: RestClient, run_id: int, *, show_log: bool, query: Any = None, printer: Any = None) -> Any:
    """As `toban_cli.follow.attend`. Raises KeyboardInterrupt when the reader of the output leaves before the run ends."""
    shown = _Shown(client, run_id, query, printer or LinePrinter()) if show_log else None
    away = 0.0
    while True:
        try:
            if shown is None:
                _await_end(client, run_id)
            else:
                shown.follow()
            run = _run(client, run_id)
            if run.state in _TERMINAL:
                return run
            away = 0.0
        except TobanError as error:
            away += PAUSE_SECONDS
            if error.code not in _AWAY or away > OUTAGE_SECONDS:
                raise
        Event().wait(PAUSE_SECONDS)


class _Shown:
    """The output of one run, from where an earlier stream has ended."""

    def __init__(self, client: RestClient, run_id: int, query: Any, printer: LinePrinter) -> None:
        from toban_proto.v1.logs_pb2 import ReadLogRequest

        self._client = client
        self._run_id = run_id
        self._request = ReadLogRequest()
        if query is not None:
            self._request.CopyFrom(query)
        self._request.run_id = run_id
        self._request.follow = True
        self._printer: LinePrinter | None = printer
        self._complaint = ""

    def follow(self) -> None:
        """Shows lines until the run has ended, or its output cannot be read and it has ended."""
        try:
            for answer in self._answers():
                if self._printer is not None:
                    self._printer.show(answer)
        except (_EndedUnseenError, StreamEndedError):
            return
        except TobanError as error:
            if error.code in _FINAL:
                raise
            # The run does not depend on it; whether the site is away shows when it is asked about the run.
            self._complain(error.message)
        except BrokenPipeError:
            report.drop_output()
            if _run(self._client, self._run_id).state not in _TERMINAL:
                # As with Ctrl-C, the run goes on.
                raise KeyboardInterrupt from None
        except OSError as error:
            # The disk is full: the wait goes on without the output.
            self._complain(report.unwritten(error).message)
            self._printer = None

    def _answers(self) -> Iterator[Any]:
        for answer in follow_lines(self._client, self._request, self._on_outage):
            yield answer
            position = position_after(answer)
            if position > (0, 0):
                self._request.after.token, self._request.after.seq = position
                self._request.tail = 0

    def _on_outage(self, message: str) -> None:
        self._complain(message)
        if _run(self._client, self._run_id).state in _TERMINAL:
            raise _EndedUnseenError

    def _complain(self, message: str) -> None:
        if message != self._complaint:
            self._complaint = message
            report.note(f"warning: the output cannot be shown: {message}")


class _EndedUnseenError(Exception):
    """The run has ended, and the rest of its output cannot be read now."""


def _await_end(client: RestClient, run_id: int) -> None:
    for event in server_events(client, f"/runs/{run_id}/stream"):
        if event.name == "end":
            return


def _run(client: RestClient, run_id: int) -> Any:
    from toban_proto.v1.coordinator_pb2 import GetRunRequest

    return client.read("GetRun", GetRunRequest(id=run_id))
