"""The loader of `.sql` files."""

from pathlib import Path

import pytest

from toban_store.queries import FRAGMENTS, QueryFileError, read
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


TWO = "-- fragment: one_row\n-- A row.\nSELECT 1\n"


def test_a_statement_includes_fragments_of_its_file_its_folder_and_the_package(tmp_path: Path) -> None:
    (tmp_path / FRAGMENTS).write_text("-- fragment: folder\n-- Of the folder.\nSELECT 2;\n")
    shared = tmp_path / "shared.sql"
    shared.write_text("-- fragment: package\n-- Of all.\nSELECT 3\n")
    text = f"{TWO}-- name: all_of_them\n-- Reads.\nWITH a AS ({{{{one_row}}}}), b AS ({{{{folder}}}}) {{{{package}}}};"
    queries = read(write(tmp_path, text), shared=shared)
    assert list(queries) == ["all_of_them"]
    assert queries.all_of_them == "WITH a AS (SELECT 1), b AS (SELECT 2) SELECT 3"
    assert list(read(tmp_path / FRAGMENTS, shared=shared)) == []


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("-- name: one\n-- A.\n{{other}}", r"block `one` includes unknown fragment `other` \(known: folder\)"),
        (f"{TWO}-- name: one\n-- A.\nSELECT 1", "no block includes fragment `one_row`"),
        (f"{TWO}{TWO}-- name: one\n-- A.\n{{{{one_row}}}}", "things.sql:4: `one_row` is there twice"),
        (
            "-- fragment: folder\n-- B.\nSELECT 1\n-- name: one\n-- A.\n{{folder}}",
            "`folder` exists for this file twice",
        ),
        ("-- fragment: a\n-- B.\n{{folder}}\n-- name: one\n-- A.\n{{a}}", "fragment `a` includes another one"),
        ("-- fragment: a\nSELECT 1\n-- name: one\n-- A.\n{{a}}", "block `a` has no comment line"),
        (TWO, "no `-- name:` block"),
    ],
)
def test_a_wrong_include_names_the_block_and_the_fragment(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / FRAGMENTS).write_text("-- fragment: folder\n-- Of the folder.\nSELECT 2\n")
    with pytest.raises(QueryFileError, match=message):
        read(write(tmp_path, text), shared=tmp_path / "none.sql")


def test_a_shared_file_holds_fragments_only(tmp_path: Path) -> None:
    (tmp_path / FRAGMENTS).write_text("-- name: stray\n-- Reads.\nSELECT 2\n")
    with pytest.raises(QueryFileError, match="`stray` is a statement"):
        read(write(tmp_path, "-- name: one\n-- A.\nSELECT 1"))


def test_parameters_become_positions() -> None:
    sql, names = positional("SELECT %(a)s::int, %(b)b::bytea, %(a)s::int, 5 %% 2")
    assert sql == "SELECT $1::int, $2::bytea, $1::int, 5 % 2"
    assert names == ("a", "b")
