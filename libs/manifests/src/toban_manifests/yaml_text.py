"""YAML of manifests: read by the core schema of YAML 1.2, with line and column for what is refused, and written so that people like to read it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import yaml

from toban_domain.errors import ErrorCode, TobanError

# Of one file.
MAX_BYTES = 1024 * 1024
# Of one document, those counted again that an alias stands for: a few hundred bytes of aliases of aliases stand for billions.
MAX_VALUES = 100_000
# Collections in each other, likewise: far more than a manifest has, and less than what Python's stack allows to those who read the document.
MAX_DEPTH = 100
# Longer lines than any terminal: values are never folded, so that they can be grepped.
_ENDLESS = 1_000_000
# Texts that a reader of YAML 1.2 takes for numbers although PyYAML, which follows 1.1, does not quote them.
_NUMBER_LIKE = re.compile(r"[-+]?(0o[0-7]+|0x[0-9a-fA-F]+|(\.\d+|\d+(\.\d*)?)([eE][-+]?\d+)?)")
# What a plain text stands for: its tag, and the characters that it can begin with. The core schema of YAML 1.2, but a number with a leading zero,
# such as a file mode, is text: 1.1 reads octal and 1.2 decimal digits in it.
_WHOLE = "(?:0|[1-9][0-9]*)"
_CORE = (
    ("null", r"(?:~|null|Null|NULL|)", ("~", "n", "N", "")),
    ("bool", r"(?:true|True|TRUE|false|False|FALSE)", tuple("tTfF")),
    ("int", rf"(?:[-+]?{_WHOLE}|0o[0-7]+|0x[0-9a-fA-F]+)", tuple("-+0123456789")),
    (
        "float",
        rf"(?:[-+]?(?:\.[0-9]+|{_WHOLE}(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))",
        tuple("-+0123456789."),
    ),
    ("merge", "<<", ("<",)),
)
_BOOLEANS = {"true": True, "false": False}
# Booleans of YAML 1.1 that are text in 1.2, in places where a text is as good: which one was meant is not known.
_DOUBTFUL = re.compile("yes|no|on|off", re.IGNORECASE)
_FREE_KEYS = frozenset({"payload", "default_payload", "filter"})


class _Dumper(yaml.SafeDumper):
    """Indents lists below their key."""

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        del indentless
        super().increase_indent(flow, False)

    def ignore_aliases(self, data: Any) -> bool:
        del data
        return True


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    # Other line breaks and control characters are written as escapes, which only this style has.
    strange = not text.replace("\n", "").isprintable()
    style = '"' if strange or _NUMBER_LIKE.fullmatch(text) else "|" if "\n" in text else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _text)


@dataclass(frozen=True, slots=True)
class _Size:
    """Of a value whose aliases are written out: values, characters of its scalars, and collections in each other."""

    values: int = 0
    characters: int = 0
    depth: int = 0


class _Loader(yaml.SafeLoader):
    """The types of YAML 1.2, but a key given twice is an error, and aliases are bounded by what they stand for."""

    depth = 0

    def __init__(self, content: bytes) -> None:
        super().__init__(content)
        self.doubtful: list[yaml.ScalarNode] = []

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        if self.depth > MAX_DEPTH:
            mark = parent.start_mark if parent is not None else None
            raise yaml.composer.ComposerError(None, None, f"values are nested more than {MAX_DEPTH} levels deep", mark)
        self.depth += 1
        try:
            return super().compose_node(parent, index)
        finally:
            self.depth -= 1

    def construct_document(self, node: yaml.Node) -> Any:
        size = _size(node, {})
        bounds = (
            (size.values, MAX_VALUES, "values"),
            (size.characters, MAX_BYTES, "characters"),
            (size.depth, MAX_DEPTH, "levels"),
        )
        for found, most, what in bounds:
            if found > most:
                text = f"the document has more than {most} {what} once its aliases are written out; use fewer aliases (*), or split it"
                raise yaml.constructor.ConstructorError(None, None, text, node.start_mark)
        self.doubtful += _doubtful(node, set())
        return super().construct_document(node)

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        try:
            return super().construct_object(node, deep=deep)
        except (AttributeError, LookupError, ArithmeticError, ValueError):
            # What PyYAML's constructors raise for a text that is not of the type of its tag.
            text = f"the value is not of the type {node.tag.rpartition(':')[2]}"
            raise yaml.constructor.ConstructorError(None, None, text, node.start_mark) from None

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[str] = set()
        for key in (self._as_text(key) for key, _ in node.value):
            if key.tag != self.DEFAULT_SCALAR_TAG:
                continue
            if key.value in seen:
                text = f"the key {key.value!r} is given twice"
                raise yaml.constructor.ConstructorError(None, None, text, key.start_mark)
            seen.add(key.value)
        # Values of `<<` are defaults, which a key of the mapping itself may replace.
        self.flatten_mapping(node)
        node.value = [(self._as_text(key), value) for key, value in node.value]
        return super().construct_mapping(node, deep=deep)

    def _as_text(self, key: yaml.Node) -> yaml.Node:
        """A plain key stays what was typed, as in JSON: 404, true, null. Raises ConstructorError for a mapping or a list."""
        if isinstance(key, yaml.CollectionNode):
            text = "the key is a mapping or a list; a text that begins with {{, { or [ needs quotes"
            raise yaml.constructor.ConstructorError(None, None, text, key.start_mark)
        if not isinstance(key, yaml.ScalarNode) or key.tag.endswith(":merge"):
            return key
        implicit = self.resolve(yaml.ScalarNode, key.value, (key.style is None, False))  # type: ignore[no-untyped-call]
        if key.tag != implicit:
            return key
        text = self.DEFAULT_SCALAR_TAG
        return yaml.ScalarNode(text, key.value, key.start_mark, key.end_mark, key.style)


_Loader.yaml_implicit_resolvers = {}
for _name, _pattern, _first in _CORE:
    _Loader.add_implicit_resolver(f"tag:yaml.org,2002:{_name}", re.compile(rf"^{_pattern}$"), _first)
# Raises KeyError or ValueError for what is of another type than its tag.
_Loader.add_constructor("tag:yaml.org,2002:bool", lambda _, node: _BOOLEANS[node.value.lower()])
_Loader.add_constructor("tag:yaml.org,2002:int", lambda _, node: int(node.value, 0))


def _doubtful(node: yaml.Node, seen: set[tuple[int, bool]], *, free: bool = False) -> Iterator[yaml.ScalarNode]:
    """Plain values below a key of `_FREE_KEYS` that YAML 1.1 reads as booleans; each once."""
    if (id(node), free) in seen:
        return
    seen.add((id(node), free))
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            yield from _doubtful(value, seen, free=free or _is_free(key))
    elif isinstance(node, yaml.SequenceNode):
        for item in node.value:
            yield from _doubtful(item, seen, free=free)
    elif (
        isinstance(node, yaml.ScalarNode)
        and free
        and node.style is None
        and node.tag.endswith(":str")
        and _DOUBTFUL.fullmatch(node.value)
    ):
        yield node


def _is_free(key: yaml.Node) -> bool:
    return isinstance(key, yaml.ScalarNode) and key.value in _FREE_KEYS


def _size(node: yaml.Node, known: dict[yaml.Node, _Size]) -> _Size:
    """The size of a document once each alias is replaced by what it stands for; one in itself counts as nothing there."""
    if node not in known:
        known[node] = _Size()
        if isinstance(node, yaml.CollectionNode):
            parts = [one for part in node.value for one in (part if isinstance(part, tuple) else (part,))]
            sizes = [_size(one, known) for one in parts]
            known[node] = _Size(
                1 + sum(one.values for one in sizes),
                sum(one.characters for one in sizes),
                1 + max((one.depth for one in sizes), default=0),
            )
        else:
            known[node] = _Size(1, len(node.value))
    return known[node]


def parse_yaml(source: str, content: bytes, warn: Callable[[str], None] | None = None) -> list[object]:
    """The documents that are not empty. Raises MANIFEST_INVALID, which names `source`, and the line where there is one.

    `warn` is called with a line about each value of a payload or filter that may be meant as a boolean and is none.
    """

    if len(content) > MAX_BYTES:
        raise TobanError(ErrorCode.MANIFEST_INVALID, f"{source}: is larger than {MAX_BYTES} bytes; split it")
    try:
        loader = _Loader(content)
        bodies = []
        while loader.check_data():  # type: ignore[no-untyped-call]
            bodies.append(loader.get_data())
    except yaml.MarkedYAMLError as error:
        raise _refused(source, error) from None
    except (yaml.YAMLError, RecursionError, OverflowError, ValueError) as error:
        raise TobanError(
            ErrorCode.MANIFEST_INVALID, f"{source}: is not YAML in UTF-8 ({' '.join(str(error).split())})"
        ) from None
    if warn is not None:
        for node in loader.doubtful:
            warn(_warning(source, node))
    return [body for body in bodies if body is not None]


def _warning(source: str, node: yaml.ScalarNode) -> str:
    mark, text = node.start_mark, node.value
    meant = "true" if text.lower() in ("yes", "on") else "false"
    where = f"{source}:{mark.line + 1}:{mark.column + 1}"
    return f"{where}: {text} is text, and not the boolean {meant}; write {meant}, or put {text!r} into quotes"


def _refused(source: str, error: yaml.MarkedYAMLError) -> TobanError:
    mark = error.problem_mark or error.context_mark
    where = f"{source}:{mark.line + 1}:{mark.column + 1}" if mark is not None else source
    what = error.problem or error.context or "is not YAML"
    return TobanError(
        ErrorCode.MANIFEST_INVALID,
        f"{where}: {what}; check indentation, colons and quotes there",
        detail={"source": source},
    )


def dump_yaml(value: Any) -> str:
    """One document; keys in their order. Direction marks and C1 controls, which YAML counts as printable, stay as they are."""
    return str(
        yaml.dump(value, Dumper=_Dumper, sort_keys=False, allow_unicode=True, default_flow_style=False, width=_ENDLESS)
    )
