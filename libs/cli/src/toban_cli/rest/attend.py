"""Waits for the end of a run over REST while showing its output. One stream of the site has the lines and their end."""

from __future__ import annotations

from collections.abc import Iterator
from threading import Event
from typing import TYPE_CHECKING, Any

from toban.client.flow import RetryBudget
from toban.client.streams import server_events
from toban_cli import report
from toban_cli.follow import PAUSE_SECONDS
from toban_cli.log_printer import LinePrinter
from toban_cli.log_reader import position_after
from toban_cli.rest.logs import StreamEndedError, follow_lines
from toban_domain.errors import ErrorCode, TobanError
from toban_domain.run import TERMINAL

if TYPE_CHECKING:
    from toban_cli.rest.connection import SiteClient

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
# The site is away, or has no room for another stream: whether the run has ended shows when the site is asked about the run.
_AWAY = frozenset({ErrorCode.UNAVAILABLE, ErrorCode.DEADLINE_EXCEEDED, ErrorCode.RESOURCE_EXHAUSTED})
# After a stream that did not begin, seconds, where the site names no other time.
_REFUSED_SECONDS = 1.0
# How long output is still tried after the end of its run, while every stream breaks off, seconds.
_LATE_SECONDS = 20.0


def attend(client: SiteClient, run_id: int, *, show_log: bool, query: Any = None, printer: Any = None) -> Any:
    """As `toban_cli.follow.attend`. Raises KeyboardInterrupt when the reader of the output leaves before the run ends."""
    shown = _Shown(client, run_id, query, printer or LinePrinter()) if show_log else None
    client.wait_for_site()
    late, complaint = 0.0, ""
    while True:
        pause, before, complaint = PAUSE_SECONDS, complaint, ""
        try:
            if shown is None:
                _await_end(client, run_id)
            else:
                shown.follow()
        except TobanError as error:
            if error.code not in _AWAY:
                raise
            pause, complaint = float(error.detail.get("retry_after_seconds", _REFUSED_SECONDS)), error.message
        run = _run(client, run_id)
        if shown is not None and before and complaint:
            # The site is there, and it was no restart: two streams in a row have failed.
            shown.complain(complaint)
        if run.state in _TERMINAL:
            if shown is None or shown.is_over:
                return run
            late += pause
            if late > _LATE_SECONDS:
                shown.give_up()
                return run
        Event().wait(min(pause, _LATE_SECONDS))


class _Shown:
    """The output of one run, from where an earlier stream has ended."""

    def __init__(self, client: SiteClient, run_id: int, query: Any, printer: LinePrinter) -> None:
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
        self.is_over = False
        """Every line was shown, or the rest cannot be shown."""

    def follow(self) -> None:
        """Shows lines until the output is complete, the site ends the stream, or the run has ended and its output cannot be read.

        Raises what ends the wait, and for a stream that did not begin or that broke the error of that.
        """
        try:
            for answer in self._answers():
                if self._printer is not None:
                    self._printer.show(answer)
            self.is_over = True
        except _EndedUnseenError:
            self.is_over = True
        except StreamEndedError:
            return
        except TobanError as error:
            if error.code not in _FINAL | _AWAY:
                # The run does not depend on it.
                self.complain(error.message)
                return
            raise
        except BrokenPipeError:
            report.drop_output()
            if _run(self._client, self._run_id).state not in _TERMINAL:
                # As with Ctrl-C, the run goes on.
                raise KeyboardInterrupt from None
        except OSError as error:
            # The disk is full: the wait goes on without the output.
            self.complain(report.unwritten(error).message)
            self._printer = None

    def give_up(self) -> None:
        """The run has ended, and every stream of its output breaks off."""
        self.complain(
            f"the streams of the site end before it does; `toban run logs {self._run_id}` reads what is stored"
        )

    def _answers(self) -> Iterator[Any]:
        for answer in follow_lines(self._client, self._request, self._on_outage):
            yield answer
            position = position_after(answer)
            if position > (0, 0):
                self._request.after.token, self._request.after.seq = position
                self._request.tail = 0

    def _on_outage(self, message: str) -> None:
        self.complain(message)
        if _run(self._client, self._run_id).state in _TERMINAL:
            raise _EndedUnseenError

    def complain(self, message: str) -> None:
        """Warns once that the output cannot be shown."""
        if message != self._complaint:
            self._complaint = message
            report.note(f"warning: the output cannot be shown: {message}")


class _EndedUnseenError(Exception):
    """The run has ended, and the rest of its output cannot be read now."""


def _await_end(client: SiteClient, run_id: int) -> None:
    events = server_events(f"/runs/{run_id}/stream", (), RetryBudget(seconds=0.0))
    for event in client.connection.iterate(events):
        if event.name == "end":
            return


def _run(client: SiteClient, run_id: int) -> Any:
    from toban_proto.v1.coordinator_pb2 import GetRunRequest

    return client.call("JobReader.GetRun", GetRunRequest(id=run_id))
