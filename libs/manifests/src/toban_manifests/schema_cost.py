"""What a payload schema may refer to, and how much work its validation can become: schemas of 2 KiB can need 2^40 steps."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from graphlib import CycleError, TopologicalSorter
from typing import Any
from urllib.parse import unquote

# Keywords by what their subschemas are applied to: the same value, or parts of it.
_SAME_VALUE = frozenset(("allOf", "anyOf", "oneOf", "not", "if", "then", "else", "dependentSchemas", "dependencies"))
_PARTS = frozenset(
    (
        *("patternProperties", "additionalProperties", "propertyNames", "unevaluatedProperties"),
        *("items", "prefixItems", "additionalItems", "contains", "unevaluatedItems"),
    )
)
_MAPS = frozenset(("properties", "patternProperties", "dependentSchemas", "dependencies", "$defs", "definitions"))
_HOLDERS = frozenset(("$defs", "definitions"))
_REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")
_ANCHORS = ("$anchor", "$dynamicAnchor")
_LOCAL = "refer to a part of this schema, such as '#/$defs/order', and write that part into `$defs`"

Path = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SchemaProblem:
    """A place in a schema that is refused: its path below `payload_schema`, why, and what to do instead."""

    path: str
    message: str
    remedy: str


@dataclass(slots=True)
class _Node:
    """One subschema. `same`: applied to the same value; `parts`: to its parts; `named`: each to the property of its name."""

    same: list[int] = field(default_factory=list)
    parts: list[int] = field(default_factory=list)
    named: list[int] = field(default_factory=list)


class SchemaCost:
    """Of one schema. `problems` are the references that lead out of it; with any, the steps mean nothing."""

    def __init__(self, schema: Mapping[str, Any]) -> None:
        self.problems: list[SchemaProblem] = []
        self._root = schema
        self._numbers: dict[int, int] = {}
        self._nodes: list[_Node] = []
        self._anchors: dict[str, Any] = {}
        found = list(_subschemas(schema))
        for path, node in found:
            self._anchors |= {node[word]: node for word in _ANCHORS if isinstance(node.get(word), str)}
            if path and isinstance(node.get("$id"), str):
                self._refuse(
                    path, "$id", node["$id"], "is an address within the schema", "leave it out, and use `$defs`"
                )
        for path, node in found:
            self._number(node, path)
        self._order = self._sorted()

    def steps(self, depth: int) -> int:
        """The most subschemas that validation applies to any one value of a payload that is nested `depth` levels."""
        below = [0] * len(self._nodes)
        for _ in range(depth + 1):
            now = [0] * len(self._nodes)
            for number in self._order:
                node = self._nodes[number]
                now[number] = (
                    1
                    + sum(now[child] for child in node.same)
                    + sum(below[child] for child in node.parts)
                    + max((below[child] for child in node.named), default=0)
                )
            if now == below:
                break
            below = now
        return max(1, below[0])

    def _number(self, schema: Any, path: Path) -> int:
        """The number of a subschema, whose references are followed when it is new. Iterative: chains may be long."""
        first = self._known(schema)
        if first is not None:
            return first
        first, todo = self._add(schema), [(schema, path)]
        while todo:
            one, at = todo.pop()
            node = self._nodes[self._numbers[id(one)]]
            for step, child in self._children(one, at):
                number = self._known(child)
                if number is None:
                    number = self._add(child)
                    todo.append((child, (*at, *step)))
                kind = node.named if step[0] == "properties" else node.parts if step[0] in _PARTS else node.same
                kind.append(number)
        return first

    def _known(self, schema: Any) -> int | None:
        return self._numbers.get(id(schema))

    def _add(self, schema: Any) -> int:
        self._nodes.append(_Node())
        self._numbers[id(schema)] = len(self._nodes) - 1
        return len(self._nodes) - 1

    def _children(self, schema: Any, path: Path) -> Iterator[tuple[Path, Any]]:
        if not isinstance(schema, Mapping):
            return
        for word in _REFERENCES:
            if isinstance(reference := schema.get(word), str):
                target = self._target(reference)
                if target is None:
                    self._refuse(path, word, reference, "refers to something outside of the schema", _LOCAL)
                else:
                    yield (word,), target
        for step, child in _below(schema):
            if step[0] in _SAME_VALUE | _PARTS | {"properties"}:
                yield step, child

    def _target(self, reference: str) -> Any:
        """The part of this schema that a reference names; None when it is not in it."""
        own = self._root.get("$id")
        if isinstance(own, str) and reference.startswith(own.rstrip("#")):
            reference = reference[len(own.rstrip("#")) :] or "#"
        if not reference.startswith("#"):
            return None
        pointer = reference[1:]
        if pointer and not pointer.startswith("/"):
            return self._anchors.get(pointer)
        node: Any = self._root
        for part in pointer.split("/")[1:]:
            key = _unescaped(part)
            if isinstance(node, list) and key.isdigit() and int(key) < len(node):
                node = node[int(key)]
            elif isinstance(node, Mapping) and key in node:
                node = node[key]
            else:
                return None
        return node

    def _sorted(self) -> list[int]:
        graph = {number: node.same for number, node in enumerate(self._nodes)}
        try:
            return list(TopologicalSorter(graph).static_order())
        except CycleError:
            self.problems.append(
                SchemaProblem("", "refers to itself without going into the payload, which never ends", _LOCAL)
            )
            return []

    def _refuse(self, path: Path, word: str, value: str, why: str, remedy: str) -> None:
        place = "".join(f".{step}" for step in (*path, word))
        self.problems.append(SchemaProblem(place, f"{value[:200]!r} {why}", remedy))


def _subschemas(schema: Mapping[str, Any]) -> Iterator[tuple[Path, Mapping[str, Any]]]:
    """The schema and all subschemas that are written in it, each with its path."""
    todo: list[tuple[Path, Mapping[str, Any]]] = [((), schema)]
    while todo:
        path, node = todo.pop()
        yield path, node
        todo += [((*path, *step), child) for step, child in _below(node) if isinstance(child, Mapping)]


def _below(schema: Mapping[str, Any]) -> Iterator[tuple[Path, Any]]:
    """The subschemas right below one, booleans included: keyword, then name or index where there is one."""
    for word in _SAME_VALUE | _PARTS | _HOLDERS | {"properties"}:
        value = schema.get(word)
        if isinstance(value, Mapping) and word in _MAPS:
            yield from (((word, str(name)), child) for name, child in value.items())
        elif isinstance(value, list):
            yield from (((word, str(index)), child) for index, child in enumerate(value))
        elif isinstance(value, Mapping):
            yield (word,), value


def _unescaped(part: str) -> str:
    """One part of a JSON pointer in a URI fragment."""
    return unquote(part).replace("~1", "/").replace("~0", "~")
