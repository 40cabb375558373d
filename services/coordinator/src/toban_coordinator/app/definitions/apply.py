"""Apply: every manifest of a request in one transaction, or none."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial

from toban_coordinator.app.definitions.apply_trigger import TriggerWriter
from toban_coordinator.app.definitions.payload_fit import PayloadFit
from toban_coordinator.app.executors.operations_groups import selector_problems
from toban_coordinator.app.large_payload import with_large_checks
from toban_coordinator.app.limits.operations_limits import check_pools
from toban_coordinator.app.manifests import Applied, ManifestText, parse_json
from toban_coordinator.app.named_objects import changed
from toban_coordinator.app.notifications.operations_webhooks import notify_problems
from toban_coordinator.app.schedules.apply_schedule import ScheduleWriter, WantedSchedule
from toban_coordinator.app.schedules.edit_schedule import ScheduleEdit
from toban_coordinator.app.schedules.slot_counting import Counts, with_counts
from toban_coordinator.app.secrets.masked_values import carries_mask, with_stored_values
from toban_coordinator.app.secrets.secret_values import problems as secret_problems
from toban_coordinator.app.write_batches import WriteBatches
from toban_coordinator.store import object_names
from toban_coordinator.store.cluster import audit
from toban_coordinator.store.cluster.audit import AdminAction
from toban_coordinator.store.definitions import jobs
from toban_coordinator.store.definitions.jobs import Definition, Head
from toban_coordinator.store.limits import limit_admin
from toban_domain.errors import ErrorCode, TobanError
from toban_domain.event import TriggerSpec
from toban_domain.job import JobSpec
from toban_domain.nearest import nearest
from toban_domain.payload import canonical_json
from toban_domain.redacted import masked_definition
from toban_domain.schedule import ScheduleSpec
from toban_manifests.payload_schema import schema_problems
from toban_manifests.problems import ManifestProblem, raise_for
from toban_manifests.read import Document, Manifest, read_manifests
from toban_schedule import Rule
from toban_schedule import problems as rule_problems
from toban_store.pool import Pool
from toban_store.tx import Tx, tx

# Of one call; toban_cli.importers.parts repeats it.
MAX_MANIFESTS = 2000
# Requests with more schedules than this are answered without next slots.
MAX_SCHEDULES_WITH_SLOTS = 20
# Jobs that are missing for which the nearest name is looked for.
MAX_HINTS = 10
_WORDS = {"Job": "job", "Schedule": "schedule", "EventTrigger": "trigger"}


class _DryRun(Exception):
    """Ends a transaction whose writes are not wanted."""


@dataclass(slots=True)
class _Work:
    """One request under way. `heads` are the definitions that its schedules may name, this request's own included."""

    t: Tx
    actor: str
    reason: str
    counts: Counts
    # What each (kind, name) has to have now, when the caller says so: a version, or 0 for nothing.
    expected: Mapping[tuple[str, str], int]
    force: bool
    definitions: dict[str, Definition] = field(default_factory=dict)
    heads: dict[str, Head] = field(default_factory=dict)
    specs: dict[str, JobSpec] = field(default_factory=dict)
    edits: list[ScheduleEdit] = field(default_factory=list)
    # By the id of a job that is enabled or disabled.
    switched_schedules: Mapping[int, int] = field(default_factory=dict)
    noted: WriteBatches[AdminAction] = field(init=False)

    def __post_init__(self) -> None:
        self.noted = WriteBatches(partial(audit.note_all, self.t))

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
            f"{word} {name!r} {now}: it was changed meanwhile; read it again, then try again",
            detail={"version": version},
        )


