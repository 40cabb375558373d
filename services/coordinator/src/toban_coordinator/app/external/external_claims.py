"""ExternalWork.Claim: calls wait in line for steps of their worker type; each round reads offers, and claims for all of them in one write."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from cachetools import LRUCache

from toban_coordinator.app.definition_cache import DefinitionCache
from toban_coordinator.app.external.claim_names import check_worker, check_worker_type
from toban_coordinator.decide.external.claims import OfferedStep, hand_out
from toban_coordinator.decide.placement.fair import RoundRobin, Scope
from toban_coordinator.store.external import external_claims
from toban_coordinator.store.external.external_claims import Claim
from toban_coordinator.store.limits import limit_admin
from toban_domain.dispatches import claim_timeout_seconds, lock_ttl_ms, next_step
from toban_domain.errors import ErrorCode, TobanError
from toban_domain.job import JobSpec
from toban_domain.outcome import AttemptKey
from toban_observability import metrics
from toban_runtime.clock import Clock
from toban_store.pool import Pool
from toban_store.tx import Tx, autocommit

MAX_LIMIT = 500
MAX_WAIT_SECONDS = 30.0
# A waiting call looks this often by itself, in case a notification was lost, seconds.
LOOK_SECONDS = 1.0
# Weights of scopes are read again after this time, seconds.
WEIGHTS_SECONDS = 5.0
KEPT_TURNS = 1000
# How long a round waits whose steps were all taken by others, seconds.
TAKEN_SECONDS = 0.01

_claimed = metrics.counter(
    "toban_external_claims_total", "Steps that external workers have claimed from this coordinator."
)
_waiting = metrics.gauge(
    "toban_external_claims_waiting", "Claim calls of external workers that wait on this coordinator."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimedStep:
    """A step as its worker gets it. `timeout_seconds` 0 = none; `previous_result` is JSON, "" = nothing."""

    key: AttemptKey
    job: str
    step_id: str
    step_name: str
    payload: str
    lock_ttl_ms: int
    attempt: int
    timeout_seconds: int
    previous_result: str
    result_expected: bool
    scheduled_for: datetime


@dataclass(slots=True)
class _Call:
    worker: str
    limit: int
    until: float
    done: asyncio.Future[list[ClaimedStep]]


@dataclass(slots=True)
class _Line:
    """The calls that wait for steps of one type, whose turn it is among scopes, and the task that serves them."""

    turns: RoundRobin
    calls: deque[_Call] = field(default_factory=deque)
    woken: asyncio.Event = field(default_factory=asyncio.Event)
    task: asyncio.Task[None] | None = None

    def waiting(self) -> list[_Call]:
        """Calls whose caller has not given up."""
        while self.calls and self.calls[0].done.done():
            self.calls.popleft()
        return [call for call in self.calls if not call.done.done()]


class ExternalClaims:
    """Claims on one coordinator. `wake` is called when steps were offered."""

    def __init__(self, *, pool: Pool, clock: Clock) -> None:
        self._pool = pool
        self._clock = clock
        self._definitions = DefinitionCache()
        self._lines: dict[str, _Line] = {}
        # By worker type, also while no call waits.
        self._turns: LRUCache[str, RoundRobin] = LRUCache(KEPT_TURNS)
        self._weights: Mapping[Scope, int] = {}
        self._weights_at = -WEIGHTS_SECONDS

    def wake(self) -> None:
        """Every waiting call looks again."""
        for line in self._lines.values():
            line.woken.set()

    async def claim(self, worker: str, worker_type: str, *, limit: int, wait_seconds: float) -> list[ClaimedStep]:
        """At most `limit` steps (0 = 1), as soon as there is one; none when there is none within `wait_seconds`.

        Raises INVALID_ARGUMENT; any other TobanError when nothing was claimed, or that is unknown.
        """
        check_worker(worker)
        check_worker_type(worker_type)
        if not 0 <= limit <= MAX_LIMIT:
            raise TobanError(ErrorCode.INVALID_ARGUMENT, f"limit is {limit}; use 1 to {MAX_LIMIT}")
        if not 0 <= wait_seconds <= MAX_WAIT_SECONDS:
            raise TobanError(
                ErrorCode.INVALID_ARGUMENT, f"wait_seconds is {wait_seconds:g}; use 0 to {MAX_WAIT_SECONDS:g}"
            )
        call = _Call(
            worker, limit or 1, self._clock.monotonic() + wait_seconds, asyncio.get_running_loop().create_future()
        )
        line = self._lines.get(worker_type)
        if line is None:
            turns = self._turns[worker_type] = self._turns.get(worker_type) or RoundRobin()
            line = self._lines[worker_type] = _Line(turns)
        line.calls.append(call)
        line.woken.set()
        if line.task is None:
            line.task = asyncio.create_task(self._serve(worker_type, line), name=f"claims of {worker_type}")
        with _waiting.track_inprogress():
            return await call.done

    async def _serve(self, worker_type: str, line: _Line) -> None:
        try:
            while calls := line.waiting():
                line.woken.clear()
                try:
                    more = await self._round(worker_type, line, calls)
                except Exception as error:
                    _fail(calls, error)
                    continue
                if not more:
                    await self._pause(line)
        finally:
            line.task = None
            # Cancelled: without an answer their callers would wait for ever.
            for call in line.calls:
                call.done.cancel()
            self._lines.pop(worker_type, None)

    async def _round(self, worker_type: str, line: _Line, calls: Sequence[_Call]) -> bool:
        """Claims for `calls` in their order, and ends those whose time is over; whether to look again at once."""
        wanted = min(MAX_LIMIT, sum(call.limit for call in calls))
        async with autocommit(self._pool) as t:
            found = await external_claims.offered(t, worker_type, limit=wanted, after=line.turns.start)
            specs = await self._definitions.find(t, {(o.definition_id, o.definition_version) for o in found})
            weights = await self._scope_weights(t) if len({(o.scope, o.scope_id) for o in found}) > 1 else {}
            ordered = line.turns.order([(o.rank, (o.scope, o.scope_id), o) for o in found], weights)
            usable = [o for _, o in ordered if (o.definition_id, o.definition_version) in specs][:wanted]
            given = hand_out(usable, [call.limit for call in calls])
            claims = [_claim(o, call.worker, specs) for call, steps in zip(calls, given, strict=True) for o in steps]
            made = await external_claims.claim(t, claims) if claims else set()
        line.turns.started([(o.scope, o.scope_id) for o in usable if o.id in made], weights)
        _claimed.inc(len(made))
        now = self._clock.monotonic()
        for call, steps in zip(calls, given, strict=True):
            mine = [_step(o, specs) for o in steps if o.id in made]
            # A call whose steps another coordinator has claimed looks again.
            if (mine or (now >= call.until and not steps)) and not call.done.done():
                call.done.set_result(mine)
        if claims and not made:
            # Another transaction has them: a moment later it shows what became of them.
            await self._clock.sleep(TAKEN_SECONDS)
        return bool(claims)

    async def _pause(self, line: _Line) -> None:
        """Until steps are offered, a call comes, or one has waited for long enough."""
        waiting = line.waiting()
        if not waiting:
            return
        left = min(call.until for call in waiting) - self._clock.monotonic()
        waker = asyncio.ensure_future(line.woken.wait())
        sleeper = asyncio.ensure_future(self._clock.sleep(max(0.0, min(LOOK_SECONDS, left))))
        try:
            await asyncio.wait({waker, sleeper}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            waker.cancel()
            sleeper.cancel()

    async def _scope_weights(self, t: Tx) -> Mapping[Scope, int]:
        if self._clock.monotonic() - self._weights_at >= WEIGHTS_SECONDS:
            self._weights, self._weights_at = await limit_admin.scope_weights(t), self._clock.monotonic()
        return self._weights


def _fail(calls: Sequence[_Call], error: Exception) -> None:
    for call in calls:
        if not call.done.done():
            call.done.set_exception(error)
            # Marked as seen: its caller may have gone.
            call.done.exception()


def _key(o: OfferedStep) -> tuple[int, int]:
    return o.definition_id, o.definition_version


def _claim(o: OfferedStep, worker: str, specs: Mapping[tuple[int, int], JobSpec]) -> Claim:
    spec = specs[_key(o)]
    step = spec.steps[o.step]
    key = AttemptKey(o.id, o.token)
    return Claim(key, worker, lock_ttl_ms(step), claim_timeout_seconds(spec, step), o.step)


def _step(o: OfferedStep, specs: Mapping[tuple[int, int], JobSpec]) -> ClaimedStep:
    spec = specs[_key(o)]
    step = spec.steps[o.step]
    return ClaimedStep(
        key=AttemptKey(o.id, o.token),
        job=spec.name,
        step_id=step.id,
        step_name=step.name,
        payload=o.payload,
        lock_ttl_ms=lock_ttl_ms(step),
        attempt=o.attempt,
        timeout_seconds=claim_timeout_seconds(spec, step),
        previous_result=o.result or "",
        result_expected=spec.result_schema is not None and next_step(spec, o.step) is None,
        scheduled_for=o.scheduled_for,
    )
