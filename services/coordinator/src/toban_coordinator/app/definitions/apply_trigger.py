"""Applies triggers of events, inside the transaction of one Apply."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from toban_coordinator.app.manifests import Applied
from toban_coordinator.app.named_objects import changed
from toban_coordinator.app.write_batches import WriteBatches
from toban_coordinator.store.cluster.audit import AdminAction
from toban_coordinator.store.definitions import triggers
from toban_coordinator.store.definitions.jobs import Head
from toban_coordinator.store.definitions.triggers import StoredTrigger
from toban_domain.event import TriggerSpec
from toban_domain.job import JobSpec
from toban_domain.redacted import masked_payload_of
from toban_manifests.problems import ManifestProblem, raise_for
from toban_manifests.read import Manifest
from toban_store.tx import Tx

# One event starts all its runs in one short transaction.
MAX_TRIGGERS_OF_TYPE = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class TriggerWriter:
    """The triggers of one Apply; what it does is added to `noted`."""

    t: Tx
    actor: str
    reason: str
    noted: WriteBatches[AdminAction]

    async def lock(self, wanted: Sequence[tuple[Manifest, TriggerSpec]]) -> Mapping[str, StoredTrigger]:
        """Those that exist, locked. Raises MANIFEST_INVALID when a type of event would have too many triggers."""
        if not wanted:
            return {}
        stored = await triggers.lock_named(self.t, [spec.name for _, spec in wanted])
        others = await triggers.count_of_types(
            self.t, sorted({spec.event_type for _, spec in wanted}), without=[spec.name for _, spec in wanted]
        )
        raise_for(_too_many(wanted, dict(others)))
        return stored

    async def apply(
        self, spec: TriggerSpec, old: StoredTrigger | None, head: Head, job: JobSpec, digest: str
    ) -> Applied:
        """created, updated or unchanged; `head` and `job` are the definition that it will start."""
        if old is not None and old.spec_hash == digest and old.definition_id == head.id:
            return Applied(kind="EventTrigger", name=spec.name, action="unchanged", version=old.version)
        if old is None:
            version = await triggers.create(self.t, spec, digest, definition_id=head.id, actor=self.actor)
        else:
            version = await triggers.update(self.t, old, spec, digest, definition_id=head.id, actor=self.actor)
        if version is None:
            raise changed("trigger", spec.name)
        hidden = {*job.logs.redact, *(old.redact if old else ())}
        await self.noted.add(_action(self.actor, self.reason, old, spec, version, hidden))
        return Applied(kind="EventTrigger", name=spec.name, action="updated" if old else "created", version=version)


def _action(
    actor: str,
    reason: str,
    old: StoredTrigger | None,
    spec: TriggerSpec,
    version: int,
    hidden: Collection[str],
) -> AdminAction:
    return AdminAction(
        actor=actor,
        action="trigger.update" if old else "trigger.create",
        target=f"trigger {spec.name}",
        before={"version": old.version, "spec": masked_payload_of(old.spec, hidden)} if old else None,
        after={"version": version, "spec": masked_payload_of(spec.to_json(), hidden)},
        reason=reason,
    )


def _too_many(wanted: Sequence[tuple[Manifest, TriggerSpec]], counts: dict[str, int]) -> list[ManifestProblem]:
    problems = []
    for manifest, spec in wanted:
        counts[spec.event_type] = counts.get(spec.event_type, 0) + 1
        if counts[spec.event_type] > MAX_TRIGGERS_OF_TYPE:
            message = (
                f"{spec.event_type!r} has {MAX_TRIGGERS_OF_TYPE} triggers already, the most that one type may have"
            )
            hint = "remove one (`toban trigger delete`), or emit several types"
            problems.append(ManifestProblem(manifest.source, "spec.event_type", message, hint))
    return problems
