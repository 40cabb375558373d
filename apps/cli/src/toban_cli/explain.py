"""The reference of manifests in a terminal: a kind with its keys, or one key."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator

from toban_domain.errors import ErrorCode, TobanError
from toban_domain.nearest import nearest
from toban_manifests.reference import Field, Kind, kinds, metadata

_LINK = re.compile(r"\[([^]]+)\]\(([^)]+)\)")
# Columns of lines where there is no narrower terminal.
WIDEST = 100
# Items of a list: steps[], steps[0].
_INDEX = re.compile(r"\[\d*\]$")


def explain(path: str, width: int = WIDEST) -> str:
    """What a path such as `Job`, `Job.retry` or `schedule.dst.gap` means, in lines of at most `width`; all kinds for "".

    Raises INVALID_ARGUMENT with the nearest name.
    """
    if not path:
        return _overview(width)
    first, *keys = [_INDEX.sub("", part) for part in path.split(".")]
    if not all((first, *keys)):
        raise TobanError(ErrorCode.INVALID_ARGUMENT, f"{path}: a key is missing beside a dot; write it as in Job.retry")
    kind = kinds()[_known(first, list(kinds()), path)]
    if not keys:
        return _kind_page(kind, width)
    if keys[0] == "spec":
        keys = keys[1:]
    fields = kind.fields
    if keys and keys[0] == "metadata":
        keys, fields = keys[1:], metadata()
    if not keys:
        return "\n".join(_list(fields, width))
    found: Field | None = None
    for key in keys:
        by_name = {one.key: one for one in fields}
        found = by_name[_known(key, list(by_name), path)]
        fields = found.fields
    assert found is not None
    return _field_page(path, found, width)


def paths() -> Iterator[str]:
    """Every path that can be explained."""
    for kind in kinds().values():
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


def _overview(width: int) -> str:
    lines: list[str] = []
    for kind in kinds().values():
        lines += _beside(kind.name, kind.meaning, 14, width)
    return "\n".join([*lines, "", "More: toban explain Job, toban explain Job.retry"])


def _kind_page(kind: Kind, width: int) -> str:
    example = textwrap.indent(kind.example.rstrip(), "  ")
    return "\n".join([*textwrap.wrap(kind.meaning, width), "", example, "", "KEYS OF spec", *_list(kind.fields, width)])


def _field_page(path: str, one: Field, width: int) -> str:
    facts = [("Type", one.type), ("Default", default_text(one)), ("Example", f"{one.key}: {one.example}")]
    shown = [f"{name + ':':<9}{value}" for name, value in facts if value and (name != "Example" or one.example)]
    below = ["", "KEYS BELOW IT", *_list(one.fields, width)] if one.fields else []
    return "\n".join([path, "", *textwrap.wrap(without_markdown(one.meaning), width), "", *shown, *below])


def _list(fields: tuple[Field, ...], width: int) -> list[str]:
    widest = max(len(one.key) for one in fields) + 2
    lines: list[str] = []
    for one in fields:
        text = without_markdown(one.meaning) + (f" [{default_text(one)}]" if default_text(one) else "")
        lines += _beside(one.key, text, widest, width)
    return lines


def _beside(name: str, text: str, column: int, width: int) -> list[str]:
    """The name, and from a column on what it means."""
    first, *rest = textwrap.wrap(text, max(width - column, 20)) or [""]
    return [f"{name:<{column}}{first}", *(f"{'':<{column}}{line}" for line in rest)]


def default_text(one: Field) -> str:
    """What a missing key means."""
    return one.default or one.unset.replace("`", "")


def without_markdown(text: str) -> str:
    """A meaning as it is printed: links as paths, no backquotes."""
    return _LINK.sub(r"docs/\1", text).replace("`", "")
