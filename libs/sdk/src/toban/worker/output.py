"""The output of steps on its way to the logs of their runs: `LogHandler`, and what `print` writes within a task."""

from __future__ import annotations

import logging
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, NamedTuple

from toban.errors import RateLimitedError, TobanError, UnavailableError
from toban.worker.site import Key, WorkSite

STREAMS = ("stdout", "stderr")
LINE_BYTES = 16 * 1024
BATCH_LINES, BATCH_BYTES = 1000, 64 * 1024
# What waits in memory for each step while the site is away, bytes; what comes then is left out and counted.
WAITING_BYTES = 4 * 1024 * 1024
SEND_SECONDS = 1.0
_CALL_SECONDS = 10.0
# How long the end of a step waits for its last lines.
LAST_SECONDS = 10.0
_RETRY_SECONDS = 0.5

_log = logging.getLogger("toban.worker")
_current: ContextVar[StepOutput | None] = ContextVar("toban_step_output", default=None)


class _Line(NamedTuple):
    seq: int
    text: str
    stream: str
    at_unix_ms: int
    size: int


class StepOutput:
    """The lines of one step. Threads may write at the same time. Nothing here raises, and a write does not wait for the site.

    `on_cancel` is called when an answer says that a cancel was asked for, `wake` when there is enough for a call.
    """

    def __init__(self, key: Key, site: WorkSite, on_cancel: Callable[[], None]) -> None:
        self.key = key
        self._site = site
        self._on_cancel = on_cancel
        self.wake: Callable[[], None] = lambda: None
        # A finalizer that prints may run within a write of its own thread.
        self._lock = threading.RLock()
        # Calls go out one after the other.
        self._sending = threading.Lock()
        self._rest = dict.fromkeys(STREAMS, "")
        self._lines: deque[_Line] = deque()
        self._waiting = 0
        self._last_seq = 0
        # The lines of the call that is under way or was not answered: it is repeated as it was.
        self._batch: list[_Line] = []
        self._left_out = 0
        self._why = ""
        self._closed = False

    def write(self, text: str, stream: str = "stdout") -> None:
        """Adds text; a line is complete with its newline."""
        with self._lock:
            *lines, rest = (self._rest[stream] + text).split("\n")
            # A line without an end is not gathered for ever.
            while len(rest) > LINE_BYTES:
                lines.append(rest[:LINE_BYTES])
                rest = rest[LINE_BYTES:]
            self._rest[stream] = rest
            self._add(lines, stream)
            is_much = self._waiting >= BATCH_BYTES
        if is_much:
            self.wake()

    def send(self) -> None:
        """Sends what waits, as far as the site takes it."""
        with self._sending:
            while self._next():
                if not self._try():
                    return

    def close(self, seconds: float = LAST_SECONDS) -> None:
        """The step ends: sends the rest within this time, and reports once what is not in the log. Later text is left out."""
        with self._lock:
            for stream, rest in self._rest.items():
                self._add([rest] if rest else [], stream)
            self._closed = True
        until = time.monotonic() + seconds
        with self._sending:
            while self._next():
                if not self._try():
                    if time.monotonic() >= until:
                        self._drop_all()
                        break
                    time.sleep(_RETRY_SECONDS)
        if self._left_out:
            _log.warning("%d lines of output are not in the log of run %d: %s", self._left_out, self.key[0], self._why)

    def _add(self, texts: list[str], stream: str) -> None:
        """With the lock."""
        at = time.time_ns() // 1_000_000
        for text in texts:
            for piece in _pieces(text.removesuffix("\r")):
                self._last_seq += 1
                size = len(piece.encode())
                if self._closed or self._waiting + size > WAITING_BYTES:
                    self._left_out += 1
                    self._why = self._why or "the site did not take them in time"
                else:
                    self._lines.append(_Line(self._last_seq, piece, stream, at, size))
                    # A line without text takes memory too.
                    self._waiting += size + 1

    def _next(self) -> bool:
        """Whether there is a batch to send. One that was not answered is sent as it was."""
        with self._lock:
            if not self._batch:
                size = 0
                while self._lines and self._fits(self._lines[0], size):
                    line = self._lines.popleft()
                    size += line.size
                    self._batch.append(line)
            return bool(self._batch)

    def _fits(self, line: _Line, size: int) -> bool:
        if not self._batch:
            return True
        is_next = line.seq == self._batch[-1].seq + 1
        return is_next and size + line.size <= BATCH_BYTES and len(self._batch) < BATCH_LINES

    def _try(self) -> bool:
        """Sends the batch once; False when it may be sent again later."""
        lines = [{"text": one.text, "stream": one.stream, "at_unix_ms": one.at_unix_ms} for one in self._batch]
        try:
            if self._site.append_log(self.key, self._batch[0].seq, lines, timeout=_CALL_SECONDS):
                self._on_cancel()
        except (UnavailableError, RateLimitedError) as error:
            self._why = str(error)
            return False
        except Exception as error:
            # Also an answer that is none of Toban's.
            self._why = str(error)
            if isinstance(error, TobanError) and error.code == "CLAIM_LOST":
                self._drop_all()
                return True
            self._left_out += len(self._batch)
        with self._lock:
            self._waiting -= sum(line.size + 1 for line in self._batch)
            self._batch = []
        return True

    def _drop_all(self) -> None:
        with self._lock:
            self._left_out += len(self._batch) + len(self._lines)
            self._batch, self._waiting = [], 0
            self._lines.clear()


