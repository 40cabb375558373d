"""Array literals read back as what they were made from."""

from datetime import UTC, datetime

import pytest

from toban_store import array_literals
from toban_store.pool import Pool
from toban_store.tx import autocommit


async def test_literals_read_back(pool: Pool) -> None:
    at = datetime(2030, 1, 2, 3, 4, 5, 678, tzinfo=UTC)
    sql = "SELECT %(n)s::bigint[] AS n, %(w)s::text[] AS w, %(t)s::timestamptz[] AS t, %(e)s::uuid[] AS e"
    parameters = {
        "n": array_literals.numbers([1, None, -(2**62)]),
        "w": array_literals.words(["", "null", None, "a,b {c}"]),
        "t": array_literals.times([at, None]),
        "e": array_literals.words([]),
    }
    async with autocommit(pool) as t:
        row = await t.fetch_one(sql, parameters)
    assert row == {"n": [1, None, -(2**62)], "w": ["", "null", None, "a,b {c}"], "t": [at, None], "e": []}


@pytest.mark.parametrize("item", ['a"b', "a\\b"])
def test_what_needs_quoting_is_refused(item: str) -> None:
    with pytest.raises(ValueError, match="quoting"):
        array_literals.words(["fine", item])
