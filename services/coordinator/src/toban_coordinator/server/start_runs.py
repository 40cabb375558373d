"""JobControl.StartRuns: runs on demand, a batch in one statement."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from toban_coordinator.loops.definitions import Definitions
from toban_coordinator.loops.payloads import Payloads
from toban_domain.errors import ErrorCode, TobanError
from toban_domain.job import JobSpec
from toban_domain.manifest.problems import nearest
from toban_domain.payload import parse_payload
from toban_proto.v1 import coordinator_pb2 as pb
from toban_store.pool import Pool
from toban_store.scheduler import jobs, runs
from toban_store.tx import Tx, autocommit, tx
from toban_transport.convert import timestamp_from_pb

MAX_RUNS = 5000
MAX_KEY = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class StartRuns:
    """Checks and enqueues. All runs of a call are made, or none."""

    pool: Pool
    definitions: Definitions
    payloads: Payloads

    async def start(self, request: pb.StartRunsRequest, actor: str) -> pb.StartRunsResponse:
        """Raises JOB_NOT_FOUND, JOB_DISABLED, PAYLOAD_INVALID, PAYLOAD_TOO_LARGE, CONFLICT (key of another job)."""
        if len(request.runs) > MAX_RUNS:
            raise TobanError(
                ErrorCode.INVALID_ARGUMENT, f"{len(request.runs)} runs in one call, the limit is {MAX_RUNS}"
            )
        if not request.runs:
            return pb.StartRunsResponse()
        # Without keys one statement writes everything; with keys a later check may still refuse the whole call.
        opened = tx if any(run.idempotency_key for run in request.runs) else autocommit
        async with opened(self.pool) as t:
            heads = await self._heads(t, [run.job for run in request.runs])
            specs = await self.definitions.get(t, {(head.id, head.version) for head in heads.values()})
            new = [self._new(run, heads[run.job], specs) for run in request.runs]
            made = await runs.enqueue(t, new, actor=actor)
            known = await _known(t, new, made)
        return pb.StartRunsResponse(
            runs=[
                pb.StartedRun(run_id=one.id if one.created else known[run.key], created=one.created)
                for run, one in zip(new, made, strict=True)
            ]
        )

    async def _heads(self, t: Tx, names: Sequence[str]) -> dict[str, jobs.Head]:
        wanted = sorted(set(names))
        heads = await jobs.heads(t, wanted)
        for name in wanted:
            if name not in heads:
                raise await job_not_found(t, name)
            if not heads[name].enabled:
                raise TobanError(ErrorCode.JOB_DISABLED, f"job {name!r} is disabled; apply it with `enabled: true`")
        return heads

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
        )


async def job_not_found(t: Tx, name: str) -> TobanError:
    """JOB_NOT_FOUND with the nearest name as a hint."""
    near = nearest(name, await jobs.names(t))
    hint = f"did you mean {near!r}?" if near else "see `toban job list`"
    return TobanError(ErrorCode.JOB_NOT_FOUND, f"there is no job {name!r}; {hint}", detail={"job": name, "near": near})


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
