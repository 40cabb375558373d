"""Every block of every `.sql` file is a statement that a real server accepts, on each version of PostgreSQL."""

from pathlib import Path

import psycopg
import pytest

from toban_store.queries import read
from toban_testing.sql_statements import positional

ROOT = Path(__file__).resolve().parents[2]
FILES = sorted(
    path
    for group in ("libs", "services")
    for path in (ROOT / group).glob("*/src/**/*.sql")
    if "migrations" not in path.parts
)


def test_both_schemas_have_statements() -> None:
    assert {path.parents[1].name for path in FILES} >= {"toban_coordinator", "toban_log_archiver"}


@pytest.mark.pg_versions
@pytest.mark.parametrize("path", FILES, ids=[str(path.relative_to(ROOT)) for path in FILES])
def test_every_block_prepares(pg_major: int, pg_url: str, path: Path) -> None:
    assert path.with_suffix(".py").exists(), "SQL sits beside the module of the same name"
    queries = read(path)
    failed = []
    with psycopg.connect(pg_url, autocommit=True) as connection:
        for name in queries:
            sql, _ = positional(getattr(queries, name))
            result = connection.pgconn.prepare(name.encode(), sql.encode())
            if result.status != psycopg.pq.ExecStatus.COMMAND_OK:
                failed.append(f"{name}: {result.get_error_message()}")
    assert failed == []
