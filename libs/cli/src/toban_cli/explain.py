"""The reference of manifests in a terminal: a kind with its keys, or one key."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator

from toban_domain.errors import ErrorCode, TobanError
from toban_domain.manifest.problems import nearest
from toban_domain.manifest.reference import KINDS, METADATA, Field, Kind

_LINK = re.compile(r"\[([^]]+)\]\(([^)]+)\)")
_WIDTH = 100
# Items of a list: steps[], steps[0].
_INDEX = re.compile(r"\[\d*\]$")


def explain(path: str) -> str:
    """What a path such as `Job`, `Job.retry` or `schedule.dst.gap` means; all kinds for "". Raises INVALID_ARGUMENT with the nearest name."""
    if not path:
        return _overview()
    first, *keys = [_INDEX.sub("", part) for part in path.split(".")]
    if not all((first, *keys)):
        raise TobanError(ErrorCode.INVALID_ARGUMENT, f"{path}: a key is missing beside a dot; write it as in Job.retry")
    kind = KINDS[_known(first, list(KINDS), path)]
    if not keys:
        return _kind_page(kind)
    if keys[0] == "spec":
        keys = keys[1:]
    fields = kind.fields
    if keys and keys[0] == "metadata":
        keys, fields = keys[1:], METADATA
    if not keys:
        return "\n".join(_list(fields))
    found: Field | None = None
    for key in keys:
        by_name = {one.key: one for one in fields}
        found = by_name[_known(key, list(by_name), path)]
        fields = found.fields
    assert found is not None
    return _field_page(path, found)


def paths() -> Iterator[str]:
    """Every path that can be explained."""
    for kind in KINDS.values():
        yield kind.name
        yield from _below(kind.name, kind.fields)


def _below(before: str, fields: tuple[Field, ...]) -> Iterator[str]:
    for one in fields:
        yield f"{before}.{one.key}"
        yield from _below(f"{before}.{one.key}", one.fields)


def _known(word: str, names: list[str], path: str) -> str:
    by_lower = {name.lower(): name for name in names}
    if word.lower() in by_lower:
        return by_lower[word.lower()]
    near = nearest(word, names)
    hint = f"did you mean {near}?" if near else f"known: {', '.join(names)}" if names else "nothing is below it"
    raise TobanError(ErrorCode.INVALID_ARGUMENT, f"{path}: there is no {word!r}; {hint}")


def _overview() -> str:
    lines = [f"{kind.name:<14}{kind.meaning}" for kind in KINDS.values()]
    return "\n".join([*lines, "", "More: toban explain Job, toban explain Job.retry"])


def _kind_page(kind: Kind) -> str:
    example = textwrap.indent(kind.example.rstrip(), "  ")
    return "\n".join([kind.meaning, "", example, "", "KEYS OF spec", *_list(kind.fields)])


def _field_page(path: str, one: Field) -> str:
    facts = [("Type", one.type), ("Default", default_words(one)), ("Example", f"{one.key}: {one.example}")]
    shown = [f"{name + ':':<9}{value}" for name, value in facts if value and (name != "Example" or one.example)]
    below = ["", "KEYS BELOW IT", *_list(one.fields)] if one.fields else []
    return "\n".join([path, "", *textwrap.wrap(plain_words(one.meaning), _WIDTH), "", *shown, *below])


def _list(fields: tuple[Field, ...]) -> list[str]:
    widest = max(len(one.key) for one in fields) + 2
    lines: list[str] = []
    for one in fields:
        words = plain_words(one.meaning) + (f" [{default_words(one)}]" if default_words(one) else "")
        first, *rest = textwrap.wrap(words, _WIDTH - widest) or [""]
        lines += [f"{one.key:<{widest}}{first}", *(f"{'':<{widest}}{line}" for line in rest)]
    return lines


def default_words(one: Field) -> str:
    """What a missing key means."""
    return one.default or one.unset.replace("`", "")


def plain_words(text: str) -> str:
    """Markdown without its marks."""
    return _LINK.sub(r"docs/\1", text).replace("`", "")
