"""Reads the spec of `kind: EventTrigger`."""

from __future__ import annotations

from typing import Any

from toban_domain.event import EVENT_TYPE, EVENT_TYPE_HINT, TriggerSpec
from toban_domain.event_filter import MAX_CONDITIONS, condition_problem, split_path
from toban_domain.event_mapping import KNOWN, MAX_REFERENCES, reference_problem, references, texts_of, whole_reference
from toban_domain.manifest.fields import Fields
from toban_domain.manifest.jobs import read_payload
from toban_domain.manifest.meta import Meta
from toban_domain.manifest.problems import nearest

_MAX_TEXT = 1000


def read_trigger(meta: Meta, spec: Fields) -> TriggerSpec:
    """The trigger; what is wrong is in the problems of `spec`. The server checks that the job exists."""
    trigger = TriggerSpec(
        name=meta.name,
        event_type=_event_type(spec),
        job=spec.name("job"),
        description=meta.description,
        labels=meta.labels,
        enabled=spec.flag("enabled", True),
        filter=_filter(spec),
        payload=_payload(spec),
    )
    spec.done(
        event="event_type",
        type="event_type",
        on="event_type",
        definition="job",
        when="filter",
        match="filter",
        params="payload",
        mapping="payload",
        payload_mapping="payload",
    )
    return trigger


def _event_type(spec: Fields) -> str:
    value = spec.text("event_type", required=True)
    if value and not EVENT_TYPE.fullmatch(value):
        spec.bad("event_type", f"{value[:60]!r} is not a type of event", EVENT_TYPE_HINT)
    return value


def _filter(spec: Fields) -> dict[str, Any]:
    found = read_payload(spec, "filter")
    if len(found) > MAX_CONDITIONS:
        spec.bad("filter", f"has {len(found)} conditions", f"use at most {MAX_CONDITIONS}")
    for path, condition in found.items():
        if not isinstance(path, str) or not split_path(path):
            spec.bad(
                "filter", f"{path!r} is not a path", "write the keys of the event's payload joined by dots: order.id"
            )
            continue
        below, message, hint = condition_problem(condition)
        if message:
            spec.bad(f"filter.{path}{below}", message, hint)
    return found


def _payload(spec: Fields) -> dict[str, Any] | str:
    value = spec.raw("payload")
    found = value if isinstance(value, str) else read_payload(spec, "payload")
    if isinstance(found, str) and (not whole_reference(found) or len(found) > _MAX_TEXT):
        spec.bad(
            "payload", "must be a mapping, is text", 'write `name: value` lines below it, or "{{ event.payload }}"'
        )
        return {}
    texts = list(texts_of(found))
    for below, text in texts:
        problem, name = reference_problem(text)
        if problem:
            near = nearest(name, KNOWN) if name else ""
            hint = f"did you mean {near!r}?" if near else f"known: {', '.join(f'{{{{ {name} }}}}' for name in KNOWN)}"
            spec.bad(f"payload{below}", problem, hint)
    if sum(len(references(text)) for _, text in texts) > MAX_REFERENCES:
        spec.bad("payload", f"has more than {MAX_REFERENCES} references", "pass the whole {{ event.payload }} instead")
    return found
