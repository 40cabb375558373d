"""The program of a step `type: kubernetes`: makes the Job, watches it, passes its log on, and ends with the exit code of its container.

Usage: python -I -m toban_executor.adapters.kubernetes_step_runner, with the step as JSON on standard input.

It extends the deadline of the Job while the guard confirms the lease. When it is ended by SIGTERM, or a cancelable step is told of a cancel, it
deletes the Job and waits until no pod of it runs. After SIGKILL the executor does that (adapters/kubernetes_steps.py).
"""

from __future__ import annotations

import json
import os
import queue
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, NamedTuple

from toban_executor.adapters.job_client import JobClient, Lease, RefusedError
from toban_executor.adapters.kubernetes_client import Api, ApiError, Cluster, remove_jobs, watched
from toban_executor.adapters.kubernetes_log import PodLog
from toban_executor.adapters.step_program import CANCELED, Retry, fail, own_variables, say, write_all
from toban_executor.decide.kubernetes_job import (
    CONTAINER,
    OWNER,
    RUN,
    STEP,
    TOKEN,
    NotAllowedError,
    deadline_seconds,
    is_earlier,
    manifest,
    parse_access,
    selector,
    should_extend,
)
from toban_executor.decide.kubernetes_status import End, Pod, cannot_start, end_of, read_pod
from toban_executor.guard.clock import boottime, pause

LOG_SECONDS = 30.0
"""How long the last lines of a container that has ended are waited for."""
LEASE_SECONDS = 2.0
"""How often the guard is asked for the lease."""
POLL_SECONDS = 2.0
"""How often objects are listed that the cluster does not let the step watch."""
_LOOK_SECONDS = 0.2


class _Made(NamedTuple):
    """The Job exists."""


class _Failed(NamedTuple):
    """There is no Job, and will be none."""

    text: str


class _Jobs(NamedTuple):
    """The Job of this step, by its name; empty = it was deleted."""

    found: dict[str, dict[str, Any]]


class _Pods(NamedTuple):
    """Its pods."""

    found: list[Pod]


class _Stop(NamedTuple):
    """The step is to end."""


