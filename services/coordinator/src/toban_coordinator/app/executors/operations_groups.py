"""List, make, change and remove groups of executors. Each change is in the audit log (docs/executor-groups.md)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from toban_coordinator.app.named_objects import not_found
from toban_coordinator.store.cluster import audit
from toban_coordinator.store.executors import executor_groups
from toban_coordinator.store.executors.executor_groups import StoredGroup
from toban_domain.errors import ErrorCode, TobanError
from toban_domain.executor_group import ANY, DEFAULT_GROUP, ExecutorGroup, allowed_labels, check_name, closed_to
from toban_domain.job import STEPS_LABEL, JobSpec
from toban_observability.logs import get_logger
from toban_store.pool import Pool
from toban_store.tx import Tx, autocommit, tx

MAX_LABELS = 64
MAX_TEXT = 256
MAX_INSTANCES = 1000
_log = get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupChange:
    """A whole group. `create`: it must not be there; `version`: that which the caller has seen, 0 = not checked. `instances` pass to it.
    `job_labels` None: those of the group stay, so that callers who do not know them do not open it to every job."""

    name: str
    labels: Mapping[str, str]
    claims: Sequence[str]
    job_labels: Mapping[str, str] | None = None
    reason: str = ""
    create: bool = False
    version: int = 0
    instances: Sequence[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupOperations:
    """Changes tables `executor_groups` and `executor_instances`."""

    pool: Pool

    async def list(self) -> list[StoredGroup]:
        """All of them, by name."""
        async with autocommit(self.pool) as t:
            return list((await executor_groups.groups(t)).values())

    async def set(self, change: GroupChange, actor: str) -> StoredGroup:
        """Running executors get other labels at once. Raises INVALID_ARGUMENT, ALREADY_EXISTS, NOT_FOUND, CONFLICT, RESOURCE_INVALID_STATE."""
        rules = _checked(change)
        async with tx(self.pool) as t:
            await executor_groups.hold_alone(t)
            before = (await executor_groups.groups(t, rules.name)).get(rules.name)
            if change.job_labels is None and before is not None:
                rules = replace(rules, job_labels=before.rules.job_labels)
            await _store(t, change, rules, before, actor)
            if change.instances:
                await _move(t, change.instances, rules.name)
            relabelled = await _relabel(t)
            # The leader knows executors with free slots by their labels.
            await t.notify("assign")
            after = (await executor_groups.groups(t, rules.name))[rules.name]
            await audit.note(
                t,
                actor,
                "group.set",
                f"executor group {rules.name}",
                change.reason,
                before=_facts(before.rules) if before else None,
                after=_facts(rules) | ({"instances": list(change.instances)} if change.instances else {}),
            )
        _log.info("an executor group was set", group=rules.name, relabelled=relabelled, actor=actor)
        return after

    async def remove(self, name: str, *, reason: str, actor: str) -> None:
        """Raises NOT_FOUND, and RESOURCE_INVALID_STATE for the default group and while executors of it are not off."""
        if name == DEFAULT_GROUP:
            message = f"group {name!r} is that of executors whose certificate names none; it stays"
            raise TobanError(ErrorCode.RESOURCE_INVALID_STATE, message)
        async with tx(self.pool) as t:
            await executor_groups.hold_alone(t)
            before = (await executor_groups.groups(t, name)).get(name)
            if before is None:
                raise await _not_found(t, name)
            if before.executors:
                message = (
                    f"group {name!r} has {before.executors} executors that are not off; "
                    "drain and stop them first: toban executor list"
                )
                raise TobanError(ErrorCode.RESOURCE_INVALID_STATE, message)
            await executor_groups.remove(t, name)
            await audit.note(t, actor, "group.remove", f"executor group {name}", reason, before=_facts(before.rules))
        _log.info("an executor group was removed", group=name, actor=actor)


async def _store(t: Tx, change: GroupChange, rules: ExecutorGroup, before: StoredGroup | None, actor: str) -> None:
    if change.create:
        if not await executor_groups.make(t, rules, actor=actor):
            message = f"there is a group {rules.name!r} already; change it: toban group set {rules.name}"
            raise TobanError(ErrorCode.ALREADY_EXISTS, message)
        return
    if before is None:
        raise await _not_found(t, rules.name)
    if change.version and change.version != before.version:
        message = f"group {rules.name!r} is at version {before.version}, not {change.version}: it has changed since; read it again"
        raise TobanError(ErrorCode.CONFLICT, message)
    if not await executor_groups.change(t, rules, actor=actor):
        raise AssertionError("the group is there, and other changes wait")


async def _move(t: Tx, instances: Sequence[str], name: str) -> None:
    for instance, known in (await executor_groups.unmovable(t, instances)).items():
        if known:
            message = f"instance {instance} has an executor that is not off; drain and stop it first"
            raise TobanError(ErrorCode.RESOURCE_INVALID_STATE, message)
        raise TobanError(
            ErrorCode.NOT_FOUND,
            f"there is no executor with instance {instance[:80]!r}; see `toban executor list --all`",
        )
    await executor_groups.move(t, instances, name)


async def _relabel(t: Tx) -> int:
    """Gives running executors the labels of the present rules; how many have others now. Registrations wait meanwhile, so none is missed."""
    known = {name: one.rules for name, one in (await executor_groups.groups(t)).items()}
    changed = 0
    for one in await executor_groups.running(t):
        own = known.get(one.executor_group)
        labels = allowed_labels(one.labels, own, known.values()) if own else {}
        # What it is set up for is a fact, and the proof of its end depends on it; a claim of it is judged at its next registration.
        labels |= {key: value for key, value in one.labels.items() if key == STEPS_LABEL}
        if labels != one.labels:
            await executor_groups.relabel(t, one.incarnation, labels)
            changed += 1
    return changed


def _checked(change: GroupChange) -> ExecutorGroup:
    name, job_labels = check_name(change.name), change.job_labels or {}
    for what, labels in (("label", change.labels), ("job label", job_labels)):
        for key, value in labels.items():
            _check_text(f"{what} {key[:60]!r}", key)
            _check_text(f"the value of {what} {key[:60]!r}", value)
    for key in change.claims:
        _check_text(f"claim {key[:60]!r}", key)
    most = max(len(change.labels), len(change.claims), len(job_labels))
    if most > MAX_LABELS or len(change.instances) > MAX_INSTANCES:
        message = (
            f"group {name!r}: at most {MAX_LABELS} labels, claims and job labels each, and {MAX_INSTANCES} instances"
        )
        raise TobanError(ErrorCode.INVALID_ARGUMENT, message)
    both = sorted(set(change.claims) & set(change.labels))
    if both:
        message = f"group {name!r} has label {both[0]}={change.labels[both[0]]}, so its executors cannot claim {both[0]} too; drop one of the two"
        raise TobanError(ErrorCode.INVALID_ARGUMENT, message)
    if STEPS_LABEL in change.labels:
        message = f"an executor says itself by {STEPS_LABEL} what it is set up for; a group may only allow it: --claim {STEPS_LABEL}"
        raise TobanError(ErrorCode.INVALID_ARGUMENT, message)
    if ANY in change.labels:
        raise TobanError(ErrorCode.INVALID_ARGUMENT, f"{ANY!r} is no name of a label; claims may have it")
    return ExecutorGroup(
        name=name, labels=dict(change.labels), claims=frozenset(change.claims), job_labels=dict(job_labels)
    )


async def selector_problems(t: Tx, spec: JobSpec) -> list[tuple[str, str, str]]:
    """(path, message, remedy) of each label of its selector that is of groups only that do not run this job."""
    if not spec.selector.labels:
        return []
    groups = [one.rules for one in (await executor_groups.groups(t)).values()]
    found = []
    for key, value in spec.selector.labels.items():
        closed = closed_to(spec.labels, key, value, groups)
        if closed is not None:
            needed = ", ".join(f"{one}={wanted}" for one, wanted in sorted(closed.job_labels.items()))
            message = f"{key}={value} is a label of executor group {closed.name!r}, which runs jobs with the labels {needed} only"
            found.append(
                (f"spec.selector.labels.{key}", message, "give the job these labels, or select other executors")
            )
    return found


def _check_text(what: str, text: str) -> None:
    if not 0 < len(text) <= MAX_TEXT or not text.isprintable():
        raise TobanError(ErrorCode.INVALID_ARGUMENT, f"{what} must have 1 to {MAX_TEXT} printable characters")


def _facts(rules: ExecutorGroup) -> dict[str, Any]:
    return {"labels": dict(rules.labels), "claims": sorted(rules.claims), "job_labels": dict(rules.job_labels)}


async def _not_found(t: Tx, name: str) -> TobanError:
    remedy = "see `toban group list`, or make it: toban group add NAME"
    return await not_found(t, "executor group", name, remedy)
