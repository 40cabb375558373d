"""YAML of manifests: read with line and column for what YAML itself refuses, and written so that people like to read it."""

from __future__ import annotations

import re
from typing import Any

import yaml

from toban_domain.errors import ErrorCode, TobanError

# Of one file.
MAX_BYTES = 1024 * 1024
# Of one document, those counted again that an alias stands for: a few hundred bytes of aliases of aliases stand for billions.
MAX_VALUES = 100_000
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


class _Loader(yaml.SafeLoader):
    """YAML's safe types, but times stay text, a key given twice is an error, and aliases are bounded by what they stand for."""

    def construct_document(self, node: yaml.Node) -> Any:
        if _values(node, {}) > MAX_VALUES:
            text = f"the document has more than {MAX_VALUES} values once its aliases are written out; use fewer aliases (*), or split it"
            raise yaml.constructor.ConstructorError(None, None, text, node.start_mark)
        return super().construct_document(node)

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


def _values(node: yaml.Node, counted: dict[yaml.Node, int]) -> int:
    """How many values a document has once each alias is replaced by what it stands for; one in itself counts as none there."""
    if node not in counted:
        counted[node] = 0
        below = node.value if isinstance(node, yaml.CollectionNode) else ()
        parts = [one for part in below for one in (part if isinstance(part, tuple) else (part,))]
        counted[node] = 1 + sum(_values(one, counted) for one in parts)
    return counted[node]


def parse_yaml(source: str, content: bytes) -> list[object]:
    """The documents that are not empty. Raises MANIFEST_INVALID, which names `source`, and the line where there is one."""
    if len(content) > MAX_BYTES:
        raise TobanError(ErrorCode.MANIFEST_INVALID, f"{source}: is larger than {MAX_BYTES} bytes; split it")
    try:
        return [body for body in yaml.load_all(content, Loader=_Loader) if body is not None]
    except yaml.MarkedYAMLError as error:
        raise _refused(source, error) from None
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError, ValueError) as error:
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
