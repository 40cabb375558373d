"""`Worker`: claims steps for its tasks, does them in threads, and ends them."""

from __future__ import annotations

import asyncio
import inspect
import json
import logging
import os
import queue
import signal
import socket
import threading
import traceback
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

from toban.client.target import Target
from toban.errors import AccessError, ConfigError, ConflictError, InvalidRequestError, TobanError
from toban.worker.heartbeats import Heartbeats
from toban.worker.output import OutputSender, captured, within
from toban.worker.site import WorkSite
from toban.worker.step import Step, StepFailedError, StepStoppedError, now

T = TypeVar("T", bound=Callable[[Step], Any])
_log = logging.getLogger("toban.worker")
_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 1.0, 30.0
_AT_ONCE = 100
# How long a request for steps waits for the first one, seconds. A claim counts from when it was asked for, so a wait takes from its
# lock and its timeout: at most a third of the smallest that the type has had, and little before the first one.
_FIRST_WAIT_SECONDS, _SHORTEST_WAIT_SECONDS, _LONGEST_WAIT_SECONDS = 2.0, 0.5, 10.0
END_RETRY_SECONDS = 120.0


@dataclass(slots=True)
class _Task:
    worker_type: str
    function: Callable[[Step], Any]
    concurrency: int


class Worker:
    """A process that does external steps. `name` must be its own: the default has host, process and a random part.

    >>> worker = Worker()
    >>> @worker.task("transcode", concurrency=2)
    ... def transcode(step: Step) -> dict[str, str]:
    ...     step.progress(50, "half way")
    ...     return {"out": step.payload["in"] + ".mp4"}

    `worker.run()` then serves until SIGTERM or SIGINT. A function returns the result (JSON, at most 32 KiB; None = none). An exception
    fails the step, to be tried again as its job defines; `StepFailedError(..., retryable=False)` is not tried again.

    What the function prints is also in the log of the run, as what `step.log` writes. `LogHandler` adds what it logs. Output of other threads
    that it starts, and of other programs, is not.
    """

    def __init__(self, target: Target | None = None, *, name: str = "") -> None:
        self._target = target
        self.name = name or f"{socket.gethostname()}:{os.getpid()}:{uuid.uuid4().hex[:8]}"
        self._tasks: list[_Task] = []
        # An Event could block a signal handler that interrupts its own thread in it; this queue cannot.
        self._stops: queue.SimpleQueue[BaseException | None] = queue.SimpleQueue()

    def task(self, worker_type: str, *, concurrency: int = 1) -> Callable[[T], T]:
        """Makes a function, plain or `async def`, do the steps of this type, up to `concurrency` at a time."""
        if concurrency < 1:
            raise ValueError(f"concurrency is {concurrency}; a task needs at least 1")
        if any(task.worker_type == worker_type for task in self._tasks):
            raise ValueError(f"type {worker_type!r} has a task already")

        def register(function: T) -> T:
            self._tasks.append(_Task(worker_type, function, concurrency))
            return function

        return register

    def run(self, *, grace_seconds: float = 30.0, handle_signals: bool = True) -> None:
        """Serves until `stop`, or SIGTERM or SIGINT.

        Raises ConfigError, AccessError or InvalidRequestError when the site cannot be used with this address, token and type, also
        later, and what else ends a thread of the worker, such as RuntimeError when no thread can be started. A site that is away is no
        error: the worker tries again.

        Then no more steps are claimed, and those that are under way may end within `grace_seconds`. What still runs keeps its claim
        until the lock has ended; the step is then offered to another worker.
        """
        if not self._tasks:
            raise ValueError("the worker has no task; decorate a function with @worker.task(TYPE)")
        site = WorkSite(self._target or Target.from_env(), self.name, END_RETRY_SECONDS)
        beats, stopping = Heartbeats(site, self._stops.put), threading.Event()
        sender = OutputSender(self._stops.put)
        loops = [_TaskLoop(task, site, beats, sender, stopping, self._stops.put) for task in self._tasks]
        try:
            with captured(), _stop_on_signals(self.stop) if handle_signals else _nothing():
                for loop in loops:
                    loop.start()
                cause = self._stops.get()
                stopping.set()
                _log.info("worker %s stops; steps under way may end within %g s", self.name, grace_seconds)
                until = now() + grace_seconds
                for loop in loops:
                    loop.join(until)
        finally:
            stopping.set()
            sender.close()
            beats.close()
            site.close()
        if cause is not None:
            raise cause

    def stop(self) -> None:
        """Ends `run`, from any thread or signal handler."""
        self._stops.put(None)


