"""Every block of every `.sql` file is a statement that a real server accepts, on each version of PostgreSQL."""

import re
from pathlib import Path

import psycopg
import pytest

from toban_store.queries import FRAGMENTS, SHARED, read
from toban_testing.sql_statements import positional

ROOT = Path(__file__).resolve().parents[2]
FILES = sorted(
    path
    for group in ("apps", "libs", "services")
    for path in (ROOT / group).glob("*/src/**/*.sql")
    if "migrations" not in path.parts and path.name != FRAGMENTS
)


def test_both_schemas_have_statements() -> None:
    assert {path.parents[1].name for path in FILES} >= {"toban_coordinator", "toban_log_archiver"}


def test_every_shared_fragment_is_included_more_than_once() -> None:
    """The fence of the package is also the text that opens a fenced transaction."""
    everywhere = [path.read_text() for path in (*FILES, SHARED.with_name("tx.py"))]
    for path in (SHARED, *{path.with_name(FRAGMENTS) for path in FILES if path.with_name(FRAGMENTS).is_file()}):
        names = re.findall(r"^-- fragment: (\w+)$", path.read_text(), re.MULTILINE)
        assert names
        for name in names:
            includes = sum(text.count(f"{{{{{name}}}}}") + text.count(f'fragment("{name}")') for text in everywhere)
            assert includes > 1, f"{path}: fragment `{name}` is for one statement"


def test_the_text_of_the_fence_stands_once() -> None:
    holders = [
        path
        for path in (*FILES, SHARED, *ROOT.glob("*/*/src/**/*.py"))
        if "FROM scheduler.leader\n" in path.read_text()
    ]
    assert holders == [SHARED]


@pytest.mark.pg_versions
def test_every_block_prepares(pg_major: int, pg_url: str) -> None:
    failed = []
    with psycopg.connect(pg_url, autocommit=True) as connection:
        for path in FILES:
            queries = read(path)
            for name in queries:
                sql, _ = positional(getattr(queries, name))
                # Without a name, the next statement takes its place.
                result = connection.pgconn.prepare(b"", sql.encode())
                if result.status != psycopg.pq.ExecStatus.COMMAND_OK:
                    failed.append(f"{path.relative_to(ROOT)}: {name}: {result.get_error_message()}")
    assert failed == []


def test_sql_is_beside_the_module_of_the_same_name() -> None:
    assert [path for path in FILES if not path.with_suffix(".py").exists()] == []