class LogHandler(logging.Handler):
    """Sends records that are logged within a task to the log of its run, as lines of stderr; other records go nowhere.

    >>> logging.getLogger().addHandler(LogHandler())

    A handler that writes to `sys.stderr` and was made after `Worker.run` had begun is in the log of the run anyway.
    """

    def emit(self, record: logging.LogRecord) -> None:
        """See logging.Handler."""
        output = _current.get()
        if output is None:
            return
        try:
            output.write(self.format(record) + "\n", "stderr")
        except Exception:
            self.handleError(record)


class OutputSender:
    """A thread that sends the output of the steps under way once a second."""

    def __init__(self, on_failure: Callable[[BaseException], None]) -> None:
        self._on_failure = on_failure
        self._changed = threading.Condition()
        self._outputs: set[StepOutput] = set()
        self._woken = False
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="toban-log", daemon=True)
        self._thread.start()

    @contextmanager
    def sending(self, output: StepOutput) -> Iterator[None]:
        """What is written meanwhile is sent."""
        output.wake = self._wake
        with self._changed:
            self._outputs.add(output)
        try:
            yield
        finally:
            with self._changed:
                self._outputs.discard(output)

    def close(self) -> None:
        """Ends the thread."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        self._thread.join(_CALL_SECONDS)

    def _wake(self) -> None:
        with self._changed:
            self._woken = True
            self._changed.notify()

    def _run(self) -> None:
        try:
            while not self._closed:
                with self._changed:
                    self._changed.wait_for(lambda: self._woken or self._closed, SEND_SECONDS)
                    self._woken = False
                    outputs = list(self._outputs)
                for output in outputs:
                    output.send()
        except BaseException as error:
            self._on_failure(error)


@contextmanager
def within(output: StepOutput) -> Iterator[None]:
    """What this thread (or this context) prints meanwhile is output of the step."""
    token = _current.set(output)
    try:
        yield
    finally:
        _current.reset(token)


class _Captured:
    """Whether `sys.stdout` and `sys.stderr` are copied: by the first worker of the process, until its last one has ended."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._users = 0
        self._copies: dict[str, _Copy] = {}

    @contextmanager
    def __call__(self) -> Iterator[None]:
        """What is written within a task is copied into the log of its run; the streams still write as before."""
        with self._lock:
            self._users += 1
            if self._users == 1:
                # A process without a console has no streams.
                found = {name: getattr(sys, name) for name in STREAMS}
                self._copies = {name: _Copy(stream, name) for name, stream in found.items() if stream is not None}
                for name, copy in self._copies.items():
                    setattr(sys, name, copy)
        try:
            yield
        finally:
            with self._lock:
                self._users -= 1
                for name, copy in self._copies.items():
                    if not self._users and getattr(sys, name) is copy:
                        setattr(sys, name, copy.stream)


captured = _Captured()


class _Copy:
    """A stream whose text goes to the current step as well."""

    def __init__(self, stream: Any, name: str) -> None:
        self.stream = stream
        self._name = name

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)

    def write(self, text: str) -> Any:
        written = self.stream.write(text)
        output = _current.get()
        if output is not None:
            output.write(text, self._name)
        return written

    def writelines(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.write(line)


def _pieces(text: str) -> Iterator[str]:
    """A line in pieces that the site takes."""
    data = text.encode(errors="replace")
    if len(data) <= LINE_BYTES:
        yield data.decode()
        return
    while data:
        cut = min(LINE_BYTES, len(data))
        # Not within a character.
        while cut < len(data) and data[cut] & 0xC0 == 0x80:
            cut -= 1
        yield data[:cut].decode()
        data = data[cut:]
