"""Templates: texts of a definition or schedule with references, filled in when a run is made or sent. Nothing is computed.

`${{ payload.user.id }}` is replaced by the value at that path, `${{ payload.user.id ?? "none" }}` by the JSON value behind `??` when there
is none. `$${{` is a literal `${{`. In a text, strings are inserted as they are, null as nothing, other values as JSON. Where a JSON tree is
expanded, a string that is exactly one reference becomes the value itself, with its type. What is inserted is never looked at again.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from toban_domain.errors import ErrorCode, TobanError
from toban_domain.event_filter import MISSING, split_path, value_at
from toban_domain.nearest import nearest
from toban_domain.payload import canonical_json

MARK = "${{"
# Bounds of one text: references, and characters of the result. The kernel takes arguments of up to 128 KiB.
MAX_REFERENCES = 100
MAX_RESULT = 64 * 1024
_REFERENCE = re.compile(r"\$\$\{\{|\$\{\{(.*?)\}\}", re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class Names:
    """What texts of one kind may refer to: `plain` names, and `trees` into which paths lead."""

    plain: tuple[str, ...]
    trees: tuple[str, ...] = ()

    def knows(self, name: str) -> bool:
        """Whether there can be such a value."""
        if name in self.plain or name in self.trees:
            return True
        return any(name.startswith(f"{tree}.") and split_path(name[len(tree) + 1 :]) for tree in self.trees)

    def __str__(self) -> str:
        return ", ".join([*self.plain, *self.trees, *(f"{tree}.KEY" for tree in self.trees)])


STEP = Names(plain=("slot", "slot.date", "run.id", "run.attempt", "run.job"), trees=("payload", "previous.result"))
"""In texts of steps (`step_texts`) and in `env` of a job. `slot` is empty for a run on demand;
`previous.result` is that of the last run that succeeded."""

SCHEDULE = Names(plain=("slot", "slot.date", "schedule.name"))
"""In the payload of a schedule."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """The values of one run: of plain names, and the trees below others. What is in neither is missing."""

    plain: Mapping[str, Any] = field(default_factory=dict)
    trees: Mapping[str, Any] = field(default_factory=dict)

    def find(self, name: str) -> Any:
        """The value, or MISSING."""
        if name in self.plain:
            return self.plain[name]
        for tree, value in self.trees.items():
            if name == tree:
                return value
            if name.startswith(f"{tree}."):
                return value_at(value, split_path(name[len(tree) + 1 :]))
        return MISSING


def slot_values(slot: datetime | None) -> dict[str, str]:
    """The names of a slot: ISO time and date in UTC; empty for a run on demand."""
    if slot is None:
        return {"slot": "", "slot.date": ""}
    at = slot.astimezone(UTC)
    return {"slot": at.isoformat(), "slot.date": f"{at:%Y-%m-%d}"}


# Keys of an http request, and of a container here or in Kubernetes, whose texts may be templates.
IN_HTTP = ("url", "headers", "body")
IN_CONTAINER = ("argv", "env")
IN_STEP: Mapping[str, Sequence[str]] = {
    "argv": (),
    "args": (),
    "http": IN_HTTP,
    "container": IN_CONTAINER,
    "kubernetes": IN_CONTAINER,
}
"""Keys of a step whose texts may be templates; of a mapping, in these keys of it."""


def step_texts(body: Mapping[str, Any]) -> list[Any]:
    """Where a step with this body has texts of IN_STEP."""
    kept = {key: inner for key, inner in IN_STEP.items() if key in body}
    return [[body[key].get(name) for name in inner] if inner else body[key] for key, inner in kept.items()]


def has_template(tree: Any) -> bool:
    """Whether a text anywhere in a JSON tree has a reference or an escaped one."""
    return any(MARK in text for _, text in texts_of(tree))


def texts_of(tree: Any, at: str = "") -> Iterator[tuple[str, str]]:
    """Every text in a JSON tree with its path, such as (".user.name", "Ada"); keys of mappings are none."""
    if isinstance(tree, str):
        yield at, tree
    elif isinstance(tree, Mapping):
        for key, item in tree.items():
            yield from texts_of(item, f"{at}.{key}")
    elif isinstance(tree, list | tuple):
        for index, item in enumerate(tree):
            yield from texts_of(item, f"{at}[{index}]")


def is_literal(text: str) -> bool:
    """Whether a text has escaped references only."""
    return MARK in text and all(match[1] is None for match in _REFERENCE.finditer(text))


def references(text: str) -> list[str]:
    """The names to which a text refers without a default, such as payload.user.id."""
    found = [match[1] for match in _REFERENCE.finditer(text) if match[1] is not None]
    return [name.strip() for name, default, _ in (body.partition("??") for body in found) if not default]


def problem(text: str, names: Names) -> tuple[str, str]:
    """What is wrong with the references of a text, and the remedy; both empty when nothing is."""
    bodies = [match[1] for match in _REFERENCE.finditer(text) if match[1] is not None]
    if MARK in _REFERENCE.sub("", text):
        return f"has {MARK} without }}}}", f"close it, or write $${{{{ for a literal {MARK}"
    if len(bodies) > MAX_REFERENCES:
        return f"has {len(bodies)} references", f"use at most {MAX_REFERENCES}"
    for body in bodies:
        name, marked, default = (part.strip() for part in body.partition("??"))
        if not names.knows(name):
            near = nearest(name, [*names.plain, *names.trees])
            hint = f"did you mean {near!r}?" if near else f"known here: {names}; write $${{{{ for a literal {MARK}"
            return f"refers to {name!r}, which there is not", hint
        if marked and _literal(default) is MISSING:
            return f"{default!r} behind ?? is not JSON", 'write a JSON value, such as "text", 0, true or null'
    return "", ""


def expand(tree: Any, context: Context, at: str = "") -> Any:
    """A JSON tree with its texts filled in; lists and mappings keep their elements and keys. Raises PAYLOAD_INVALID with the path of the text
    for a value that is missing."""
    if isinstance(tree, str):
        if MARK not in tree:
            return tree
        whole = _REFERENCE.fullmatch(tree.strip())
        if whole is not None and whole[1] is not None:
            return _value(whole[1], context, at)
        return expand_text(tree, context, at)
    if isinstance(tree, Mapping):
        return {key: expand(item, context, f"{at}.{key}") for key, item in tree.items()}
    if isinstance(tree, list | tuple):
        return [expand(item, context, f"{at}[{index}]") for index, item in enumerate(tree)]
    return tree


def expand_text(text: str, context: Context, at: str = "") -> str:
    """A text filled in; it stays one text whatever is inserted. Raises PAYLOAD_INVALID as `expand`, and for a result that is too long or has
    a NUL character."""
    if MARK not in text:
        return text
    made = _REFERENCE.sub(lambda match: MARK if match[1] is None else _as_text(_value(match[1], context, at)), text)
    if len(made) > MAX_RESULT or "\0" in made:
        what = "has a NUL character" if "\0" in made else f"has {len(made)} characters, the limit is {MAX_RESULT}"
        raise TobanError(ErrorCode.PAYLOAD_INVALID, f"{at.lstrip('.')}: the text that its template makes {what}")
    return made


def _value(body: str, context: Context, at: str) -> Any:
    name, marked, default = (part.strip() for part in body.partition("??"))
    found = context.find(name)
    if found is not MISSING and not (marked and found is None):
        return found
    if marked and (given := _literal(default)) is not MISSING:
        return given
    where = f"{at.lstrip('.')}: " if at else ""
    message = f'{where}there is no {name}; give it, or write a default: {MARK} {name} ?? "" }}}}'
    raise TobanError(ErrorCode.PAYLOAD_INVALID, message, detail={"reference": name})


def _literal(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return MISSING


def _as_text(value: Any) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else canonical_json(value)
