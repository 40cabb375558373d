"""JobControl.Apply: every manifest of a request in one transaction, or none."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from toban_coordinator.loops.metrics import count_finished
from toban_coordinator.loops.payloads import compile_schema
from toban_coordinator.server.apply_schedule import ScheduleWriter
from toban_coordinator.server.apply_trigger import TriggerWriter
from toban_coordinator.server.edit_schedule import ScheduleEdit
from toban_domain.errors import ErrorCode, TobanError
from toban_domain.event import TriggerSpec
from toban_domain.job import JobSpec
from toban_domain.manifest import Document, Manifest, ManifestProblem, raise_for, read_manifests
from toban_domain.manifest.problems import nearest
from toban_domain.payload import canonical_json
from toban_domain.schedule import ScheduleSpec
from toban_proto.v1 import coordinator_pb2 as pb
from toban_schedule import problems as rule_problems
from toban_store.pool import Pool
from toban_store.scheduler import jobs, schedules_edit
from toban_store.scheduler.jobs import Definition, Head
from toban_store.scheduler.runs_finish import Finished
from toban_store.tx import Tx, tx

MAX_MANIFESTS = 2000
# The next slots of more schedules than this are not told: nobody would read them.
MAX_TOLD_SCHEDULES = 20
_WORDS = {"Job": "job", "Schedule": "schedule", "EventTrigger": "trigger"}


class _DryRun(Exception):
    """Ends a transaction whose writes are not wanted."""


@dataclass(slots=True)
class _Work:
    """One request under way. `heads` are the definitions that its schedules may name, this request's own included."""

    t: Tx
    actor: str
    # What each (kind, name) has to have now, when the caller says so: a version, or 0 for nothing.
    expected: Mapping[tuple[str, str], int]
    definitions: dict[str, Definition] = field(default_factory=dict)
    heads: dict[str, Head] = field(default_factory=dict)
    specs: dict[str, JobSpec] = field(default_factory=dict)
    finished: list[Finished] = field(default_factory=list)

    def expect(self, kind: str, name: str, version: int) -> None:
        """Raises ALREADY_EXISTS or CONFLICT when the caller expects another version than the stored one (0 = there is none)."""
        wanted = self.expected.get((kind, name), version)
        if wanted == version:
            return
        word = _WORDS.get(kind, kind)
        if wanted == 0:
            raise TobanError(
                ErrorCode.ALREADY_EXISTS,
                f"there is a {word} {name!r} already (version {version}); choose another name, or change that one",
            )
        now = f"is at version {version} now, not {wanted}" if version else "is gone"
        raise TobanError(
            ErrorCode.CONFLICT,
            f"{word} {name!r} {now}: somebody else changed it meanwhile; read it again, then try again",
            detail={"version": version},
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Apply:
    """Reads, checks, writes."""

    pool: Pool

    async def apply(self, request: pb.ApplyRequest, actor: str) -> pb.ApplyResponse:
        """Raises MANIFEST_INVALID or SCHEDULE_INVALID naming each document that is wrong, CONFLICT when somebody applied the same at once."""
        manifests = _read(request)
        expected = {
            (read.kind, read.name): given.expect_version
            for read, given in zip(manifests, request.manifests, strict=True)
            if given.HasField("expect_version")
        }
        applied: list[pb.Applied] = []
        try:
            async with tx(self.pool) as t:
                work = _Work(t, actor, expected=expected)
                applied = await self._write(work, manifests)
                if request.dry_run:
                    raise _DryRun
                await t.notify("fire")
                await t.notify("assign")
        except _DryRun:
            return pb.ApplyResponse(applied=applied)
        count_finished(work.finished)
        return pb.ApplyResponse(applied=applied)

    async def _write(self, work: _Work, manifests: Sequence[Manifest]) -> list[pb.Applied]:
        job_specs = {m.name: m.spec for m in manifests if isinstance(m.spec, JobSpec)}
        schedule_specs = [(m, m.spec) for m in manifests if isinstance(m.spec, ScheduleSpec)]
        trigger_specs = [(m, m.spec) for m in manifests if isinstance(m.spec, TriggerSpec)]
        users: list[tuple[Manifest, ScheduleSpec | TriggerSpec]] = [*schedule_specs, *trigger_specs]
        names = sorted({*job_specs, *(spec.job for _, spec in users)})
        work.definitions = await jobs.lock_current(work.t, names)
        await _check_jobs_exist(work, job_specs, users)
        done: dict[tuple[str, str], pb.Applied] = {}
        for spec in job_specs.values():
            done["Job", spec.name] = await _apply_job(work, spec)
        await _apply_schedules(work, schedule_specs, done)
        await _apply_triggers(work, trigger_specs, done)
        return [done[m.kind, m.name] for m in manifests]


def spec_hash(spec: JobSpec | ScheduleSpec | TriggerSpec) -> str:
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
    work: _Work, job_specs: dict[str, JobSpec], users: Sequence[tuple[Manifest, ScheduleSpec | TriggerSpec]]
) -> None:
    known = {*job_specs, *work.definitions}
    missing = [(manifest, spec.job) for manifest, spec in users if spec.job not in known]
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
    work.expect("Job", spec.name, old.version if old else 0)
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


async def _apply_schedules(
    work: _Work, wanted: Sequence[tuple[Manifest, ScheduleSpec]], done: dict[tuple[str, str], pb.Applied]
) -> None:
    if not wanted:
        return
    names = [spec.name for _, spec in wanted]
    stored = await schedules_edit.lock_named(work.t, names)
    edit = ScheduleEdit(t=work.t, now=await schedules_edit.moment(work.t), actor=work.actor, why="edited")
    ended = await schedules_edit.settled_until(work.t, [name for name in names if name not in stored])
    writer = ScheduleWriter(
        t=work.t, edit=edit, actor=work.actor, ended=ended, tell_next=len(wanted) <= MAX_TOLD_SCHEDULES
    )
    for manifest, spec in wanted:
        head, job = _job_of(work, spec.job)
        old = stored.get(spec.name)
        work.expect("Schedule", spec.name, old.due.version if old else 0)
        done["Schedule", spec.name] = await writer.apply(manifest.source, spec, old, head, job, spec_hash(spec))
    work.finished.extend(edit.finished)


async def _apply_triggers(
    work: _Work, wanted: Sequence[tuple[Manifest, TriggerSpec]], done: dict[tuple[str, str], pb.Applied]
) -> None:
    writer = TriggerWriter(t=work.t, actor=work.actor)
    stored = await writer.lock(wanted)
    for manifest, spec in wanted:
        head, job = _job_of(work, spec.job)
        old = stored.get(spec.name)
        work.expect("EventTrigger", spec.name, old.version if old else 0)
        done["EventTrigger", spec.name] = await writer.apply(manifest.source, spec, old, head, job, spec_hash(spec))


def _job_of(work: _Work, name: str) -> tuple[Head, JobSpec]:
    if name in work.heads:
        return work.heads[name], work.specs[name]
    found = work.definitions[name]
    return Head(found.id, found.version, found.enabled), found.spec
