"""Waits for the end of a run while showing its output.

Two sources end at different moments: the coordinator reports the end of the run, the log-archiver the end of its output. One thread
follows the log; the caller's thread watches the run, then waits a moment for the log to be sealed, and reads what is still missing.
"""

from __future__ import annotations

import threading
from typing import Any

from toban_cli import report
from toban_cli.direct import DirectClient
from toban_cli.log_printer import LinePrinter
from toban_cli.log_reader import position_after
from toban_domain.errors import ErrorCode, TobanError
from toban_domain.run import TERMINAL

# Between two polls or attempts, seconds.
PAUSE_SECONDS = 0.1
# How long the last lines of a run that is over may take to arrive, seconds.
SEAL_SECONDS = 5.0
# The same when no line is known of: a run that wrote nothing leaves nothing that could be sealed.
QUIET_SECONDS = 0.3
# How long no coordinator may respond while we wait for a run, seconds: a fail-over is much shorter.
OUTAGE_SECONDS = 60.0

_TERMINAL = frozenset(str(state) for state in TERMINAL)


def attend(
    client: DirectClient, run_id: int, *, show_log: bool, query: Any = None, printer: LinePrinter | None = None
) -> Any:
    """The run in its terminal state; `query` is a ReadLogRequest that selects the lines to show, None = all.

    Raises TobanError when no coordinator responds for OUTAGE_SECONDS, INVALID_ARGUMENT for a query that log-archivers refuse, and
    KeyboardInterrupt when the reader of the output leaves first (`| head`): as with Ctrl-C, the run goes on.
    """
    follower = _Follower(client, run_id, query, printer or LinePrinter()) if show_log else None
    try:
        if follower is not None:
            follower.start()
        run = _watch(client, run_id, follower)
        if follower is not None:
            follower.finish(run)
    finally:
        if follower is not None:
            follower.stop()
    return run


def _watch(client: DirectClient, run_id: int, follower: _Follower | None) -> Any:
    from toban_proto.v1.coordinator_pb2 import GetRunRequest

    pause = threading.Event()
    failures = 0
    while True:
        try:
            for run in client.stream("JobReader.WatchRun", GetRunRequest(id=run_id)):
                failures = 0
                if follower is not None:
                    follower.latest_token = run.token
                if run.state in _TERMINAL:
                    return client.call("JobReader.GetRun", GetRunRequest(id=run_id))
        except (TobanError, ValueError) as error:
            if follower is not None and follower.reader_left:
                raise KeyboardInterrupt from None
            if isinstance(error, ValueError):
                raise
            failures += 1
            if (
                error.code not in (ErrorCode.UNAVAILABLE, ErrorCode.DEADLINE_EXCEEDED)
                or failures * PAUSE_SECONDS > OUTAGE_SECONDS
            ):
                raise
        pause.wait(PAUSE_SECONDS)


