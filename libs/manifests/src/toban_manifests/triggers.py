"""`kind: EventTrigger`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, PlainValidator, WithJsonSchema
from pydantic_core import PydanticCustomError

from toban_domain.event import EVENT_TYPE, EVENT_TYPE_HINT, TriggerSpec
from toban_domain.event_filter import MAX_CONDITIONS, condition_problem, split_path
from toban_domain.event_mapping import (
    KNOWN,
    KNOWN_OF_RUN_END,
    MAX_REFERENCES,
    reference_problem,
    references,
    texts_of,
    whole_reference,
)
from toban_domain.nearest import nearest
from toban_domain.payload import kind_of
from toban_domain.run_end import DEFAULT_STATES, ROOTS, RUN_END_STATES, RunEndSpec
from toban_manifests.section import Reading, Section, key, part, problem, raise_problems
from toban_manifests.values import Labels, ManifestModel, Name, Text, check_json

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
        hint = 'write `name: value` lines below it, or "{{ event.payload }}", of a run that ended "{{ result }}"'
        raise problem("must be a mapping, is text", hint)
    return found


def _reference_problems(mapping: dict[str, Any] | str, *, of_run: bool) -> Iterator[PydanticCustomError]:
    texts = list(texts_of(mapping))
    known = KNOWN_OF_RUN_END if of_run else KNOWN
    for below, text in texts:
        message, name = reference_problem(text, of_run=of_run)
        if message:
            near = nearest(name, known) if name else ""
            hint = f"did you mean {near!r}?" if near else f"known: {', '.join(f'{{{{ {name} }}}}' for name in known)}"
            yield problem(message, hint, below=f".payload{below}")
    if sum(len(references(text)) for _, text in texts) > MAX_REFERENCES:
        yield problem(
            f"has more than {MAX_REFERENCES} references",
            "pass a whole object instead, such as {{ event.payload }}",
            below=".payload",
        )


def _read_states(value: Any) -> list[str]:
    if not isinstance(value, list) or not value:
        raise problem(f"must be a list of states, is {kind_of(value)}", f"list some of {', '.join(RUN_END_STATES)}")
    for one in value:
        if one not in RUN_END_STATES:
            near = nearest(str(one).upper(), RUN_END_STATES)
            hint = f"did you mean {near}?" if near else f"use some of {', '.join(RUN_END_STATES)}"
            raise problem(f"has {str(one)[:60]!r}, which is no state in which a run ends", hint)
    return sorted(set(value), key=RUN_END_STATES.index)


class OnRunEnd(Section):
    """Which ends of runs start the job."""

    job: Name | None = key(None, "the job whose runs", "extract", type_name="name", unset="labels choose the jobs")
    labels: Labels = key(
        {}, "runs of all jobs with these labels, but not of `job` of the trigger itself", {"team": "etl"}
    )
    states: Annotated[
        list[str],
        PlainValidator(_read_states),
        WithJsonSchema({"type": "array", "items": {"enum": list(RUN_END_STATES)}, "minItems": 1}),
    ] = key(
        list(DEFAULT_STATES),
        f"how they end: {', '.join(RUN_END_STATES)}; LATE is SKIPPED because the run was late",
        ["FAILED", "TIMED_OUT"],
        type_name="list of states",
    )


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

    event_type: (
        Annotated[
            Text,
            AfterValidator(_check_event_type),
            WithJsonSchema({"type": "string", "pattern": f"^{EVENT_TYPE.pattern}$"}),
        ]
        | None
    ) = key(
        None,
        "the type of the events; letters, digits and `. _ : / -`, at most 128",
        "order.paid",
        type_name="text",
        unset="required unless `on_run_end` is given",
    )
    on_run_end: OnRunEnd = part(OnRunEnd, "ends of runs in place of events ([chains.md](chains.md))")
    job: Name = key(..., "the job to run", "invoice", type_name="name")
    enabled: bool = key(True, "a disabled trigger starts nothing", False)
    filter: Annotated[dict[str, Any], PlainValidator(_read_filter), WithJsonSchema({"type": "object"})] = key(
        {},
        "all must hold. A path is keys of the event's payload, or of {run, result, payload} of a run that ended, joined by dots; a condition is a "
        "value, a list of values, or operators: "
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
        "`{{ event.type }}`, `{{ event.id }}`, `{{ event.dedupe_key }}`; or to the run that ended: `{{ run.id }}`, `{{ result.a.b }}`, "
        "`{{ payload }}`",
        {"order": "{{ event.payload.order.id }}"},
        type_name="mapping, or one reference",
    )

    @classmethod
    def check_before(cls, given: dict[str, Any]) -> Iterator[PydanticCustomError]:
        """Events or ends of runs, one of them."""
        if "event_type" in given and "on_run_end" in given:
            yield problem(
                "stands beside event_type", "a trigger has one of them: take the other away", below=".on_run_end"
            )
        elif given.get("event_type") == "":
            yield problem("is empty", "write a value after `event_type:`", below=".event_type")
            del given["event_type"]
        elif "event_type" not in given and "on_run_end" not in given:
            yield problem("is missing", "add `event_type:`, or `on_run_end:` for ends of runs", below=".event_type")

    @classmethod
    def check_after(cls, given: dict[str, Any], wrong: set[str], reading: Reading) -> Iterator[PydanticCustomError]:
        """References of the payload, and which runs."""
        del reading
        of_run = "on_run_end" in given
        if "payload" in given and "payload" not in wrong:
            yield from _reference_problems(given["payload"], of_run=of_run)
        if not of_run or "on_run_end" in wrong:
            return
        source = {name: item for name, item in given["on_run_end"].items() if item}
        if ("job" in source) == ("labels" in source):
            what = "has both job and labels" if "job" in source else "names no runs"
            yield problem(what, "give exactly one of job, labels", below=".on_run_end")
        elif "job" not in wrong and source.get("job") == given.get("job"):
            hint = "a run would start the next one for ever; give another job, or a schedule"
            yield problem("is the job that the trigger starts", hint, below=".on_run_end.job")
        for path in given.get("filter", {}) if "filter" not in wrong else ():
            if split_path(path)[0] not in ROOTS:
                yield problem(
                    "begins with none of them", f"begin with {', '.join(ROOTS)}: run.exit_code", below=f".filter.{path}"
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
        given = dict(vars(self.spec))
        source: OnRunEnd = given.pop("on_run_end")
        event_type = given.pop("event_type") or ""
        ends = None
        if not event_type:
            ends = RunEndSpec(job=source.job or "", labels=source.labels, states=tuple(source.states))
            event_type = ends.event_type
        return TriggerSpec(**vars(self.metadata), **given, event_type=event_type, on_run_end=ends)
