"""The loader of `.sql` files."""

from pathlib import Path

import pytest

from toban_store.queries import QueryFileError, read
from toban_testing.sql_statements import positional


def write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "things.sql"
    path.write_text(text)
    return path


def test_blocks_are_attributes(tmp_path: Path) -> None:
    path = write(
        tmp_path, "-- Things.\n\n-- name: one\n-- Reads one.\nSELECT 1\n  -- why\n;\n-- name: two\n-- Reads.\nSELECT 2;"
    )
    queries = read(path)
    assert (queries.one, queries.two) == ("SELECT 1", "SELECT 2")
    assert list(queries) == ["one", "two"]
    with pytest.raises(AttributeError, match=r"things\.sql has no block `three`"):
        _ = queries.three


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("SELECT 1;", "things.sql:1: SQL before"),
        ("-- only a comment", "no `-- name:` block"),
        ("-- name: one\nSELECT 1;", "block `one` has no comment"),
        ("-- name: one\n-- Does.\n", "block `one` has no SQL"),
        ("-- name: one\n-- A.\nSELECT 1;\n-- name: one\n-- B.\nSELECT 1;", "`one` is there twice"),
        ("-- name: Bad-Name\n-- A.\nSELECT 1;", "is not a name"),
    ],
)
def test_malformed_files_name_the_place(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(QueryFileError, match=message):
        read(write(tmp_path, text))


def test_parameters_become_positions() -> None:
    sql, names = positional("SELECT %(a)s::int, %(b)b::bytea, %(a)s::int, 5 %% 2")
    assert sql == "SELECT $1::int, $2::bytea, $1::int, 5 % 2"
    assert names == ("a", "b")
