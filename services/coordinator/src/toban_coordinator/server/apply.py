"""JobControl.Apply: every manifest of a request in one transaction, or none."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime

from toban_coordinator.loops.payloads import compile_schema
from toban_coordinator.server.apply_schedule import ScheduleWriter
from toban_domain.errors import ErrorCode, TobanError
from toban_domain.job import JobSpec
from toban_domain.manifest import Document, Manifest, ManifestProblem, raise_for, read_manifests
from toban_domain.manifest.problems import nearest
from toban_domain.payload import canonical_json
from toban_domain.schedule import ScheduleSpec
from toban_proto.v1 import coordinator_pb2 as pb
from toban_schedule import problems as rule_problems
from toban_store.pool import Pool
from toban_store.scheduler import jobs, schedules
from toban_store.scheduler.jobs import Definition, Head
from toban_store.tx import Tx, tx

MAX_MANIFESTS = 2000


class _DryRun(Exception):
    """Ends a transaction whose writes are not wanted."""


@dataclass(slots=True)
class _Work:
    """One request under way. `heads` are the definitions that its schedules may name, this request's own included."""

    t: Tx
    now: datetime
    actor: str
    definitions: dict[str, Definition]
    heads: dict[str, Head] = field(default_factory=dict)
    specs: dict[str, JobSpec] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Apply:
    """Reads, checks, writes."""

    pool: Pool

    async def apply(self, request: pb.ApplyRequest, actor: str) -> pb.ApplyResponse:
        """Raises MANIFEST_INVALID or SCHEDULE_INVALID naming each document that is wrong, CONFLICT when somebody applied the same at once."""
        manifests = _read(request)
        applied: list[pb.Applied] = []
        try:
            async with tx(self.pool) as t:
                applied = await self._write(t, manifests, actor)
                if request.dry_run:
                    raise _DryRun
                await t.notify("fire")
                await t.notify("assign")
        except _DryRun:
            pass
        return pb.ApplyResponse(applied=applied)

    async def _write(self, t: Tx, manifests: Sequence[Manifest], actor: str) -> list[pb.Applied]:
        job_specs = {m.name: m.spec for m in manifests if isinstance(m.spec, JobSpec)}
        schedule_specs = [(m, m.spec) for m in manifests if isinstance(m.spec, ScheduleSpec)]
        names = sorted({*job_specs, *(spec.job for _, spec in schedule_specs)})
        work = _Work(t, await jobs.server_now(t), actor, await jobs.lock_current(t, names))
        await _check_jobs_exist(work, job_specs, schedule_specs)
        done: dict[tuple[str, str], pb.Applied] = {}
        for spec in job_specs.values():
            done["Job", spec.name] = await _apply_job(work, spec)
        stored = await schedules.lock_named(t, [m.name for m, _ in schedule_specs])
        writer = ScheduleWriter(t=t, now=work.now, actor=actor)
        for manifest, schedule in schedule_specs:
            head, job = _job_of(work, schedule.job)
            done["Schedule", schedule.name] = await writer.apply(
                manifest.source, schedule, stored.get(schedule.name), head, job, spec_hash(schedule)
            )
        return [done[m.kind, m.name] for m in manifests]


def spec_hash(spec: JobSpec | ScheduleSpec) -> str:
    """What tells an applied spec from another."""
    return hashlib.sha256(canonical_json(spec.to_json()).encode()).hexdigest()


def _read(request: pb.ApplyRequest) -> list[Manifest]:
    if len(request.manifests) > MAX_MANIFESTS:
        raise TobanError(
            ErrorCode.INVALID_ARGUMENT, f"{len(request.manifests)} manifests in one call, the limit is {MAX_MANIFESTS}"
        )
    documents = [Document(m.source or f"document {i}", _json(m)) for i, m in enumerate(request.manifests, start=1)]
    manifests = read_manifests(documents, check_rule=rule_problems)
    raise_for([problem for m in manifests for problem in _schema_problems(m)])
    return manifests


def _json(manifest: pb.Manifest) -> object:
    try:
        return json.loads(manifest.json)
    except (ValueError, RecursionError) as error:
        raise TobanError(
            ErrorCode.MANIFEST_INVALID, f"{manifest.source or 'a document'}: is not JSON: {error}"
        ) from None


def _schema_problems(manifest: Manifest) -> list[ManifestProblem]:
    if not isinstance(manifest.spec, JobSpec) or manifest.spec.payload_schema is None:
        return []
    try:
        compile_schema(manifest.spec.payload_schema)
    except TobanError as error:
        return [ManifestProblem(manifest.source, "spec.payload_schema", error.message)]
    return []


async def _check_jobs_exist(
    work: _Work, job_specs: dict[str, JobSpec], schedule_specs: Sequence[tuple[Manifest, ScheduleSpec]]
) -> None:
    known = {*job_specs, *work.definitions}
    missing = [(manifest, spec.job) for manifest, spec in schedule_specs if spec.job not in known]
    if not missing:
        return
    names = [*await jobs.names(work.t), *job_specs]
    problems = []
    for manifest, job in missing:
        near = nearest(job, names)
        hint = f"did you mean {near!r}?" if near else "apply the job first, or in the same call"
        problems.append(
            ManifestProblem(manifest.source, "spec.job", f"there is no job {job!r}", hint, ErrorCode.JOB_NOT_FOUND)
        )
    raise_for(problems)


async def _apply_job(work: _Work, spec: JobSpec) -> pb.Applied:
    old, digest = work.definitions.get(spec.name), spec_hash(spec)
    work.specs[spec.name] = spec
    if old is not None and old.spec_hash == digest:
        work.heads[spec.name] = Head(old.id, old.version, old.enabled)
        return pb.Applied(kind="Job", name=spec.name, action="unchanged", version=old.version)
    if old is None:
        head = await jobs.create(work.t, spec, digest, actor=work.actor)
    else:
        head = await jobs.update(work.t, old, spec, digest, actor=work.actor)
    if head is None:
        raise TobanError(
            ErrorCode.CONFLICT, f"job {spec.name!r} was changed by somebody else at the same time; apply again"
        )
    work.heads[spec.name] = head
    return pb.Applied(kind="Job", name=spec.name, action="updated" if old else "created", version=head.version)


def _job_of(work: _Work, name: str) -> tuple[Head, JobSpec]:
    if name in work.heads:
        return work.heads[name], work.specs[name]
    found = work.definitions[name]
    return Head(found.id, found.version, found.enabled), found.spec
