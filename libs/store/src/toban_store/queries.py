"""SQL beside the module of the same name: `runs.py` reads its statements from the named blocks of `runs.sql`.

A block starts with `-- name: claim_due` and at least one comment line that says what it does (for a write, the transition it performs).
Parameters are psycopg's `%(name)s`, with an explicit cast wherever PostgreSQL could not tell the type; a literal percent sign is `%%`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path

_NAME = re.compile(r"^--\s*name:\s*(?P<name>\S+)\s*$")
_IDENTIFIER = re.compile(r"^[a-z][a-z0-9_]*$")


class QueryFileError(ValueError):
    """A `.sql` file is not made of named, described blocks: the message names file, line and what is wrong."""


class Queries:
    """The blocks of one file: `queries.claim_due` is that block's SQL."""

    def __init__(self, path: Path, blocks: Mapping[str, str]) -> None:
        self._path = path
        self._blocks = dict(blocks)

    def __getattr__(self, name: str) -> str:
        try:
            return self._blocks[name]
        except KeyError:
            raise AttributeError(f"{self._path.name} has no block `{name}`") from None

    def __iter__(self) -> Iterator[str]:
        return iter(self._blocks)


def load(module: str) -> Queries:
    """The queries beside `module` (pass `__name__`): the file of the same name with the ending `.sql`.

    Raises QueryFileError for a malformed file, FileNotFoundError without one.
    """
    spec = find_spec(module)
    if spec is None or spec.origin is None:
        raise QueryFileError(f"{module} is not a module with a file")
    return read(Path(spec.origin).with_suffix(".sql"))


def read(path: Path) -> Queries:
    """The queries of one file."""
    blocks: dict[str, list[str]] = {}
    current: list[str] | None = None
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        header = _NAME.match(line)
        if header:
            current = blocks.setdefault(_checked(header["name"], blocks, f"{path.name}:{number}"), [])
        elif current is not None:
            current.append(line)
        elif line.strip() and not line.startswith("--"):
            raise QueryFileError(f"{path.name}:{number}: SQL before the first `-- name:`")
    if not blocks:
        raise QueryFileError(f"{path.name}: no `-- name:` block")
    return Queries(path, {name: _body(name, lines, path) for name, lines in blocks.items()})


def _checked(name: str, seen: Mapping[str, object], where: str) -> str:
    if not _IDENTIFIER.match(name):
        raise QueryFileError(f"{where}: {name!r} is not a name like claim_due")
    if name in seen:
        raise QueryFileError(f"{where}: `{name}` is there twice")
    return name


def _body(name: str, lines: list[str], path: Path) -> str:
    if not lines or not lines[0].startswith("--"):
        raise QueryFileError(f"{path.name}: block `{name}` has no comment line that says what it does")
    body = "\n".join(line for line in lines if not line.lstrip().startswith("--")).strip().removesuffix(";").strip()
    if not body:
        raise QueryFileError(f"{path.name}: block `{name}` has no SQL")
    return body
