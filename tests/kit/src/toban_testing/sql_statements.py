"""Converts statements of the store's `.sql` files for PREPARE."""

import re

_PLACEHOLDER = re.compile(r"%(?:%|\((?P<name>\w+)\)[sbt])")


def positional(sql: str) -> tuple[str, tuple[str, ...]]:
    """`sql` with `$1 …` instead of `%(name)s`, and the names in that order."""
    names: list[str] = []

    def numbered(match: re.Match[str]) -> str:
        name = match["name"]
        if name is None:
            return "%"
        if name not in names:
            names.append(name)
        return f"${names.index(name) + 1}"

    return _PLACEHOLDER.sub(numbered, sql), tuple(names)