class _Follower:
    """Shows the log of one run from a thread of its own."""

    def __init__(self, client: DirectClient, run_id: int, query: Any, printer: LinePrinter) -> None:
        self._client = client
        self._run_id = run_id
        self._query = query
        self._printer = printer
        self._fleet = client.new_archivers()
        self._stopped = threading.Event()
        self._complaint = ""
        self._ended_token = 0
        # How far the output was read, also what the query leaves out: token and number of a line.
        self._read_to = (0, 0)
        self.reader_left = False
        """The reader of what this command prints has closed its end."""
        self.latest_token = 0
        """Token of the run's latest dispatch, as the watcher sees it."""
        self._thread = threading.Thread(target=self._follow, name="log", daemon=True)

    def start(self) -> None:
        """Begins to show lines."""
        self._thread.start()

    def finish(self, run: Any) -> None:
        """After the end of the run: waits for the output to be complete, then prints what the follower has not."""
        waited = 0.0
        try:
            while run.token and waited < self._seal_timeout(run):
                self._stopped.wait(PAUSE_SECONDS)
                waited += PAUSE_SECONDS
            self.stop()
            self._print_missing()
        except TobanError as error:
            self._complain(error)
        except BrokenPipeError:
            # The reader of our output left, and the run is over: there is nothing to report.
            report.drop_output()
        except OSError as error:
            self._complain(report.unwritten(error))

    def stop(self) -> None:
        """Ends the thread: closing its connections ends the stream that it waits on."""
        self._stopped.set()
        self._fleet.close()
        if self._thread.is_alive():
            self._thread.join(timeout=SEAL_SECONDS)

    def _follow(self) -> None:
        while not self._stopped.is_set():
            try:
                self._follow_once()
                self._await_attempt()
            except TobanError as error:
                if not self._stopped.is_set():
                    self._complain(error)
            except BrokenPipeError:
                report.drop_output()
                self._end_watch()
                return
            except OSError as error:
                self._complain(report.unwritten(error))
                return
            except ValueError:
                # gRPC refuses calls on a channel that was closed under it: we are stopping.
                return
            self._stopped.wait(PAUSE_SECONDS)

    def _end_watch(self) -> None:
        """Ends the wait of the caller's thread. A signal would not: SIGINT is ignored in the background jobs of a shell."""
        self.reader_left = True
        self._client.coordinators.close()

    def _follow_once(self) -> None:
        """Shows lines until the last attempt so far is complete."""
        request = self._request(follow=True)
        if self._ended_token:
            request.token = self.latest_token
        position = max([self._read_to, *self._printer.printed.items()])
        if position > (0, 0):
            request.tail = 0
            if not self._ended_token:
                request.after.token, request.after.seq = position
        answers = self._client.stream("LogReader.Read", request, self._fleet)
        try:
            for answer in answers:
                if self._stopped.is_set():
                    return
                self._printer.show(answer)
                self._read_to = max(self._read_to, position_after(answer))
                if answer.at_end:
                    self._ended_token = answer.token
        except TobanError as error:
            # A stream ends at its deadline, at the latest with its read ticket.
            if error.code is not ErrorCode.DEADLINE_EXCEEDED:
                raise

    def _await_attempt(self) -> None:
        """Waits for a retry of the run: its output begins under a larger token."""
        while self._ended_token and self.latest_token <= self._ended_token and not self._stopped.is_set():
            self._stopped.wait(PAUSE_SECONDS)

    def _attempts(self) -> Any:
        from toban_proto.v1.logs_pb2 import DescribeLogRequest

        return self._client.call("LogReader.Describe", DescribeLogRequest(run_id=self._run_id)).attempts

    def _seal_timeout(self, run: Any) -> float:
        """How long the rest of the output may take to arrive, seconds: no time when it is complete."""
        stored = [item for item in self._attempts() if item.token == run.token]
        if any(item.sealed for item in stored):
            return 0.0
        return SEAL_SECONDS if stored or run.last_line else QUIET_SECONDS

    def _print_missing(self) -> None:
        """Reads what is stored beyond the lines that were printed."""
        printed = self._printer.printed
        requests = [self._request()]
        if printed or not requests[0].tail:
            requests = [
                self._request(token=item.token, from_seq=printed.get(item.token, 0) + 1, tail=0)
                for item in self._attempts()
                if item.last_seq > printed.get(item.token, 0) and item.token >= min(printed, default=0)
            ]
        for request in requests:
            for answer in self._client.stream("LogReader.Read", request):
                self._printer.show(answer)

    def _request(self, **given: Any) -> Any:
        """The query, with these fields otherwise."""
        from toban_proto.v1.logs_pb2 import ReadLogRequest

        request = ReadLogRequest()
        if self._query is not None:
            request.CopyFrom(self._query)
        request.MergeFrom(ReadLogRequest(run_id=self._run_id))
        for name, value in given.items():
            setattr(request, name, value)
        return request

    def _complain(self, error: TobanError) -> None:
        """Warns once that the output cannot be shown; the run does not depend on it."""
        if error.message != self._complaint:
            self._complaint = error.message
            report.note(f"warning: the output cannot be shown: {error.message}")
