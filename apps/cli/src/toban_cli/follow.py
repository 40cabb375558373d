"""Waits for the end of a run while showing its output: one flow over the site, or over coordinators and log-archivers."""

from __future__ import annotations

from collections.abc import Iterator
from threading import Event
from typing import Any

from toban_cli import report
from toban_cli.log_printer import LinePrinter
from toban_cli.log_reader import position_after
from toban_cli.ports import AWAY, RunSource, StreamEndedError
from toban_domain.errors import ErrorCode, TobanError
from toban_domain.run import TERMINAL

# Between two looks at the run, seconds.
PAUSE_SECONDS = 0.1
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
# The output cannot be read now (without room for another stream either); whether the run has ended shows when it is read.
_NOT_NOW = AWAY | {ErrorCode.RESOURCE_EXHAUSTED}
# After a stream that did not begin, seconds, where the answer names no other time.
_REFUSED_SECONDS = 1.0
# How long output is still tried after the end of its run, while every stream breaks off, seconds.
_LATE_SECONDS = 20.0


def attend(
    source: RunSource, run_id: int, *, show_log: bool, query: Any = None, printer: LinePrinter | None = None
) -> Any:
    """The run in its terminal state; `query` is a ReadLogRequest that selects the lines to show, None = all.

    Raises TobanError when no server answers for a minute or the output may not be read, and KeyboardInterrupt when the reader of the output
    leaves first (`| head`): as with Ctrl-C, the run goes on.
    """
    shown = _Shown(source, run_id, query, printer or LinePrinter()) if show_log else None
    try:
        return _await_end(source, shown)
    finally:
        source.close()


def _await_end(source: RunSource, shown: _Shown | None) -> Any:
    late, complaint = 0.0, ""
    while True:
        pause, before, complaint = PAUSE_SECONDS, complaint, ""
        try:
            if shown is None:
                source.await_end()
            else:
                shown.follow()
        except TobanError as error:
            if error.code not in _NOT_NOW:
                raise
            pause, complaint = float(error.detail.get("retry_after_seconds", _REFUSED_SECONDS)), error.message
        run = source.read()
        if shown is not None and before and complaint:
            # The run can be read, and it was no restart: two streams in a row have failed.
            shown.complain(complaint)
        if run.state in TERMINAL:
            if shown is None or shown.is_over:
                return run
            late += pause
            if late > _LATE_SECONDS:
                shown.give_up()
                return run
        Event().wait(min(pause, _LATE_SECONDS))


class _Shown:
    """The output of one run, from where an earlier stream has ended."""

    def __init__(self, source: RunSource, run_id: int, query: Any, printer: LinePrinter) -> None:
        from toban_proto.v1.logs_pb2 import ReadLogRequest

        self._source = source
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
        """Shows lines until the output is complete, the stream ends, or the run has ended and its output cannot be read.

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
            if error.code not in _FINAL | _NOT_NOW:
                # The run does not depend on it.
                self.complain(error.message)
                return
            raise
        except BrokenPipeError:
            report.drop_output()
            if not self._source.has_ended():
                # As with Ctrl-C, the run goes on.
                raise KeyboardInterrupt from None
            self.is_over = True
        except OSError as error:
            # The disk is full: the wait goes on without the output.
            self.complain(report.unwritten(error).message)
            self._printer = None

    def give_up(self) -> None:
        """The run has ended, and every stream of its output breaks off."""
        self.complain(
            f"every stream of it ends before the last line; `toban run logs {self._run_id}` reads what is stored"
        )

    def _answers(self) -> Iterator[Any]:
        for answer in self._source.output(self._request, self._on_outage):
            yield answer
            position = position_after(answer)
            if position > (0, 0):
                self._request.after.token, self._request.after.seq = position
                self._request.tail = 0

    def _on_outage(self, message: str) -> None:
        self.complain(message)
        if self._source.has_ended():
            raise _EndedUnseenError

    def complain(self, message: str) -> None:
        """Warns once that the output cannot be shown."""
        if message != self._complaint:
            self._complaint = message
            report.note(f"warning: the output cannot be shown: {message}")


class _EndedUnseenError(Exception):
    """The run has ended, and the rest of its output cannot be read now."""
