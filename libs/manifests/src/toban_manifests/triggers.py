"""`kind: EventTrigger`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, PlainValidator, WithJsonSchema
from pydantic_core import PydanticCustomError

from toban_domain.event import EVENT_TYPE, EVENT_TYPE_HINT, TriggerSpec
from toban_domain.event_filter import MAX_CONDITIONS, condition_problem, split_path
from toban_domain.event_mapping import KNOWN, MAX_REFERENCES, reference_problem, references, texts_of, whole_reference
from toban_domain.nearest import nearest
from toban_manifests.section import Section, key, problem, raise_problems
from toban_manifests.values import ManifestModel, Name, Text, check_json

_MAX_TEXT = 1000


def _check_event_type(value: str) -> str:
    if not EVENT_TYPE.fullmatch(value):
        raise problem(f"{value[:60]!r} is not a type of event", EVENT_TYPE_HINT)
    return value


def _read_filter(value: Any) -> dict[str, Any]:
    found = check_json(value)
    raise_problems(_filter_problems(found))
    return found


def _filter_problems(conditions: dict[Any, Any]) -> Iterator[PydanticCustomError]:
    if len(conditions) > MAX_CONDITIONS:
        yield problem(f"has {len(conditions)} conditions", f"use at most {MAX_CONDITIONS}")
    for path, condition in conditions.items():
        if not isinstance(path, str) or not split_path(path):
            yield problem(f"{path!r} is not a path", "write the keys of the event's payload joined by dots: order.id")
            continue
        below, message, hint = condition_problem(condition)
        if message:
            yield problem(message, hint, below=f".{path}{below}")


def _read_payload(value: Any) -> dict[str, Any] | str:
    found = value if isinstance(value, str) else check_json(value)
    if isinstance(found, str) and (not whole_reference(found) or len(found) > _MAX_TEXT):
        raise problem("must be a mapping, is text", 'write `name: value` lines below it, or "{{ event.payload }}"')
    raise_problems(_reference_problems(found))
    return found


def _reference_problems(mapping: dict[str, Any] | str) -> Iterator[PydanticCustomError]:
    texts = list(texts_of(mapping))
    for below, text in texts:
        message, name = reference_problem(text)
        if message:
            near = nearest(name, KNOWN) if name else ""
            hint = f"did you mean {near!r}?" if near else f"known: {', '.join(f'{{{{ {name} }}}}' for name in KNOWN)}"
            yield problem(message, hint, below=below)
    if sum(len(references(text)) for _, text in texts) > MAX_REFERENCES:
        yield problem(f"has more than {MAX_REFERENCES} references", "pass the whole {{ event.payload }} instead")


class EventTrigger(Section):
    """The spec of a trigger."""

    MEANT = {
        "event": "event_type",
        "type": "event_type",
        "on": "event_type",
        "definition": "job",
        "when": "filter",
        "match": "filter",
        "params": "payload",
        "mapping": "payload",
        "payload_mapping": "payload",
    }

    event_type: Annotated[
        Text,
        AfterValidator(_check_event_type),
        WithJsonSchema({"type": "string", "pattern": f"^{EVENT_TYPE.pattern}$"}),
    ] = key(..., "the type of the events; letters, digits and `. _ : / -`, at most 128", "order.paid")
    job: Name = key(..., "the job to run", "invoice", type_name="name")
    enabled: bool = key(True, "a disabled trigger starts nothing", False)
    filter: Annotated[dict[str, Any], PlainValidator(_read_filter), WithJsonSchema({"type": "object"})] = key(
        {},
        "all must hold. A path is keys of the event's payload joined by dots; a condition is a value, a list of values, or operators: "
        "`exists prefix suffix gt gte lt lte not`",
        {"order.total": {"gte": 100}, "order.country": ["DE", "AT"]},
        type_name="path to condition",
    )
    payload: Annotated[
        dict[str, Any] | str,
        PlainValidator(_read_payload),
        WithJsonSchema({"anyOf": [{"type": "object"}, {"type": "string", "maxLength": _MAX_TEXT}]}),
    ] = key(
        {},
        "laid over the job's `default_payload`; its texts may refer to the event: `{{ event.payload.a.b }}`, `{{ event.payload }}`, "
        "`{{ event.type }}`, `{{ event.id }}`, `{{ event.dedupe_key }}`",
        {"order": "{{ event.payload.order.id }}"},
        type_name="mapping, or one reference",
    )


class EventTriggerManifest(ManifestModel):
    """Which events start a job, and with which payload."""

    EXAMPLE = """\
apiVersion: toban/v1
kind: EventTrigger
metadata: {name: invoice-when-paid}
spec: {event_type: order.paid, job: invoice}
"""

    kind: Literal["EventTrigger"]
    spec: EventTrigger

    def to_spec(self) -> TriggerSpec:
        """As the domain has it."""
        return TriggerSpec(**vars(self.metadata), **vars(self.spec))
