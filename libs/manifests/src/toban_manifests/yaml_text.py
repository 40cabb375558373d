"""YAML of manifests: read with line and column for what YAML itself refuses, and written so that people like to read it."""

from __future__ import annotations

import re
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
    """YAML's safe types, but times stay text, a key given twice is an error, and aliases are bounded by what they stand for."""

    depth = 0

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
        return super().construct_document(node)

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        try:
            return super().construct_object(node, deep=deep)
        except (AttributeError, LookupError, ArithmeticError, ValueError):
            # What PyYAML's constructors raise for a text that is not of the type of its tag.
            text = f"the value is not of the type {node.tag.rpartition(':')[2]}"
            raise yaml.constructor.ConstructorError(None, None, text, node.start_mark) from None

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[Any] = set()
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=True)
            if isinstance(key, str) and key != "<<" and key in seen:
                raise yaml.constructor.ConstructorError(
                    None, None, f"the key {key!r} is given twice", key_node.start_mark
                )
            if isinstance(key, str):
                seen.add(key)
        return super().construct_mapping(node, deep=deep)


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


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


def parse_yaml(source: str, content: bytes) -> list[object]:
    """The documents that are not empty. Raises MANIFEST_INVALID, which names `source`, and the line where there is one."""
    if len(content) > MAX_BYTES:
        raise TobanError(ErrorCode.MANIFEST_INVALID, f"{source}: is larger than {MAX_BYTES} bytes; split it")
    try:
        return [body for body in yaml.load_all(content, Loader=_Loader) if body is not None]
    except yaml.MarkedYAMLError as error:
        raise _refused(source, error) from None
    except (yaml.YAMLError, RecursionError, OverflowError, ValueError) as error:
        raise TobanError(
            ErrorCode.MANIFEST_INVALID, f"{source}: is not YAML in UTF-8 ({' '.join(str(error).split())})"
        ) from None


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