@dataclass(frozen=True, slots=True)
class _Read:
    """The manifests of a request, read and checked, and what its schedules will be. `has_masks`: values may be masks of stored ones."""

    manifests: Sequence[Manifest]
    schedules: Sequence[WantedSchedule]
    has_masks: bool

    @classmethod
    def of(cls, manifests: Sequence[Manifest]) -> _Read:
        """Their schedules with rules and digests."""
        schedules = [
            WantedSchedule(source=m.source, spec=m.spec, digest=spec_hash(m.spec), rule=Rule.of(m.spec.rule))
            for m in manifests
            if isinstance(m.spec, ScheduleSpec)
        ]
        return cls(manifests, schedules, any(map(carries_mask, manifests)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Apply:
    """Reads, checks, writes."""

    pool: Pool

    async def apply(
        self, texts: Sequence[ManifestText], *, dry_run: bool = False, actor: str, reason: str = "", force: bool = False
    ) -> list[Applied]:
        """Raises MANIFEST_INVALID or SCHEDULE_INVALID naming each document that is wrong, CONFLICT when another call applied the same at once,
        and without `force` PAYLOAD_INVALID when payloads of schedules and triggers no longer fit their job."""
        # Thousands of manifests take a while: not in the way of everything else.
        read = await asyncio.to_thread(_read, texts)
        expected = {
            (one.kind, one.name): given.expect_version
            for one, given in zip(read.manifests, texts, strict=True)
            if given.expect_version is not None
        }
        applied: list[Applied] = []

        async def once(counts: Counts) -> list[ScheduleEdit]:
            async with tx(self.pool) as t:
                work = _Work(t, actor, audit.clean_reason(reason), counts, expected=expected, force=force)
                applied[:] = await self._write(work, read)
                if dry_run:
                    raise _DryRun
                await t.notify("fire")
                await t.notify("assign")
            return work.edits

        with suppress(_DryRun):
            for edit in await with_large_checks(lambda: with_counts(once)):
                edit.count()
        return applied

    async def _write(self, work: _Work, read: _Read) -> list[Applied]:
        users = [(m.source, m.spec.job) for m in read.manifests if not isinstance(m.spec, JobSpec)]
        # Jobs whose runs triggers wait for: locked too, so that none is deleted meanwhile.
        ends = _awaited(read.manifests)
        own = {m.name for m in read.manifests if isinstance(m.spec, JobSpec)}
        work.definitions = await jobs.lock_current(work.t, sorted({*own, *(job for _, job in users + ends)}))
        if read.has_masks:
            read = _Read.of(await with_stored_values(work.t, read.manifests, work.definitions))
        job_specs = {m.name: m.spec for m in read.manifests if isinstance(m.spec, JobSpec)}
        trigger_specs = [(m, m.spec) for m in read.manifests if isinstance(m.spec, TriggerSpec)]
        await _check_jobs_exist(work, job_specs, users)
        await _check_jobs_exist(work, job_specs, ends, path="spec.on_run_end.job")
        _check_jobs_readable(work, job_specs, users)
        await _check_schedulable(work, read.manifests, job_specs)
        for name in job_specs:
            work.expect("Job", name, work.definitions[name].version if name in work.definitions else 0)
        await _check_payloads(work, read.manifests, job_specs)
        writer = await _begin_schedules(work, read.schedules, job_specs)
        work.switched_schedules = writer.switched() if writer is not None else {}
        done: dict[tuple[str, str], Applied] = {}
        await _check_pools_and_secrets(work, read.manifests)
        if any(not spec.concurrency.is_plain for spec in job_specs.values()) or _have_limits(work):
            await work.t.notify(limit_admin.WAKE)
        for spec in job_specs.values():
            done["Job", spec.name] = await _apply_job(work, spec)
        await work.noted.close()
        if writer is not None:
            heads = {one.spec.job: _job_of(work, one.spec.job)[0] for one in read.schedules}
            written = await writer.write(read.schedules, heads)
            done |= {("Schedule", name): applied for name, applied in written.items()}
            work.edits.extend(writer.edits())
        await _apply_triggers(work, trigger_specs, done)
        return [done[m.kind, m.name] for m in read.manifests]


def spec_hash(spec: JobSpec | ScheduleSpec | TriggerSpec) -> str:
    """What tells an applied spec from another."""
    return hashlib.sha256(canonical_json(spec.to_json()).encode()).hexdigest()


def _read(texts: Sequence[ManifestText]) -> _Read:
    if len(texts) > MAX_MANIFESTS:
        raise TobanError(
            ErrorCode.INVALID_ARGUMENT, f"{len(texts)} manifests in one call, the limit is {MAX_MANIFESTS}"
        )
    documents = [
        Document(text.source or f"document {i}", parse_json(text.json, text.source or "a document"))
        for i, text in enumerate(texts, start=1)
    ]
    manifests = read_manifests(documents, check_rule=rule_problems)
    raise_for([problem for m in manifests for problem in schema_problems(m)])
    return _Read.of(manifests)


def _awaited(manifests: Sequence[Manifest]) -> list[tuple[str, str]]:
    """Sources of triggers, and the jobs whose ends they wait for."""
    specs = [(m.source, m.spec.on_run_end) for m in manifests if isinstance(m.spec, TriggerSpec)]
    return [(source, end.job) for source, end in specs if end and end.job]


async def _check_jobs_exist(
    work: _Work, job_specs: Mapping[str, JobSpec], users: Sequence[tuple[str, str]], *, path: str = "spec.job"
) -> None:
    """`users`: sources of schedules and triggers, and the jobs that they name."""
    known = {*job_specs, *work.definitions}
    missing = [(source, job) for source, job in users if job not in known]
    if not missing:
        return
    names = [*await object_names.names(work.t, "job"), *job_specs]
    near = {job: nearest(job, names) for job in sorted({job for _, job in missing})[:MAX_HINTS]}
    problems = []
    for source, job in missing:
        hint = f"did you mean {near[job]!r}?" if near.get(job) else "apply the job first, or in the same call"
        problems.append(ManifestProblem(source, path, f"there is no job {job!r}", hint, ErrorCode.JOB_NOT_FOUND))
    raise_for(problems)


async def _check_pools_and_secrets(work: _Work, manifests: Sequence[Manifest]) -> None:
    """Pools that jobs of this request take of, and secrets, webhooks and executor groups that they name: they are made before, since they are
    an operator's."""
    problems = []
    for manifest in manifests:
        if isinstance(manifest.spec, JobSpec):
            found = [
                *await check_pools(work.t, manifest.spec.concurrency.pools),
                *await secret_problems(work.t, manifest.spec),
                *await notify_problems(work.t, manifest.spec),
                *await selector_problems(work.t, manifest.spec),
            ]
            for path, message, hint in found:
                problems.append(ManifestProblem(manifest.source, path, message, hint))
    raise_for(problems)


def _have_limits(work: _Work) -> bool:
    """Whether a job of this request has limits now, which it may lose."""
    return any(old.spec is not None and not old.spec.concurrency.is_plain for old in work.definitions.values())


def _check_jobs_readable(work: _Work, job_specs: Mapping[str, JobSpec], users: Sequence[tuple[str, str]]) -> None:
    """A schedule or trigger cannot be checked against a job that cannot be read; one that this request replaces is no trouble."""
    problems = []
    for source, job in users:
        if job not in job_specs and (why := work.definitions[job].broken):
            message = f"job {job!r} cannot be read as it is stored ({why})"
            problems.append(ManifestProblem(source, "spec.job", message, "apply that job again, or in the same call"))
    raise_for(problems)


async def _check_schedulable(work: _Work, manifests: Sequence[Manifest], job_specs: Mapping[str, JobSpec]) -> None:
    """Jobs with `schedulable: false` have no schedules and triggers: neither in this request, nor from before."""
    stored = {name: one.spec for name, one in work.definitions.items() if one.spec is not None}
    closed = {name for name, spec in {**stored, **job_specs}.items() if not spec.schedulable}
    if not closed:
        return
    users = await jobs.starters(work.t, sorted(closed & job_specs.keys()))
    problems = []
    for manifest in manifests:
        if not isinstance(manifest.spec, JobSpec) and manifest.spec.job in closed:
            message = f"job {manifest.spec.job!r} has schedulable: false; its runs are started on demand only"
            problems.append(
                ManifestProblem(
                    manifest.source, "spec.job", message, "name another job, or apply that one with schedulable: true"
                )
            )
        elif found := users.get(manifest.name, ()) if isinstance(manifest.spec, JobSpec) else ():
            message = f"false, but the job has {', '.join(found)}"
            problems.append(ManifestProblem(manifest.source, "spec.schedulable", message, "remove them first"))
    raise_for(problems)


async def _apply_job(work: _Work, spec: JobSpec) -> Applied:
    old, digest = work.definitions.get(spec.name), spec_hash(spec)
    work.specs[spec.name] = spec
    if old is not None and old.spec_hash == digest and not old.broken:
        work.heads[spec.name] = old.head
        return Applied(
            kind="Job", name=spec.name, action="unchanged", version=old.version, note=_stays_disabled(spec.name, old)
        )
    if old is None:
        head = await jobs.create(work.t, spec, digest, actor=work.actor)
    else:
        head = await jobs.update(work.t, old, spec, digest, actor=work.actor)
    if head is None:
        raise changed("job", spec.name)
    work.heads[spec.name] = head
    await work.noted.add(_job_action(work, spec, head.version))
    action = "updated" if old else "created"
    return Applied(
        kind="Job", name=spec.name, action=action, version=head.version, note=_stays_disabled(spec.name, old)
    )


def _stays_disabled(name: str, old: Definition | None) -> str:
    """What an Apply does not change; "" for a job that no person disabled."""
    if old is None or old.disabled is None:
        return ""
    return f"it stays disabled{old.disabled.why}; enable it with `toban job enable {name}`"


def _job_action(work: _Work, spec: JobSpec, version: int) -> AdminAction:
    # What one of both hides is in neither: a name that is added hides a value that was there before.
    hidden = _hidden(work, spec.name, {spec.name: spec})
    old = work.definitions.get(spec.name)
    schedules = work.switched_schedules.get(old.id, 0) if old else 0
    followed = {"schedules": schedules} if schedules else {}
    return AdminAction(
        actor=work.actor,
        action="job.update" if old else "job.create",
        target=f"job {spec.name}",
        before=_before(old, hidden) if old else None,
        after={"version": version, "spec": masked_definition(spec.to_json(), hidden), **followed},
        reason=work.reason,
    )


def _before(old: Definition, hidden: Collection[str]) -> dict[str, object]:
    stored = {"spec": masked_definition(old.spec.to_json(), hidden)} if old.spec else {"broken": old.broken}
    return {"version": old.version, **stored}


async def _begin_schedules(
    work: _Work, wanted: Sequence[WantedSchedule], job_specs: Mapping[str, JobSpec]
) -> ScheduleWriter | None:
    """Before the jobs change: what is due is settled by the jobs as they were. None when no schedule is concerned."""
    switched = {
        old.id: "enabled" if job_specs[name].enabled else "disabled"
        for name, old in work.definitions.items()
        if name in job_specs and old.disabled is None and job_specs[name].enabled != old.enabled
    }
    if not wanted and not switched:
        return None
    writer = ScheduleWriter(
        t=work.t,
        actor=work.actor,
        reason=work.reason,
        counts=work.counts,
        with_next_slots=len(wanted) <= MAX_SCHEDULES_WITH_SLOTS,
        hidden={one.spec.job: _hidden(work, one.spec.job, job_specs) for one in wanted},
    )
    known = {name: definition.id for name, definition in work.definitions.items()}
    await writer.begin(wanted, known, switched, lambda name, version: work.expect("Schedule", name, version))
    return writer


def _hidden(work: _Work, job: str, job_specs: Mapping[str, JobSpec]) -> set[str]:
    """What a job hides, as it is or as it will be."""
    stored = work.definitions[job].spec if job in work.definitions else None
    return {name for spec in (stored, job_specs.get(job)) if spec is not None for name in spec.logs.redact}


async def _check_payloads(work: _Work, manifests: Sequence[Manifest], job_specs: Mapping[str, JobSpec]) -> None:
    fit = PayloadFit(
        {name: one.spec for name, one in work.definitions.items() if one.spec is not None} | dict(job_specs)
    )
    await fit.check(manifests)
    if not work.force:
        await fit.check_kept(work.t, manifests, work.definitions)


async def _apply_triggers(
    work: _Work, wanted: Sequence[tuple[Manifest, TriggerSpec]], done: dict[tuple[str, str], Applied]
) -> None:
    writer = TriggerWriter(t=work.t, actor=work.actor, reason=work.reason, noted=work.noted)
    stored = await writer.lock(wanted)
    for _, spec in wanted:
        head, job = _job_of(work, spec.job)
        old = stored.get(spec.name)
        work.expect("EventTrigger", spec.name, old.version if old else 0)
        done["EventTrigger", spec.name] = await writer.apply(spec, old, head, job, spec_hash(spec))
    await work.noted.close()


def _job_of(work: _Work, name: str) -> tuple[Head, JobSpec]:
    if name in work.heads:
        return work.heads[name], work.specs[name]
    found = work.definitions[name]
    assert found.spec is not None, "_check_jobs_readable has let it pass"
    return found.head, found.spec
