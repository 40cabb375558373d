"""The targets of a request: which jobs, with which labels and scopes, a person must have the right to."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace

from toban_coordinator.app.manifests import ManifestText, parse_json
from toban_coordinator.app.people import further_needs
from toban_coordinator.app.people.further_needs import Further
from toban_coordinator.store.definitions import targets
from toban_domain.access import Target
from toban_domain.job import JobSpec
from toban_domain.schedule import ScheduleSpec
from toban_manifests.read import Document, Manifest, read_manifests
from toban_schedule import problems as rule_problems
from toban_store.pool import Pool
from toban_store.tx import Tx, autocommit

KINDS = {"Job": "job", "Schedule": "schedule", "EventTrigger": "trigger"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Named:
    """What a request names: objects of one kind, or manifests to apply. `scopes`: for each key the scope and its id, where the request has them."""

    kind: str = "job"
    keys: Sequence[str] = ()
    scopes: Sequence[tuple[str, str]] = ()
    manifests: Sequence[ManifestText] = ()
    # Of runs to start: the key of each, and the priority that is asked for.
    priorities: Sequence[tuple[str, int]] = ()
    # Another scope that each of them gets as well.
    into: tuple[str, str] | None = None


@dataclass(frozen=True, slots=True)
class Targets:
    """What a request is about, and what else it needs."""

    about: list[Target]
    further: list[Further]


async def find_targets(pool: Pool, named: Named) -> Targets:
    """Each target once it exists, or will by a manifest; none for an object that does not exist. Raises MANIFEST_INVALID, SCHEDULE_INVALID."""
    manifests = await asyncio.to_thread(_read, named.manifests) if named.manifests else []
    async with autocommit(pool) as t:
        by_key = await targets.find(t, named.kind, named.keys)
        found = list(by_key.values())
        if named.scopes:
            wanted = zip(named.keys, named.scopes, strict=True)
            found = [replace(by_key[key], scope=one[0], scope_id=one[1]) for key, one in wanted if key in by_key]
        if named.into is not None:
            found += [replace(one, scope=named.into[0], scope_id=named.into[1]) for one in found]
        if not manifests:
            asked = [(by_key[key].job, priority) for key, priority in named.priorities if key in by_key]
            return Targets(found, await further_needs.of_starts(t, asked))
        return Targets(found + await _of_manifests(t, manifests), await further_needs.of_manifests(t, manifests))


async def find_by_key(pool: Pool, kind: str, keys: Sequence[str]) -> dict[str, Target]:
    """The target of each object that exists."""
    async with autocommit(pool) as t:
        return await targets.find(t, kind, keys)


def _read(texts: Sequence[ManifestText]) -> list[Manifest]:
    documents = [
        Document(text.source or f"document {i}", parse_json(text.json, text.source or "a document"))
        for i, text in enumerate(texts, start=1)
    ]
    return read_manifests(documents, check_rule=rule_problems)


async def _of_manifests(t: Tx, manifests: Sequence[Manifest]) -> list[Target]:
    """What is stored under their names now, and what they make of it: who may change only one of the two may not move a job between them."""
    before: list[Target] = []
    for kind, word in KINDS.items():
        before += (await targets.find(t, word, [m.name for m in manifests if m.kind == kind])).values()
    made = {m.name: Target(job=m.name, labels=m.spec.labels) for m in manifests if isinstance(m.spec, JobSpec)}
    users = [m.spec for m in manifests if not isinstance(m.spec, JobSpec)]
    stored = await targets.find(t, "job", sorted({spec.job for spec in users}))
    after = list(made.values())
    for spec in users:
        job = made.get(spec.job) or stored.get(spec.job) or Target(job=spec.job)
        scope = (spec.scope, spec.scope_id) if isinstance(spec, ScheduleSpec) else ("system", "")
        after.append(replace(job, scope=scope[0], scope_id=scope[1]))
    return before + after
