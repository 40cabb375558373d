"""Runs on demand, a batch in one statement."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from cachetools import LRUCache

from toban_coordinator.app.cluster.audit_log import run_numbers
from toban_coordinator.app.definition_cache import DefinitionCache
from toban_coordinator.app.large_payload import with_large_checks
from toban_coordinator.app.metrics import submitted
from toban_coordinator.app.named_objects import not_found
from toban_coordinator.app.payload_validator import PayloadValidator
from toban_coordinator.app.placement.fast_path import CurrentFastPath
from toban_coordinator.app.secrets.secret_values import check_start
from toban_coordinator.decide.runs.start_runs import refusal
from toban_coordinator.store.cluster import audit
from toban_coordinator.store.definitions import jobs
from toban_coordinator.store.limits import breakers
from toban_coordinator.store.runs import reruns, run_traces, runs
from toban_domain.concurrency import DEFAULT_SCOPE, ONCE, SCOPES
from toban_domain.errors import ErrorCode, TobanError
from toban_domain.job import JobSpec
from toban_domain.payload import canonical_json, parse_payload
from toban_domain.redacted import unmasked
from toban_domain.traceparent import TraceContext
from toban_observability import tracing
from toban_observability.logs import get_logger
from toban_store.errors import Refused, StoreError
from toban_store.pool import Pool
from toban_store.tx import Tx, autocommit, tx

MAX_RUNS = 5000
MAX_KEY = 200
# Definitions whose heads are kept, and how often a call looks them up again when they change under it.
KEPT_HEADS = 10_000
LOOK_UPS = 3
# The index that allows one live run of a group under policy reject_same_scope.
CLAIMED = "runs_live_claimed"
# What a definition, or what is done with it, can refuse.
_OF_DEFINITION = frozenset(
    {
        ErrorCode.PAYLOAD_INVALID,
        ErrorCode.PAYLOAD_TOO_LARGE,
        ErrorCode.INVALID_ARGUMENT,
        ErrorCode.SECRET_NOT_FOUND,
        ErrorCode.NOT_REPEATABLE,
        ErrorCode.DUPLICATE_SCOPE,
        ErrorCode.CONFLICT,
    }
)
_log = get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRequest:
    """A run that a caller asks for. `payload_json` is merged over the job's default payload, "" = nothing given.

    `scheduled_for` None = now; `priority` 0 = the job's; `idempotency_key` "" = none; `scope` "" = system. `ignore_limits`: it starts
    whatever limits and breakers say.
    """

    job: str
    payload_json: str = ""
    scheduled_for: datetime | None = None
    priority: int = 0
    idempotency_key: str = ""
    scope: str = ""
    scope_id: str = ""
    ignore_limits: bool = False
    rerun: Rerun | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Rerun:
    """The run that a new one repeats, for `reason`. `version` is that of its definition; None = the current one.

    `first_step` is the index of the step with which the new run begins, and `step_id` the id of that; 0 = the whole run.
    """

    run_id: int
    definition_id: int
    version: int | None
    reason: str = ""
    first_step: int = 0
    step_id: str = ""


@dataclass(frozen=True, slots=True)
class StartedRun:
    """The run of one request; `created` is False when its idempotency key named a run already."""

    run_id: int
    created: bool


class _KeyOfOtherJob(Exception):
    """A run of another job has taken a key at this moment."""


@dataclass(frozen=True, slots=True)
class _Note:
    """What the audit says about a call beside its runs."""

    action: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StartRuns:
    """Checks and enqueues. All runs of a call are made, or none."""

    pool: Pool
    definitions: DefinitionCache
    payloads: PayloadValidator
    fast_path: CurrentFastPath
    # As last seen; `enqueue` makes nothing from one that has changed since.
    heads: LRUCache[str, jobs.Head] = field(default_factory=lambda: LRUCache(KEPT_HEADS))

    async def start(
        self, wanted: Sequence[RunRequest], actor: str, *, reason: str = "", noted: str = "run.start"
    ) -> list[StartedRun]:
        """The audit gets one row of action `noted` for all of them; "" = the caller writes one.

        Raises JOB_NOT_FOUND, JOB_DISABLED, PAYLOAD_INVALID, PAYLOAD_TOO_LARGE, CONFLICT (a rerun whose job was
        deleted and made again), INVALID_ARGUMENT (time, scope), SECRET_NOT_FOUND, NOT_REPEATABLE,
        DUPLICATE_SCOPE (policy reject_same_scope, and a live run has the same dedupe keys)."""
        if len(wanted) > MAX_RUNS:
            raise TobanError(ErrorCode.INVALID_ARGUMENT, f"{len(wanted)} runs in one call, the limit is {MAX_RUNS}")
        if not wanted:
            return []
        return await with_large_checks(lambda: self._start(wanted, actor, _Note(noted, audit.clean_reason(reason))))

    async def _start(self, wanted: Sequence[RunRequest], actor: str, note: _Note) -> list[StartedRun]:
        kept = {run.job: head for run in wanted if (head := self.heads.get(run.job)) is not None}
        try:
            return await self._start_known(wanted, actor, note)
        except TobanError as error:
            # What is kept of a job may be an earlier version, whose schema and secrets say nothing any more.
            if error.code not in _OF_DEFINITION or not await self._forget_changed(kept):
                raise
        return await self._start_known(wanted, actor, note)

    async def _forget_changed(self, kept: Mapping[str, jobs.Head]) -> bool:
        """Forgets what has changed since it was looked up; whether there was any."""
        if not kept:
            return False
        async with autocommit(self.pool) as t:
            found = await jobs.heads(t, list(kept))
        changed = [name for name, head in kept.items() if found.get(name) != head]
        for name in changed:
            self.heads.pop(name, None)
        return bool(changed)

    async def _start_known(self, wanted: Sequence[RunRequest], actor: str, note: _Note) -> list[StartedRun]:
        with suppress(_KeyOfOtherJob):
            return await self._make(wanted, actor, note)
        # Which job has it can be seen now.
        return await self._make(wanted, actor, note)

    async def _make(self, wanted: Sequence[RunRequest], actor: str, note: _Note) -> list[StartedRun]:
        origin = tracing.current()
        ignoring = any(run.ignore_limits for run in wanted)
        repeating = any(run.rerun for run in wanted)
        if not ignoring and not repeating and (placed := await self._place(wanted, actor, note.reason)) is not None:
            submitted.labels("demand").inc(len(placed))
            if origin is not None:
                await self._keep_origin(placed, origin)
            return [StartedRun(run, True) for run in placed]
        # Without keys one statement writes everything; with keys a later check may still refuse the whole call.
        opened = tx if origin or ignoring or repeating or any(run.idempotency_key for run in wanted) else autocommit
        try:
            async with opened(self.pool) as t:
                new, made = await self._enqueue(t, wanted, actor, note)
                earlier = await _runs_of_keys(t, wanted, new, made)
                if origin is not None:
                    await run_traces.keep(t, [one.id for one in made if one.created], origin)
                if repeating:
                    await _note_reruns(t, wanted, made, actor)
                if ignoring:
                    pairs = zip(wanted, made, strict=True)
                    ids = [one.id for run, one in pairs if run.ignore_limits and one.created]
                    await _ignore_limits(t, ids, reason=note.reason, actor=actor)
        except Refused as error:
            if error.constraint != CLAIMED:
                raise
            # Another call was quicker by a moment: its run is there now.
            async with autocommit(self.pool) as t:
                await self._enqueue(t, wanted, actor, note, make=False)
            raise TobanError(ErrorCode.CONFLICT, "another run of the same scope has just ended; try again") from None
        again = sum(one.created for run, one in zip(wanted, made, strict=True) if run.rerun)
        submitted.labels("rerun").inc(again)
        submitted.labels("demand").inc(sum(one.created for one in made) - again)
        return [
            StartedRun(one.id if one.created else earlier[run.job, run.key], one.created)
            for run, one in zip(new, made, strict=True)
        ]

    async def _place(self, wanted: Sequence[RunRequest], actor: str, reason: str) -> list[int] | None:
        """The fast path, for definitions that are in memory: the write checks that they are still the current ones."""
        names = {run.job for run in wanted}
        heads = {name: head for name in names if (head := self.heads.get(name)) is not None}
        if not self.fast_path.accepts(len(wanted)) or len(heads) < len(names):
            return None
        specs: dict[tuple[int, int], JobSpec] = {}
        for head in heads.values():
            spec = self.definitions.known((head.id, head.version))
            if spec is None or spec.secrets:
                # What the job needs beside its payload is checked on the way through the queue.
                return None
            specs[head.id, head.version] = spec
        new = [self._new(run, heads[run.job], specs) for run in wanted]
        return await self.fast_path.place(new, specs, actor=actor, reason=reason)

    async def _keep_origin(self, made: Sequence[int], origin: TraceContext) -> None:
        """For their later attempts; the first one has it already. The runs exist: no failure here may have the caller ask for them again."""
        try:
            async with autocommit(self.pool) as t:
                await run_traces.keep(t, made, origin)
        except StoreError as error:
            _log.warning(
                "cannot store trace origins; later attempts will not be in their callers' traces",
                runs=len(made),
                error=error.message,
            )

    async def _enqueue(
        self, t: Tx, wanted: Sequence[RunRequest], actor: str, note: _Note, *, make: bool = True
    ) -> tuple[list[runs.NewRun], list[runs.Enqueued]]:
        await _check_times(t, wanted)
        names = sorted({run.job for run in wanted})
        for _ in range(LOOK_UPS):
            heads = {name: head for name in names if (head := self.heads.get(name)) is not None}
            heads |= await self._look_up(t, [name for name in names if name not in heads])
            wanted_heads = [_head(run, heads[run.job]) for run in wanted]
            specs = {key: await self.definitions.get(t, key) for key in {(h.id, h.version) for h in wanted_heads}}
            new = [self._new(run, head, specs) for run, head in zip(wanted, wanted_heads, strict=True)]
            await _refuse_same_scope(t, new)
            await _refuse_repeated(t, new)
            await check_start(t, specs.values())
            if not make:
                return new, []
            if made := await runs.enqueue(t, new, actor=actor, noted=note.action, reason=note.reason):
                return new, made
            for name in names:
                self.heads.pop(name, None)
        raise TobanError(ErrorCode.CONFLICT, f"the definitions of {', '.join(names)} are being changed; try again")

    async def _look_up(self, t: Tx, names: Sequence[str]) -> dict[str, jobs.Head]:
        """The heads of `names`, which are kept. Raises JOB_NOT_FOUND, JOB_DISABLED."""
        if not names:
            return {}
        found = await jobs.heads(t, names)
        for name in names:
            if name not in found:
                raise await not_found(t, "job", name)
            if not found[name].enabled:
                why = found[name].disabled_why
                remedy = (
                    f"press “Enable” on the page of the job, or enter `toban job enable {name}`"
                    if why
                    else "apply it with `enabled: true`"
                )
                raise TobanError(ErrorCode.JOB_DISABLED, f"job {name!r} is disabled{why}; {remedy}")
        self.heads.update(found)
        return found

    def _new(self, run: RunRequest, head: jobs.Head, specs: Mapping[tuple[int, int], JobSpec]) -> runs.NewRun:
        key = (head.id, head.version)
        spec = specs[key]
        if len(run.idempotency_key) > MAX_KEY or "\0" in run.idempotency_key:
            raise TobanError(ErrorCode.INVALID_ARGUMENT, f"idempotency_key has more than {MAX_KEY} characters or a NUL")
        payload = self.payloads.make(key, spec, _given(run, spec) if run.payload_json else {})
        scope, scope_id = _scope(run)
        return runs.NewRun(
            definition_id=head.id,
            version=head.version,
            job=run.job,
            payload=payload,
            scope=scope,
            scope_id=scope_id,
            group=spec.concurrency.group(payload, scope=scope, scope_id=scope_id, schedule_id=None),
            claims=spec.concurrency.policy == "reject_same_scope",
            scheduled_for=run.scheduled_for,
            priority=run.priority or spec.priority,
            max_attempts=spec.retry.max_attempts,
            max_lost=spec.max_lost,
            timeout_seconds=spec.timeout_seconds,
            key=run.idempotency_key,
            place=tracing.current(),
            rerun_of=run.rerun.run_id if run.rerun else None,
        )


def _given(run: RunRequest, spec: JobSpec) -> Mapping[str, Any]:
    """What the caller gave; a mask keeps the value of the default payload, which is what callers see of it."""
    given, names = parse_payload(run.payload_json), spec.logs.redact
    return unmasked(given, spec.default_payload, names, names, "payload") if names else given


def _head(run: RunRequest, current: jobs.Head) -> jobs.Head:
    """The definition that a run is made from."""
    if run.rerun is None or run.rerun.version is None:
        return current
    if run.rerun.definition_id != current.id:
        raise TobanError(
            ErrorCode.CONFLICT,
            f"job {run.job!r} was deleted and made again since run {run.rerun.run_id}; repeat that run with the latest definition",
        )
    return jobs.Head(current.id, run.rerun.version, current.enabled)


async def _note_reruns(t: Tx, wanted: Sequence[RunRequest], made: Sequence[runs.Enqueued], actor: str) -> None:
    repeated = [
        reruns.Repeated(run.rerun.run_id, one.id, run.rerun.reason)
        for run, one in zip(wanted, made, strict=True)
        if run.rerun and one.created
    ]
    if repeated:
        await reruns.note(t, repeated, actor=actor)
    for run, one in zip(wanted, made, strict=True):
        if run.rerun and run.rerun.first_step and one.created:
            await _begin_at_step(t, run.job, run.rerun, one.id, actor)


async def _begin_at_step(t: Tx, job: str, rerun: Rerun, run_id: int, actor: str) -> None:
    """The run begins with a later step, which its row of the audit names. Other runs have theirs from the statement that makes them."""
    await reruns.begin_at_step(t, run_id, rerun.first_step, rerun.step_id, actor=actor)
    before, after = {"run": rerun.run_id}, {"jobs": [job], "from_step": rerun.step_id}
    await audit.note(t, actor, "run.rerun", f"run {run_id}", rerun.reason, before=before, after=after)


async def _ignore_limits(t: Tx, ids: Sequence[int], *, reason: str, actor: str) -> None:
    """These runs start whatever their limits say; the audit log names them."""
    await breakers.ignore_limits(t, ids)
    if ids:
        target, after = run_numbers(ids)
        await audit.note(t, actor, "ignore_limits", target, reason, after=after)


def _scope(run: RunRequest) -> tuple[str, str]:
    scope = run.scope or DEFAULT_SCOPE[0]
    if scope not in SCOPES:
        raise TobanError(ErrorCode.INVALID_ARGUMENT, f"scope is {scope[:60]!r}; use one of {', '.join(SCOPES)}")
    if len(run.scope_id) > MAX_KEY or "\0" in run.scope_id:
        raise TobanError(ErrorCode.INVALID_ARGUMENT, f"scope_id has more than {MAX_KEY} characters or a NUL")
    return scope, run.scope_id


async def _refuse_same_scope(t: Tx, new: Sequence[runs.NewRun]) -> None:
    """Raises DUPLICATE_SCOPE when a live run, or another run of this call, has claimed the group of one of `new`."""
    seen: set[tuple[int, str]] = set()
    for run in new:
        if not run.claims or run.group is None:
            continue
        live = await runs.claimant(t, run.definition_id, run.group)
        if live is not None and run.key and await runs.by_keys(t, [(run.job, run.key)]):
            # Asked for again: the answer names the run of that key.
            continue
        if live is not None or (run.definition_id, run.group) in seen:
            which = f"run {live} of job {run.job!r} is live" if live is not None else "two runs of this call are"
            raise TobanError(
                ErrorCode.DUPLICATE_SCOPE,
                f"{which} with the same dedupe keys ({run.group.partition(':')[2]}); wait for its end, or cancel it",
                detail={"run_id": live, "job": run.job},
            )
        seen.add((run.definition_id, run.group))


async def _refuse_repeated(t: Tx, new: Sequence[runs.NewRun]) -> None:
    """Raises NOT_REPEATABLE when a run of the same keys has SUCCEEDED, of a job with repeatable: false."""
    for run in new:
        if run.group is None or not run.group.startswith(ONCE):
            continue
        done = await runs.succeeded(t, run.definition_id, run.group)
        if done is None or (run.key and await runs.by_keys(t, [(run.job, run.key)])):
            continue
        raise TobanError(
            ErrorCode.NOT_REPEATABLE,
            f"run {done} of job {run.job!r} has SUCCEEDED with the same dedupe keys ({run.group.removeprefix(ONCE)}), and the job has "
            "repeatable: false; give other values, or apply it with repeatable: true",
            detail={"run_id": done, "job": run.job},
        )


async def _check_times(t: Tx, wanted: Sequence[RunRequest]) -> None:
    """Refuses times that are past or too far ahead, but not for keys that were used: asking again stays harmless however late."""
    timed = [(run, run.scheduled_for) for run in wanted if run.scheduled_for is not None]
    if not timed:
        return
    now = await jobs.server_now(t)
    wrong = [(run, why) for run, at in timed if (why := refusal(at, now))]
    keys = {
        (run.job, run.idempotency_key) for run, _ in wrong if run.idempotency_key and "\0" not in run.idempotency_key
    }
    known = await runs.by_keys(t, keys) if keys else {}
    for run, why in wrong:
        if (run.job, run.idempotency_key) not in known:
            raise TobanError(ErrorCode.INVALID_ARGUMENT, f"a run of job {run.job!r}: {why}")


async def _runs_of_keys(
    t: Tx, wanted: Sequence[RunRequest], new: Sequence[runs.NewRun], made: Sequence[runs.Enqueued]
) -> dict[tuple[str, str], int]:
    """The runs of keys that were taken, by job and key. Raises _KeyOfOtherJob, and CONFLICT for another payload."""
    taken = [(asked, run) for asked, run, one in zip(wanted, new, made, strict=True) if not one.created]
    if not taken:
        return {}
    keys = {(run.job, run.key) for _, run in taken}
    found = await runs.by_keys(t, keys)
    if len(found) < len(keys):
        raise _KeyOfOtherJob
    again = [
        runs.AskedAgain(found[run.job, run.key], run.version, run.payload, _given_part(asked, run))
        for asked, run in taken
    ]
    if (other := await runs.other_payload(t, again)) is not None:
        key = next(key for (_, key), run_id in found.items() if run_id == other)
        raise TobanError(
            ErrorCode.CONFLICT,
            f"idempotency_key {key!r} belongs to run {other}, which has another payload; "
            "use another key, or repeat the request with the payload of that run",
        )
    return found


def _given_part(asked: RunRequest, run: runs.NewRun) -> str:
    """What the caller gives, without the default payload."""
    payload = json.loads(run.payload)
    return canonical_json({name: payload[name] for name in parse_payload(asked.payload_json)})
