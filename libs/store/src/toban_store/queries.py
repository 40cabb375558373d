"""SQL beside the module of the same name: `runs.py` reads its statements from the named blocks of `runs.sql`.

A block starts with `-- name: claim_due` and at least one comment line that says what it does (for a write, the transition it performs).
Parameters are psycopg's `%(name)s`, with an explicit cast wherever PostgreSQL could not tell the type; a literal percent sign is `%%`.

SQL that several statements share stands once, in a block that starts with `-- fragment: holders`; `{{holders}}` in a statement is replaced
by it when the file is loaded. A fragment stands in the file itself, or in `fragments.sql`: of the same folder or the one above for the files of
those folders, of this package for all. Each name has one meaning, and a fragment includes no other.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cache
from importlib.util import find_spec
from pathlib import Path

_HEADER = re.compile(r"^--\s*(?P<kind>name|fragment):\s*(?P<name>\S+)\s*$")
_INCLUDE = re.compile(r"\{\{(?P<name>.*?)\}\}")
_IDENTIFIER = re.compile(r"^[a-z][a-z0-9_]*$")
# Fragments that several files share, in the folder of those files.
FRAGMENTS = "fragments.sql"
SHARED = Path(__file__).with_name(FRAGMENTS)


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


def read(path: Path, *, shared: Path = SHARED) -> Queries:
    """The queries of one file; `shared` is the file of the fragments that the files of all folders may include.

    A file FRAGMENTS has no queries. Raises QueryFileError as `load`.
    """
    statements, own = _blocks(path)
    if not statements and path.name != FRAGMENTS:
        raise QueryFileError(f"{path.name}: no `-- name:` block")
    fragments = dict(own)
    for other in dict.fromkeys((path.with_name(FRAGMENTS), path.parent.with_name(FRAGMENTS), shared)):
        if other != path and other.is_file():
            _add(fragments, _fragments(other), path)
    unused = own.keys() - {name for sql in statements.values() for name in _INCLUDE.findall(sql)}
    if unused and path.name != FRAGMENTS:
        raise QueryFileError(f"{path.name}: no block includes fragment `{min(unused)}`")
    return Queries(path, {name: _resolved(name, sql, fragments, path) for name, sql in statements.items()})


def fragment(name: str) -> str:
    """The fragment of that name that the files of all folders share, for a statement that is not in a `.sql` file."""
    return _fragments(SHARED)[name]


def _blocks(path: Path) -> tuple[dict[str, str], dict[str, str]]:
    """Statements and fragments of a file as written, by name."""
    blocks: dict[str, dict[str, list[str]]] = {"name": {}, "fragment": {}}
    current: list[str] | None = None
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        header = _HEADER.match(line)
        if header:
            seen = blocks[header["kind"]]
            current = seen.setdefault(_checked(header["name"], seen, f"{path.name}:{number}"), [])
        elif current is not None:
            current.append(line)
        elif line.strip() and not line.startswith("--"):
            raise QueryFileError(f"{path.name}:{number}: SQL before the first `-- name:` or `-- fragment:`")
    statements, fragments = ({name: _body(name, lines, path) for name, lines in b.items()} for b in blocks.values())
    for name, sql in fragments.items():
        if _INCLUDE.search(sql):
            raise QueryFileError(f"{path.name}: fragment `{name}` includes another one; only a statement does")
    return statements, fragments


@cache
def _fragments(path: Path) -> dict[str, str]:
    """The blocks of a file FRAGMENTS, which holds nothing else."""
    statements, fragments = _blocks(path)
    if statements:
        raise QueryFileError(
            f"{path.name}: `{next(iter(statements))}` is a statement, and this file holds fragments only"
        )
    return fragments


def _add(fragments: dict[str, str], others: Mapping[str, str], path: Path) -> None:
    if fragments.keys() & others.keys():
        name = min(fragments.keys() & others.keys())
        raise QueryFileError(f"{path.name}: fragment `{name}` exists for this file twice; rename one")
    fragments |= others


def _resolved(name: str, sql: str, fragments: Mapping[str, str], path: Path) -> str:
    """The statement with each include replaced by its fragment."""
    unknown = set(_INCLUDE.findall(sql)) - fragments.keys()
    if unknown:
        known = ", ".join(sorted(fragments)) or "none"
        raise QueryFileError(f"{path.name}: block `{name}` includes unknown fragment `{min(unknown)}` (known: {known})")
    return _INCLUDE.sub(lambda include: fragments[include["name"]], sql)


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
