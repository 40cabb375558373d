"""Masks that come back in manifests: an editor of what was shown keeps the values that they could not see."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from toban_coordinator.store.definitions import jobs
from toban_coordinator.store.definitions.jobs import Definition
from toban_domain.errors import TobanError
from toban_domain.job import JobSpec
from toban_domain.payload import canonical_json
from toban_domain.redacted import MASK, unmasked
from toban_manifests.problems import ManifestProblem, raise_for
from toban_manifests.read import Manifest
from toban_store.tx import Tx

_QUOTED = f'"{MASK}"'


@dataclass(frozen=True, slots=True)
class _Stored:
    """A value as it is stored, and the names that hide parts of it until now."""

    value: Any = None
    hidden: Collection[str] = ()


def carries_mask(manifest: Manifest) -> bool:
    """Whether a value of the manifest could be a mask."""
    spec = manifest.spec
    values = (spec.env, spec.default_payload) if isinstance(spec, JobSpec) else (spec.payload,)
    return any(_QUOTED in canonical_json(value) for value in values)


async def with_stored_values(
    t: Tx, manifests: Sequence[Manifest], definitions: Mapping[str, Definition]
) -> list[Manifest]:
    """The manifests with stored values in place of masks; `definitions` are the locked ones that they name.

    Raises MANIFEST_INVALID for each document with a mask that stands for no stored value.
    """
    masks = [manifest for manifest in manifests if carries_mask(manifest)]
    if not masks:
        return list(manifests)
    wanted = {m.name: m.spec.logs.redact for m in manifests if isinstance(m.spec, JobSpec)}
    known = {name: one.spec.logs.redact for name, one in definitions.items() if one.spec is not None}
    payloads = await _stored_payloads(t, masks, definitions, known)
    problems: list[ManifestProblem] = []
    kept = dict[int, Manifest]()
    for manifest in masks:
        try:
            if isinstance(manifest.spec, JobSpec):
                spec: Any = _job(manifest.spec, definitions.get(manifest.name))
            else:
                names = wanted.get(manifest.spec.job, known.get(manifest.spec.job, ()))
                stored = payloads.get((manifest.kind, manifest.name), _Stored())
                payload = unmasked(manifest.spec.payload, stored.value, names, stored.hidden, "spec.payload")
                spec = replace(manifest.spec, payload=payload)
            kept[id(manifest)] = replace(manifest, spec=spec)
        except TobanError as error:
            path = str(error.detail["path"])
            message = error.message.removeprefix(f"{path}: ").removesuffix(f"; {error.detail['hint']}")
            problems.append(ManifestProblem(manifest.source, path, message, str(error.detail["hint"])))
    raise_for(problems)
    return [kept.get(id(manifest), manifest) for manifest in manifests]


def _job(spec: JobSpec, old: Definition | None) -> JobSpec:
    stored = old.spec if old else None
    names, hidden = spec.logs.redact, stored.logs.redact if stored else ()
    return replace(
        spec,
        env=unmasked(spec.env, stored.env if stored else None, names, hidden, "spec.env"),
        default_payload=unmasked(
            spec.default_payload, stored.default_payload if stored else None, names, hidden, "spec.default_payload"
        ),
    )


async def _stored_payloads(
    t: Tx, masks: Sequence[Manifest], definitions: Mapping[str, Definition], known: Mapping[str, Collection[str]]
) -> dict[tuple[str, str], _Stored]:
    """Payloads of the schedules and triggers by kind and name: of those alone that start the same job as before."""
    jobs_of = {(m.kind, m.name): m.spec.job for m in masks if not isinstance(m.spec, JobSpec)}
    found: dict[tuple[str, str], _Stored] = {}
    for row in await jobs.stored_payloads(t, [name for _, name in jobs_of]) if jobs_of else []:
        key = (row["kind"], row["name"])
        job = jobs_of.get(key, "")
        if job in known and definitions[job].id == row["definition_id"]:
            found[key] = _Stored(row["payload"], known[job])
    return found
