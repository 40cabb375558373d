"""JobControl.StartRuns: runs on demand, a batch in one statement."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from toban_coordinator.decide.start_runs import refusal
from toban_coordinator.loops.definition_cache import Definitions
from toban_coordinator.loops.metrics import submitted
from toban_coordinator.loops.payload_validator import Payloads
from toban_coordinator.ports.express import ExpressDesk
from toban_coordinator.store import jobs, run_traces, runs
from toban_domain.errors import ErrorCode, TobanError
from toban_domain.job import JobSpec
from toban_domain.nearest import nearest
from toban_domain.payload import parse_payload
from toban_domain.traceparent import TraceContext
from toban_observability import tracing
from toban_observability.logs import get_logger
from toban_proto.v1 import coordinator_pb2 as pb
from toban_store.errors import StoreError
from toban_store.pool import Pool
from toban_store.tx import Tx, autocommit, tx
from toban_transport.convert import timestamp_from_pb

MAX_RUNS = 5000
MAX_KEY = 200
# Definitions whose heads are kept, and how often a call looks them up anew when they change under it.
KEPT_HEADS = 10_000
LOOKS = 3
_log = get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class StartRuns:
    """Checks and enqueues. All runs of a call are made, or none."""

    pool: Pool
    definitions: Definitions
    payloads: Payloads
    desk: ExpressDesk
    # As last seen; `enqueue` makes nothing from one that has changed since.
    heads: dict[str, jobs.Head] = field(default_factory=dict)

    async def start(self, request: pb.StartRunsRequest, actor: str) -> pb.StartRunsResponse:
        """Raises JOB_NOT_FOUND, JOB_DISABLED, PAYLOAD_INVALID, PAYLOAD_TOO_LARGE, CONFLICT (key of another job), INVALID_ARGUMENT (time)."""
        if len(request.runs) > MAX_RUNS:
            raise TobanError(
                ErrorCode.INVALID_ARGUMENT, f"{len(request.runs)} runs in one call, the limit is {MAX_RUNS}"
            )
        if not request.runs:
            return pb.StartRunsResponse()
        if (quick := await self._express(request.runs, actor)) is not None:
            submitted.labels("demand").inc(len(quick))
            if (place := tracing.current()) is not None:
                await self._keep(quick, place)
            return pb.StartRunsResponse(runs=[pb.StartedRun(run_id=run, created=True) for run in quick])
        # Without keys one statement writes everything; with keys a later check may still refuse the whole call.
        place = tracing.current()
        opened = tx if place or any(run.idempotency_key for run in request.runs) else autocommit
        async with opened(self.pool) as t:
            new, made = await self._enqueue(t, request.runs, actor)
            known = await _known(t, new, made)
            if place is not None:
                await run_traces.keep(t, [one.id for one in made if one.created], place)
        submitted.labels("demand").inc(sum(one.created for one in made))
        return pb.StartRunsResponse(
            runs=[
                pb.StartedRun(run_id=one.id if one.created else known[run.key], created=one.created)
                for run, one in zip(new, made, strict=True)
            ]
        )

    async def _express(self, wanted: Sequence[pb.StartRunRequest], actor: str) -> list[int] | None:
        """The short way, for definitions that are in memory: the write looks whether they are still the current ones."""
        names = {run.job for run in wanted}
        if not self.desk.takes(len(wanted)) or not names <= self.heads.keys():
            return None
        heads = {name: self.heads[name] for name in names}
        specs: dict[tuple[int, int], JobSpec] = {}
        for head in heads.values():
            spec = self.definitions.known((head.id, head.version))
            if spec is None:
                return None
            specs[head.id, head.version] = spec
        return await self.desk.place([self._new(run, heads[run.job], specs) for run in wanted], specs, actor=actor)

    async def _keep(self, made: Sequence[int], place: TraceContext) -> None:
        """For their later attempts; the first one has it already. The runs exist: no failure here may have the caller ask for them again."""
        try:
            async with autocommit(self.pool) as t:
                await run_traces.keep(t, made, place)
        except StoreError as error:
            _log.warning(
                "later attempts of runs will not be in their callers' traces", runs=len(made), error=error.message
            )

    async def _enqueue(
        self, t: Tx, wanted: Sequence[pb.StartRunRequest], actor: str
    ) -> tuple[list[runs.NewRun], list[runs.Enqueued]]:
        await _check_times(t, wanted)
        names = sorted({run.job for run in wanted})
        for _ in range(LOOKS):
            await self._look_up(t, [name for name in names if name not in self.heads])
            heads = {name: self.heads[name] for name in names}
            specs = {key: await self.definitions.get(t, key) for key in {(h.id, h.version) for h in heads.values()}}
            new = [self._new(run, heads[run.job], specs) for run in wanted]
            if made := await runs.enqueue(t, new, actor=actor):
                return new, made
            for name in names:
                self.heads.pop(name, None)
        raise TobanError(ErrorCode.CONFLICT, f"the definitions of {', '.join(names)} are being changed; try again")

    async def _look_up(self, t: Tx, names: Sequence[str]) -> None:
        """Adds to `heads`. Raises JOB_NOT_FOUND, JOB_DISABLED."""
        if not names:
            return
        found = await jobs.heads(t, names)
        for name in names:
            if name not in found:
                raise await job_not_found(t, name)
            if not found[name].enabled:
                raise TobanError(ErrorCode.JOB_DISABLED, f"job {name!r} is disabled; apply it with `enabled: true`")
        if len(self.heads) > KEPT_HEADS:
            self.heads.clear()
        self.heads.update(found)

    def _new(self, run: pb.StartRunRequest, head: jobs.Head, specs: Mapping[tuple[int, int], JobSpec]) -> runs.NewRun:
        key = (head.id, head.version)
        spec = specs[key]
        if len(run.idempotency_key) > MAX_KEY or "\0" in run.idempotency_key:
            raise TobanError(ErrorCode.INVALID_ARGUMENT, f"idempotency_key has more than {MAX_KEY} characters or a NUL")
        return runs.NewRun(
            definition_id=head.id,
            version=head.version,
            job=run.job,
            payload=self.payloads.make(key, spec, parse_payload(run.payload_json) if run.payload_json else {}),
            scheduled_for=timestamp_from_pb(run.scheduled_for),
            priority=run.priority or spec.priority,
            max_attempts=spec.retry.max_attempts,
            max_lost=spec.max_lost,
            timeout_seconds=spec.timeout_seconds,
            key=run.idempotency_key,
            place=tracing.current(),
        )


async def job_not_found(t: Tx, name: str) -> TobanError:
    """JOB_NOT_FOUND with the nearest name as a hint."""
    near = nearest(name, await jobs.names(t))
    hint = f"did you mean {near!r}?" if near else "see `toban job list`"
    return TobanError(ErrorCode.JOB_NOT_FOUND, f"there is no job {name!r}; {hint}", detail={"job": name, "near": near})


async def _check_times(t: Tx, wanted: Sequence[pb.StartRunRequest]) -> None:
    """Refuses times that are past or too far ahead, but not for keys that were used: asking again stays harmless however late."""
    timed = [run for run in wanted if run.HasField("scheduled_for")]
    if not timed:
        return
    now = await jobs.server_now(t)
    wrong = [
        (run, why)
        for run in timed
        if (at := timestamp_from_pb(run.scheduled_for)) is not None and (why := refusal(at, now))
    ]
    keys = [run.idempotency_key for run, _ in wrong if run.idempotency_key and "\0" not in run.idempotency_key]
    known = await runs.by_keys(t, keys) if keys else {}
    for run, why in wrong:
        if run.idempotency_key not in known:
            raise TobanError(ErrorCode.INVALID_ARGUMENT, f"a run of job {run.job!r}: {why}")


async def _known(t: Tx, new: Sequence[runs.NewRun], made: Sequence[runs.Enqueued]) -> dict[str, int]:
    """The runs of keys that were taken."""
    taken = {run.key: run for run, one in zip(new, made, strict=True) if not one.created}
    if not taken:
        return {}
    found = await runs.by_keys(t, list(taken))
    for key, run in found.items():
        if run.job is not None and run.job != taken[key].job:
            raise TobanError(
                ErrorCode.CONFLICT,
                f"idempotency_key {key!r} belongs to run {run.run_id} of job {run.job!r}; use another",
            )
    return {key: run.run_id for key, run in found.items()}
