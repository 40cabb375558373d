"""`AsyncClient`: the REST interface in an event loop, with the methods of `toban.client.Client`. Needs `pip install toban[async]`."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Self, cast

from toban.client.async_transport import AsyncTransport
from toban.client.calls import RETRY_SECONDS, Calls, pairs, run_of, stated_pairs, time_text
from toban.client.models import (
    AppliedManifest,
    Emitted,
    Event,
    EventTrigger,
    Job,
    LogLine,
    Run,
    RunState,
    Schedule,
    StartedRun,
    list_of,
)
from toban.client.streams import follow_output, read_output, wait_for_run
from toban.client.target import Target


class AsyncClient:
    """A client of one site, for one event loop. An asynchronous context manager; outside of one, `close` it.

    Without arguments it uses TOBAN_URL and TOBAN_TOKEN, else the current context of `toban login`. `retry_seconds` is how long a call
    may wait in all, seconds, for a site that is away or has no room. Such a call is repeated only where that has no second effect.
    Redirects are never followed. What the site or the connection refuses is a `toban.errors.TobanError`, and what cannot be sent
    (a time without a zone, an empty name, what is no JSON) a ValueError or TypeError. The constructor raises ConfigError.
    """

    def __init__(self, target: Target | None = None, *, retry_seconds: float = RETRY_SECONDS) -> None:
        self.target = target or Target.from_env()
        self._transport = self._connect()
        self._calls = Calls(retry_seconds)
        self.runs = Runs(self._transport, self._calls)
        self.jobs = Jobs(self._transport, self._calls)
        self.schedules = Schedules(self._transport, self._calls)
        self.triggers = Triggers(self._transport, self._calls)
        self.events = Events(self._transport, self._calls)

    async def apply(
        self, manifests: Mapping[str, Any] | Iterable[Mapping[str, Any]], *, dry_run: bool = False
    ) -> list[AppliedManifest]:
        """Creates or changes jobs, schedules and triggers: all of them or none. `dry_run` says what would change.

        One manifest or several, each as in a file of `toban apply`, or the `manifest` of a Job, Schedule or EventTrigger.
        `expect_version` in it (0 = create only) makes another version a ConflictError.
        Raises InvalidRequestError, whose `mistakes` have the path of each.
        """
        return await self._transport.run(self._calls.apply(manifests, dry_run))

    async def call(self, method: str, path: str, body: Mapping[str, Any] | None = None, **query: Any) -> Any:
        """A call of any other route of docs/rest.md: `client.call("GET", "/executors")`. Only GET is repeated."""
        return await self._transport.run(self._calls.any(method, path, body, stated_pairs(query)))

    async def close(self) -> None:
        """Closes kept connections."""
        await self._transport.close()

    def _connect(self) -> AsyncTransport:
        return AsyncTransport(self.target)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


class _Group:
    def __init__(self, transport: AsyncTransport, calls: Calls) -> None:
        self._transport = transport
        self._calls = calls


class Runs(_Group):
    """Runs of jobs."""

    async def start(
        self,
        job: str,
        payload: Mapping[str, Any] | None = None,
        *,
        idempotency_key: str = "",
        scheduled_for: datetime | None = None,
        priority: int | None = None,
        scope: str | None = None,
        scope_id: str | None = None,
        reason: str | None = None,
    ) -> StartedRun:
        """Starts a run; with a key that a run has, it answers that run. Retries start no second one.

        `scheduled_for` (with a zone) is when it becomes due. Raises NotFoundError, InvalidRequestError for a payload that does not fit,
        and ConflictError for a disabled job.
        """
        fields = {
            "payload": dict(payload or {}),
            "scheduled_for": scheduled_for,
            "priority": priority,
            "scope": scope,
            "scope_id": scope_id,
            "reason": reason,
        }
        return await self._transport.run(self._calls.start(job, fields, idempotency_key))

    async def start_many(self, runs: Iterable[Mapping[str, Any]]) -> Sequence[StartedRun]:
        """Starts several runs in one call, all or none; at most 5000, and 2 MiB as JSON. They are in the order given.

        Each is a dict with `job`, and `payload` or other arguments of `start` but for `reason`. Raises what `start` raises.
        """
        return await self._transport.run(self._calls.start_many(runs))

    async def get(self, run_id: int) -> Run:
        """A run as it is now. Raises NotFoundError."""
        return await self._transport.run(self._calls.get(Run.from_json, "runs", run_id))

    def list(
        self,
        *,
        job: str = "",
        schedule: str = "",
        state: RunState | Sequence[RunState] = (),
        label: Mapping[str, str] | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        ahead: bool = False,
        idempotency_key: str = "",
        limit: int = 0,
    ) -> AsyncIterator[Run]:
        """Runs, newest first, page by page as they are read; `limit` = only so many, 0 = all of them. Times need a zone.

        Runs that are not due yet are left out unless `ahead` is true. `idempotency_key` finds the run of `job` that was started with it.
        """
        query = pairs(job=job, schedule=schedule, state=state, label=label or {}, since=since, until=until, ahead=ahead)
        query += pairs(idempotency_key=idempotency_key)
        found = self._calls.pages(list_of(Run, "runs"), "runs", query=query, limit=limit)
        return cast(AsyncIterator[Run], self._transport.iterate(found))

    async def wait(self, run_id: int, *, timeout: float | None = None) -> Run:
        """The run when it has ended, however: `.check()` of it raises when it has not succeeded.

        `timeout` is in seconds; the last look at the run may take a second more. Raises WaitTimeoutError (the run goes on), and
        UnavailableError when the site stays away.
        """
        return await self._transport.run(wait_for_run(self._calls, run_id, timeout))

    async def cancel(self, run_id: int, *, reason: str = "") -> Run:
        """Asks the run to stop, as its job defines. Raises ConflictError when it has ended, or its job cannot be cancelled."""
        return await self._cancel(run_id, reason, "")

    async def kill(self, run_id: int, *, reason: str = "") -> Run:
        """Ends the run whatever its job defines: SIGTERM at once, SIGKILL later. Raises ConflictError when it has ended."""
        return await self._cancel(run_id, reason, "kill")

    def logs(self, run_id: int, *, tail: int = 0, grep: str = "", level: str = "") -> AsyncIterator[LogLine]:
        """The stored output, oldest line first. `tail` = only so many last lines; 0 = all."""
        found = read_output(run_id, pairs(tail=tail or None, grep=grep, level=level))
        return cast(AsyncIterator[LogLine], self._transport.iterate(found))

    def follow(self, run_id: int, *, after: str = "") -> AsyncIterator[LogLine]:
        """The output as it comes, without terminal codes, until the run has ended; begins after a `LogLine.position`.

        It goes on after a restart of the site. Raises UnavailableError when that takes longer than `retry_seconds`; no line is lost or
        repeated when you follow again after the last one. Raises OutputIncompleteError, with the `position` of the last line, when the run
        has ended and the end of its output has not arrived at the site.
        """
        return cast(AsyncIterator[LogLine], self._transport.iterate(follow_output(self._calls, run_id, after)))

    async def _cancel(self, run_id: int, reason: str, mode: str) -> Run:
        body = {"reason": reason, "mode": mode}
        return await self._transport.run(self._calls.post(run_of, "runs", run_id, "cancel", body=body))


class Jobs(_Group):
    """Definitions of jobs. `Client.apply` changes them."""

    async def get(self, name: str) -> Job:
        """A job. Raises NotFoundError."""
        return await self._transport.run(self._calls.get(Job.from_json, "jobs", name))

    def list(self, *, limit: int = 0) -> AsyncIterator[Job]:
        """Jobs by name; 0 = all of them."""
        found = self._calls.pages(list_of(Job, "jobs"), "jobs", query=(), limit=limit)
        return cast(AsyncIterator[Job], self._transport.iterate(found))


class Schedules(_Group):
    """Schedules of jobs. `Client.apply` changes them."""

    async def get(self, name: str) -> Schedule:
        """A schedule. Raises NotFoundError."""
        return await self._transport.run(self._calls.get(Schedule.from_json, "schedules", name))

    def list(self, *, job: str = "", limit: int = 0) -> AsyncIterator[Schedule]:
        """Schedules by name; 0 = all of them."""
        query = pairs(job=job)
        found = self._calls.pages(list_of(Schedule, "schedules"), "schedules", query=query, limit=limit)
        return cast(AsyncIterator[Schedule], self._transport.iterate(found))

    async def pause(self, name: str, *, until: datetime | None = None, reason: str = "") -> Schedule:
        """No more runs until it is resumed. With `until` (a time with a zone) the leader resumes it then."""
        body = {"reason": reason} | ({"until": time_text(until)} if until else {})
        return await self._transport.run(self._calls.post(Schedule.from_json, "schedules", name, "pause", body=body))

    async def resume(self, name: str, *, reason: str = "") -> Schedule:
        """Runs again, from its next slot on."""
        body = {"reason": reason}
        return await self._transport.run(self._calls.post(Schedule.from_json, "schedules", name, "resume", body=body))


class Triggers(_Group):
    """Triggers: jobs that events start. `Client.apply` changes them."""

    async def get(self, name: str) -> EventTrigger:
        """A trigger. Raises NotFoundError."""
        return await self._transport.run(self._calls.get(EventTrigger.from_json, "triggers", name))

    def list(self, *, job: str = "", event_type: str = "", limit: int = 0) -> AsyncIterator[EventTrigger]:
        """Triggers by name; 0 = all of them."""
        query = pairs(job=job, event_type=event_type)
        found = self._calls.pages(list_of(EventTrigger, "triggers"), "triggers", query=query, limit=limit)
        return cast(AsyncIterator[EventTrigger], self._transport.iterate(found))


class Events(_Group):
    """Events of applications."""

    async def emit(self, event_type: str, payload: Mapping[str, Any] | None = None, *, dedupe_key: str = "") -> Emitted:
        """Stores an event. With a key it is repeated until it is stored, and counts once; without one it is sent once only.

        Raises OutcomeUnknownError when it may have been stored. To emit in a transaction of your database: `toban.events`.
        """
        return await self._transport.run(self._calls.emit(event_type, payload, dedupe_key))

    def list(self, *, event_type: str = "", unprocessed: bool = False, limit: int = 0) -> AsyncIterator[Event]:
        """Events, newest first; `limit` = only so many, 0 = all of them."""
        query = pairs(event_type=event_type, unprocessed=unprocessed)
        found = self._calls.pages(list_of(Event, "events"), "events", query=query, limit=limit)
        return cast(AsyncIterator[Event], self._transport.iterate(found))
