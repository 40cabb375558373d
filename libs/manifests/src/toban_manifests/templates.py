"""References in texts of a job or schedule: what can be known to be wrong before a run (docs/jobs.md)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from typing import Any

from pydantic_core import PydanticCustomError

from toban_domain import template
from toban_domain.job import GUARDED_STEPS
from toban_domain.nearest import suggestion
from toban_domain.shell_detection import django_reason, templates_in_code
from toban_manifests.section import problem

_PAYLOAD = "payload."
# What may not be a template as the first element of argv, and the remedy.
_PROGRAM = ("is the program, which cannot be a template", "name the program")
_ENTRY = ("may be the program of the container, which cannot be a template", "put an option before it, or use `env`")


def job_problems(job: Mapping[str, Any], wrong: Set[str]) -> Iterator[PydanticCustomError]:
    """Of steps and `env`, as far as these keys themselves are sound."""
    known = None if wrong & {"payload_schema", "default_payload"} else _known_keys(job)
    if "env" not in wrong:
        for name, text in (job.get("env") or {}).items():
            yield from _text_problems(text, f".env.{name}", known)
    if "steps" not in wrong:
        for index, step in enumerate(job.get("steps") or ()):
            yield from _step_problems(step, f".steps[{index}]", known)


def schedule_problems(payload: Mapping[str, Any]) -> Iterator[PydanticCustomError]:
    """Of the payload of a schedule."""
    for at, text in template.texts_of(payload):
        message, hint = template.problem(text, template.SCHEDULE) if template.MARK in text else ("", "")
        if message:
            yield problem(message, hint, below=f".payload{at}")


def _step_problems(step: Mapping[str, Any], at: str, known: Set[str] | None) -> Iterator[PydanticCustomError]:
    yield from _argv_problems(step.get("argv") or (), f"{at}.argv", known)
    reason = django_reason(step.get("command") or "")
    for index, word in enumerate(step.get("args") or ()):
        below = f"{at}.args[{index}]"
        if reason and template.MARK in word and not template.is_literal(word):
            yield problem(f"may be code: {reason}", "write a command of your own that takes the value", below=below)
        else:
            yield from _text_problems(word, below, known)
    trees = {}
    for name in GUARDED_STEPS:
        image = step.get(name) or {}
        yield from _argv_problems(image.get("argv") or (), f"{at}.{name}.argv", known, first=_ENTRY)
        trees[f"{at}.{name}.env"] = image.get("env")
    trees |= {f"{at}.http.{key}": (step.get("http") or {}).get(key) for key in template.IN_HTTP}
    for path, tree in trees.items():
        for below, text in template.texts_of(tree, path):
            yield from _text_problems(text, below, known)


def _argv_problems(
    argv: Sequence[str], at: str, known: Set[str] | None, *, first: tuple[str, str] = _PROGRAM
) -> Iterator[PydanticCustomError]:
    code = templates_in_code(argv)
    for index, word in enumerate(argv):
        if template.MARK not in word:
            continue
        below = f"{at}[{index}]"
        if index == 0:
            yield problem(*first, below=below)
        elif index in code:
            yield problem(code[index].problem, code[index].remedy, below=below)
        else:
            yield from _text_problems(word, below, known)


def _text_problems(text: str, below: str, known: Set[str] | None) -> Iterator[PydanticCustomError]:
    if template.MARK not in text:
        return
    message, hint = template.problem(text, template.STEP)
    if message:
        yield problem(message, hint, below=below)
        return
    for name in template.references(text):
        key = name.removeprefix(_PAYLOAD).partition(".")[0]
        if known is not None and name.startswith(_PAYLOAD) and key not in known:
            hint = suggestion(key, known, "add it to `properties` of payload_schema")
            yield problem(f"refers to {name!r}, which payload_schema does not allow", hint, below=below)


def _known_keys(job: Mapping[str, Any]) -> Set[str] | None:
    """The keys that a payload can have; None: any."""
    schema = job.get("payload_schema")
    if not isinstance(schema, Mapping) or schema.get("additionalProperties") is not False:
        return None
    if any(name in schema for name in ("patternProperties", "allOf", "anyOf", "oneOf", "$ref", "if")):
        return None
    return payload_keys(job, schema)


def payload_keys(job: Mapping[str, Any], schema: Mapping[str, Any]) -> Set[str]:
    """The keys that a payload_schema and the default payload name. What `properties` must be is not checked here."""
    named = schema.get("properties")
    return {*(named if isinstance(named, Mapping) else ()), *(job.get("default_payload") or {})}