class _TaskLoop:
    """Claims steps of one type while it has room, and does each in a thread."""

    def __init__(
        self,
        task: _Task,
        site: WorkSite,
        beats: Heartbeats,
        sender: OutputSender,
        stopping: threading.Event,
        on_failure: Callable[[BaseException], None],
    ) -> None:
        self._task = task
        self._site = site
        self._beats = beats
        self._sender = sender
        self._stopping = stopping
        self._on_failure = on_failure
        self._changed = threading.Condition()
        self._under_way = 0
        self._wait, self._shortest = _FIRST_WAIT_SECONDS, float("inf")
        self._thread = threading.Thread(target=self._run, name=f"toban-claim-{task.worker_type}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def join(self, until: float) -> None:
        """Waits for the last claim and the steps that are under way."""
        self._thread.join(max(0.0, until - now()))
        with self._changed:
            self._changed.wait_for(lambda: not self._under_way, max(0.0, until - now()))
            if self._under_way:
                _log.warning("%d steps of type %s have not ended", self._under_way, self._task.worker_type)

    def _run(self) -> None:
        try:
            self._claim_all()
        except BaseException as error:
            # Without this thread the worker would do nothing, and would not end either.
            self._on_failure(error)

    def _claim_all(self) -> None:
        pause = _PAUSE_SECONDS
        while room := self._room():
            sent = now()
            try:
                found = self._site.claim(self._task.worker_type, min(room, _AT_ONCE), self._wait)
            except (AccessError, ConfigError, InvalidRequestError):
                raise
            except TobanError as error:
                wait = max(pause, error.retry_after or 0.0)
                pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)
                _log.warning("cannot claim %s; next try in %g s: %s", self._task.worker_type, wait, error)
                self._stopping.wait(wait)
                continue
            pause = _PAUSE_SECONDS
            # Also those that come after the stop: they are claimed.
            self._begin_all([Step(one, self._site, sent) for one in found])

    def _begin_all(self, steps: list[Step]) -> None:
        for step in steps:
            self._shortest = min(self._shortest, step.lock_seconds, step.timeout_seconds)
            self._wait = min(_LONGEST_WAIT_SECONDS, max(_SHORTEST_WAIT_SECONDS, self._shortest / 3))
        self._beats.confirm([step for step in steps if step.remaining_seconds < step.lock_seconds / 2])
        for step in steps:
            if step.is_lost:
                _log.warning("the claim of run %d ended before its work could begin; it is offered again", step.run_id)
            else:
                self._begin(step)

    def _room(self) -> int:
        """How many steps may begin; 0 = the worker stops."""
        with self._changed:
            # A stop is noticed within a second; nothing notifies it, as a signal handler could not.
            while not self._stopping.is_set() and self._under_way >= self._task.concurrency:
                self._changed.wait(1.0)
            return 0 if self._stopping.is_set() else self._task.concurrency - self._under_way

    def _begin(self, step: Step) -> None:
        with self._changed:
            self._under_way += 1
        self._beats.add(step)
        try:
            threading.Thread(target=self._do, args=(step,), name=f"toban-run-{step.run_id}", daemon=True).start()
        except BaseException as error:
            message = f"the worker cannot start a thread: {error}"
            self._finish(step, lambda: self._site.fail(step.key, message, retryable=True))
            raise

    def _do(self, step: Step) -> None:
        with self._sender.sending(step.output):
            self._finish(step, lambda: _end(self._site, step, self._task.function))

    def _finish(self, step: Step, report: Callable[[], None]) -> None:
        """Reports the end of a step; from then on its claim is not extended, whatever came of it."""
        try:
            report()
        except ConflictError as error:
            _log.warning("the end of run %d was refused; another attempt has it: %s", step.run_id, error)
        except TobanError as error:
            _log.error("the end of run %d is not stored; it is offered again: %s", step.run_id, error)
        except Exception:
            _log.exception("run %d", step.run_id)
        finally:
            self._beats.remove(step)
            with self._changed:
                self._under_way -= 1
                self._changed.notify_all()


def _end(site: WorkSite, step: Step, function: Callable[[Step], Any]) -> None:
    """Does a step, and reports how it ended. Raises TobanError when the report is refused or does not arrive."""
    try:
        with within(step.output):
            result = function(step)
            if inspect.iscoroutine(result):
                result = asyncio.run(result)
        json.dumps(result, allow_nan=False)
    except StepStoppedError as stopped:
        step.output.close()
        if step.cancelled():
            site.acknowledge_cancel(step.key)
        else:
            _log.warning("%s; its work has stopped", stopped)
    except StepFailedError as failed:
        step.output.close()
        site.fail(step.key, str(failed), retryable=failed.retryable)
    except BaseException as error:
        # Also SystemExit and CancelledError: they end this step, not the worker.
        _log.exception("run %d failed", step.run_id)
        step.log(traceback.format_exc().rstrip(), stream="stderr")
        step.output.close()
        site.fail(step.key, f"{type(error).__name__}: {error}", retryable=True)
    else:
        step.output.close()
        _complete(site, step, result)


def _complete(site: WorkSite, step: Step, result: Any) -> None:
    try:
        answer = site.complete(step.key, result)
    except InvalidRequestError as refused:
        # Another attempt would do the work again for the same answer.
        _log.error("the result of run %d is refused: %s", step.run_id, refused)
        site.fail(step.key, f"the result is refused: {refused}", retryable=False)
        return
    if answer["result"] == "refused":
        raise ConflictError(answer["message"], code=answer["code"])
    if answer["code"]:
        _log.warning("run %d: %s: %s", step.run_id, answer["code"], answer["message"])


@contextmanager
def _stop_on_signals(stop: Callable[[], None]) -> Iterator[None]:
    """The first signal stops the worker, the next one has its usual effect."""
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}

    def restore() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)

    def handle(*_: object) -> None:
        restore()
        stop()

    for number in before:
        signal.signal(number, handle)
    try:
        yield
    finally:
        restore()


@contextmanager
def _nothing() -> Iterator[None]:
    yield
