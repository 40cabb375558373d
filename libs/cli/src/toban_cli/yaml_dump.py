"""Plain data as YAML that people like to read and that every reader takes for the same data as its JSON."""

from __future__ import annotations

import re
from typing import Any

import yaml

from toban_cli.sanitize import escaped

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


def to_yaml(value: Any) -> str:
    """One document; keys in their order."""
    text = yaml.dump(
        value, Dumper=_Dumper, sort_keys=False, allow_unicode=True, default_flow_style=False, width=_ENDLESS
    )
    # YAML itself counts direction marks and C1 controls as printable.
    return escaped(str(text))
