"""Whether the payloads of schedules and triggers fit their jobs: checked at apply, not when the first slot or event comes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from toban_coordinator.app.large_payload import CheckPending
from toban_coordinator.app.payload_validator import PayloadValidator
from toban_coordinator.store.definitions import jobs
from toban_coordinator.store.definitions.jobs import Definition
from toban_domain.errors import ErrorCode, TobanError
from toban_domain.event import TriggerSpec
from toban_domain.job import JobSpec
from toban_domain.schedule import ScheduleSpec
from toban_domain.template import has_template, texts_of
from toban_manifests.problems import ManifestProblem, raise_for
from toban_manifests.read import Manifest
from toban_runtime.clock import SystemClock
from toban_runtime.cooperative_yield import CooperativeYield
from toban_store.tx import Tx

# For which the payload of a schedule is checked when its texts refer to the slot. No message has its values.
EXAMPLE_SLOT = datetime(2026, 1, 1, tzinfo=UTC)
_NOUNS = {"Schedule": "schedule", "EventTrigger": "trigger"}


@dataclass(frozen=True, slots=True)
class _Misfit:
    """One mistake: the path within the payload ("payload.n"), and what is wrong there."""

    path: str
    message: str
    code: ErrorCode


class PayloadFit:
    """Of one apply: each schema is compiled once. `specs` are the jobs as they will be."""

    def __init__(self, specs: Mapping[str, JobSpec]) -> None:
        self._specs = specs
        self._keys = {name: (number, 0) for number, name in enumerate(specs)}
        self._plain = PayloadValidator()
        self._hiding = PayloadValidator(hides_values=True)
        self._pause = CooperativeYield(SystemClock())

    async def check(self, manifests: Sequence[Manifest]) -> None:
        """Raises PAYLOAD_INVALID for every payload of a schedule or trigger that does not fit its job; one that refers to an event is left out."""
        problems = []
        for manifest in manifests:
            spec = manifest.spec
            if isinstance(spec, JobSpec) or (isinstance(spec, TriggerSpec) and _of_event(spec.payload)):
                continue
            await self._pause.yield_if_due()
            remedy = f"change it, or `payload_schema` of job {spec.job!r}"
            for one in self._misfits(spec):
                problems.append(ManifestProblem(manifest.source, f"spec.{one.path}", one.message, remedy, one.code))
        raise_for(problems)

    async def check_kept(self, t: Tx, wanted: Sequence[Manifest], old: Mapping[str, Definition]) -> None:
        """Raises PAYLOAD_INVALID when a job of `wanted` would refuse what its schedules and triggers give it now, other than those of `wanted`
        itself. Payloads with templates or references to an event are left out, and so are those that do not fit the job as it is.
        """
        changed = {
            stored.id: (one, one.spec, stored.spec)
            for one in wanted
            if isinstance(one.spec, JobSpec) and (stored := old.get(one.name)) is not None
            if stored.spec is not None and _refuses_more(one.spec, stored.spec)
        }
        replaced = {(one.kind, one.name) for one in wanted}
        before = PayloadFit({spec.name: spec for _, _, spec in changed.values()})
        problems = []
        for row in await jobs.payloads_of(t, list(changed)):
            job, spec, was = changed[row["definition_id"]]
            payload = row["payload"] or {}
            if (row["kind"], row["name"]) in replaced or _of_event(payload) or has_template(payload):
                continue
            await self._pause.yield_if_due()
            hides = bool(spec.logs.redact or was.logs.redact)
            if (found := self._first(job.name, payload, hides=hides)) and not before._first(job.name, payload):
                message = f"{_NOUNS[row['kind']]} {row['name']!r} would fail: {found.path}: {found.message}"
                remedy = "change its payload in the same apply, or use --force (`force` in REST)"
                problems.append(ManifestProblem(job.source, "spec.payload_schema", message, remedy, found.code))
        raise_for(problems)

    def _misfits(self, spec: ScheduleSpec | TriggerSpec) -> Iterator[_Misfit]:
        """Of a value that comes from a template the template is named, not what the example makes of it."""
        templates = isinstance(spec, ScheduleSpec) and spec.has_template
        try:
            payload = spec.payload_at(EXAMPLE_SLOT) if isinstance(spec, ScheduleSpec) else spec.payload
            assert isinstance(payload, Mapping), "one that is a reference is left out"
        except TobanError as error:
            yield _Misfit("payload", error.message, error.code)
            return
        written = dict(_texts(spec.payload)) if templates else {}
        for one in self._found(spec.job, payload, hides=templates):
            text = written.get(one.path)
            message = one.message.replace("the value", f"the value of {text!r}", 1) if text else one.message
            yield _Misfit(one.path, message, one.code)

    def _first(self, job: str, payload: Mapping[str, Any], *, hides: bool = False) -> _Misfit | None:
        return next(iter(self._found(job, payload, hides=hides)), None)

    def _found(self, job: str, payload: Mapping[str, Any], *, hides: bool) -> list[_Misfit]:
        try:
            (self._hiding if hides else self._plain).make(self._keys[job], self._specs[job], payload)
        except CheckPending:
            raise
        except TobanError as error:
            errors = error.detail.get("errors") or [{"path": "payload", "message": error.message}]
            return [_Misfit(one["path"], one["message"], error.code) for one in errors]
        return []


def _refuses_more(new: JobSpec, old: JobSpec) -> bool:
    """Whether payloads that fitted may not fit any more."""
    return new.payload_schema is not None and (
        new.payload_schema != old.payload_schema or new.default_payload != old.default_payload
    )


def _of_event(payload: Any) -> bool:
    return isinstance(payload, str) or any("{{" in text for _, text in texts_of(payload))


def _texts(payload: Any) -> Iterator[tuple[str, str]]:
    for path, text in texts_of(payload):
        if has_template(text):
            yield f"payload{path}", text