class Runner:
    """One step."""

    def __init__(
        self, given: Mapping[str, Any], *, namespace: str, api: Api, job: JobClient, own: Mapping[str, str]
    ) -> None:
        self._given = given
        self._step = given["kubernetes"]
        self._namespace = namespace
        self._api = api
        self._job = job
        self._own = own
        self._margin = float(given["margin"])
        self._settle = float(given["settle"])
        labels = given["labels"]
        self._ours = selector(owner=labels[OWNER], token=labels[TOKEN], step=labels[STEP])
        self._of_run = selector(owner=labels[OWNER], run=labels[RUN])
        self._events: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._stopped = threading.Event()
        self._deadline = 0
        self._lease = Lease(0.0, cancelled=False)
        # CLOCK_BOOTTIME; None until the API has shown that the Job was started.
        self._start_seen: float | None = None
        self._made_at = 0.0
        # Creates of which it is not known whether they were carried out, or will be, and until when they may.
        self._open_creates = 0
        self._settled_at = 0.0
        self._jobs: dict[str, dict[str, Any]] | None = None
        self._pods: list[Pod] = []
        self._log: PodLog | None = None
        self._told = ""

    def run(self) -> int:
        """Exit code of the step."""
        signal.signal(signal.SIGTERM, lambda _number, _frame: self._stop())
        try:
            self._lease = self._job.lease()
        except RefusedError as error:
            return fail(str(error))
        maker = self._thread(self._make)
        self._thread(self._follow_lease)
        while True:
            match self._next():
                case _Made():
                    self._begin()
                case _Failed(text=text):
                    self._stopped.set()
                    maker.join()
                    return self._end(End(1, text))
                case _Jobs(found=found):
                    self._jobs = found
                    self._note_start()
                case _Pods(found=found):
                    self._pods = found
                    self._note_pods()
                case Lease() as lease:
                    self._lease = lease
                    self._extend()
                case _Stop():
                    maker.join()
                    return self._end(End(CANCELED, "the step was ended before its container"))
            if end := self._ended():
                return self._end(end)

    def _next(self) -> Any:
        try:
            return self._events.get(timeout=1.0)
        except queue.Empty:
            return None

    def _stop(self) -> None:
        self._stopped.set()
        self._events.put(_Stop())

    def _thread(self, work: Callable[..., None], *given: Any) -> threading.Thread:
        def guarded() -> None:
            try:
                work(*given)
            except Exception as error:
                # The step would wait for what this thread was to say.
                self._events.put(_Failed(f"{type(error).__name__}: {error}"))

        thread = threading.Thread(target=guarded, daemon=True)
        thread.start()
        return thread

    # ---- the Job

    def _make(self) -> None:
        """Remove what earlier attempts of the run have left, then make the Job."""
        try:
            self._persist(self._remove_earlier, until=self._stopped.is_set)
            self._persist(self._create, until=self._stopped.is_set)
        except ApiError as error:
            self._events.put(_Failed(f"the cluster refused the Job: {error}"))

    def _remove_earlier(self) -> None:
        token = int(self._given["labels"][TOKEN])
        earlier = partial(is_earlier, token=token)
        told: list[str] = []
        for left in self._left(self._of_run, only=earlier):
            if left != told:
                told = left
                say(f"waits for the end of an earlier attempt: {', '.join(left)}")
            if self._stopped.is_set():
                return

    def _create(self) -> None:
        while self._lease.is_over(now := boottime()) and not self._stopped.is_set():
            # This process was frozen, or the guard is about to end it.
            pause(_LOOK_SECONDS)
        if self._stopped.is_set():
            return
        self._deadline = deadline_seconds(started=now, now=now, lease_until=self._lease.until, margin=self._margin)
        body = manifest(self._given, own=self._own, deadline=self._deadline)
        name = self._given["name"]
        try:
            self._api.create_job(self._namespace, body)
            say(f"Job {self._namespace}/{name} created")
        except ApiError as error:
            if error.status != 409:
                if error.is_open:
                    self._open_creates += 1
                    self._settled_at = boottime() + self._settle
                raise
            # The response to an earlier try was lost, or the name belongs to something else.
            found = self._api.job(self._namespace, name)
            if found is None:
                raise ApiError(f"Job {name} was there and is gone") from None
            # The cluster may have added some.
            if not self._given["labels"].items() <= (found["metadata"].get("labels") or {}).items():
                text = f"Job {self._namespace}/{name} exists and is not of this attempt; remove it, or set SCHEDULER_KUBERNETES_OWNER"
                raise ApiError(text, error.status) from None
            self._deadline = int(found["spec"].get("activeDeadlineSeconds", self._deadline))
            self._open_creates -= 1
            say(f"Job {self._namespace}/{name} was created by a request whose response was lost")
        self._events.put(_Made())

    def _begin(self) -> None:
        self._made_at = boottime()
        for kind, event in (("jobs", _Jobs), ("pods", lambda found: _Pods([read_pod(one) for one in found.values()]))):
            self._thread(self._watch, kind, event)

    def _watch(self, kind: str, event: Callable[[dict[str, dict[str, Any]]], Any]) -> None:
        retry = Retry(f"watch of {kind}", explain=partial(self._explained, kind))
        refused = partial(self._poll, kind, [])
        try:
            for found in watched(self._api, kind, self._namespace, self._ours, retry=retry, refused=refused):
                retry.succeeded()
                self._events.put(event(found))
        except ApiError as error:
            self._events.put(_Failed(self._refusal("list", kind, error)))

    def _explained(self, kind: str, error: Any) -> str:
        """A refused list ends no pod: the step goes on, and its Job too, whose deadline is extended where that is permitted."""
        refused = isinstance(error, ApiError) and not error.is_transient
        return f"{self._refusal('list', kind, error)}; the step goes on" if refused else str(error)

    def _poll(self, kind: str, told: list[str], error: ApiError) -> None:
        if not told:
            told.append(kind)
            say(f"{self._refusal('watch', kind, error)}; they are listed every {POLL_SECONDS:g} s instead")
        pause(POLL_SECONDS)

    def _refusal(self, verb: str, kind: str, error: ApiError) -> str:
        return (
            f"the cluster refuses to {verb} {kind} in namespace {self._namespace}: {error}; "
            f"give the executor's service account the verb {verb!r} for {kind} there"
        )

    def _note_start(self) -> None:
        started = any(job.get("status", {}).get("startTime") for job in (self._jobs or {}).values())
        if started and self._start_seen is None:
            self._start_seen = boottime()

    # ---- the lease

    def _follow_lease(self) -> None:
        while True:
            try:
                lease = self._job.lease()
                self._events.put(lease)
                if not self._given["cancelable"]:
                    # It ends by itself, or by SIGTERM: at its timeout, or when an operator kills the run.
                    pause(LEASE_SECONDS)
                elif lease.cancelled or self._job.listen(LEASE_SECONDS):
                    say("the run was cancelled")
                    self._stop()
                    return
            except RefusedError as error:
                if self._made_at:
                    say(f"the deadline of the Job is not extended any more: {error}")
                else:
                    self._events.put(_Failed(str(error)))
                return

    def _extend(self) -> None:
        """Nothing is extended once the lease has ended: the Job then ends by itself."""
        lease, now = self._lease, boottime()
        if self._start_seen is None or lease.is_over(now):
            return
        wanted = deadline_seconds(started=self._start_seen, now=now, lease_until=lease.until, margin=self._margin)
        if not should_extend(self._deadline, wanted, self._margin):
            return
        try:
            self._api.set_deadline(self._namespace, self._given["name"], wanted)
            self._deadline = wanted
        except ApiError as error:
            say(f"the deadline of the Job could not be extended, which is tried again: {error}")

    # ---- its pods

    def _note_pods(self) -> None:
        for pod in self._pods:
            if pod.started and self._log is None:
                say(f"pod {pod.name} runs" + (f" on node {pod.node}" if pod.node else ""))
                self._log = PodLog(
                    self._api,
                    namespace=self._namespace,
                    pod=pod.name,
                    container=CONTAINER,
                    write=lambda line: write_all(1, line + b"\n"),
                    retry=Retry("log"),
                )
            elif not pod.started and pod.waits and pod.waits != self._told:
                self._told = pod.waits
                say(f"pod {pod.name} waits: {pod.waits}")

    def _ended(self) -> End | None:
        if self._jobs is None:
            return None
        job = next(iter(self._jobs.values()), None)
        memory = self._step.get("limits", {}).get("memory_mb", 0)
        if end := end_of(job, self._pods, memory_mb=memory):
            # The two watches do not keep step: what a Job ends with shows in its pods, and why a pod ended in its Job.
            return self._look_again(end, memory)
        waited = boottime() - self._made_at
        if why := cannot_start(self._pods, waited=waited, limit=self._step.get("start_timeout_seconds", 600)):
            return End(1, why)
        return None

    def _look_again(self, end: End, memory: int) -> End:
        try:
            job = self._api.job(self._namespace, self._given["name"])
            items, _version = self._api.listed("pods", self._namespace, self._ours)
        except ApiError:
            return end
        self._pods = [read_pod(item) for item in items] or self._pods
        self._note_pods()
        return end_of(job, self._pods, memory_mb=memory) or end

    # ---- the end

    def _end(self, end: End) -> int:
        """The log is taken first where the container has ended by itself; a container that is to end writes while its Job is deleted."""
        itself = all(pod.is_over for pod in self._pods)
        if itself:
            self._finish_log()
        try:
            self._persist(self._remove)
        except ApiError as error:
            say(f"the Job could not be deleted, which the executor tries on: {error}")
        else:
            if not itself:
                self._finish_log()
        return fail(end.text, end.exit_code) if end.text else end.exit_code

    def _finish_log(self) -> None:
        if self._log is not None and not self._log.finish(LOG_SECONDS):
            say(f"the log of the pod may lack its last lines: the API did not give them within {LOG_SECONDS:g} s")

    def _left(self, wanted: str, *, only: Callable[[Mapping[str, str]], bool] | None = None) -> Iterator[list[str]]:
        """Delete Jobs until nothing of them runs; what is left, at each look."""
        while left := remove_jobs(self._api, tuple(self._given["namespaces"]), wanted, only=only):
            yield [one.text for one in left]
            pause(_LOOK_SECONDS)

    def _remove(self) -> None:
        """Until nothing of the step runs, nor can: a create without a response may still be carried out."""
        told = False
        while True:
            for _left in self._left(self._ours):
                pass
            if self._open_creates <= 0 or boottime() > self._settled_at:
                return
            if not told:
                told = True
                say(f"a request for the Job has had no response: the API may carry it out for {self._settle:g} s")
            pause(1.0)

    def _persist(self, work: Callable[[], object], *, until: Callable[[], bool] = lambda: False) -> None:
        """Until the API has carried it out, or `until` says so after a failure. Raises ApiError for what will not change."""
        retry = Retry("request")
        while True:
            try:
                work()
                return
            except ApiError as error:
                if until():
                    return
                if not error.is_transient:
                    raise
                retry(error)


def main(given: Mapping[str, Any], environ: Mapping[str, str]) -> int:
    """Exit code of the step."""
    try:
        namespace = parse_access(**given["access"]).namespace(given["kubernetes"])
    except NotAllowedError as error:
        return fail(str(error))
    return Runner(
        given,
        namespace=namespace,
        api=Api(Cluster(**given["cluster"])),
        job=JobClient(environ.get("TOBAN_SOCKET", "")),
        own=own_variables(environ),
    ).run()


if __name__ == "__main__":
    code = main(json.load(sys.stdin), os.environ)
    # Threads may still wait for the API.
    os._exit(code)
