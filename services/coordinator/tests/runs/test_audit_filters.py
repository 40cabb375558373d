"""The audit log is read in pages, from either end, and filtered by what people type."""

import json
from typing import Any

from toban_coordinator.app.cluster.audit_log import list_audit
from toban_coordinator.app.paging import PageRequest
from toban_coordinator.store.cluster import audit
from toban_coordinator.store.cluster.audit import AuditFilter
from toban_store.tx import tx


async def note(world: Any, count: int, **fields: Any) -> None:
    async with tx(world.pool) as t:
        for number in range(1, count + 1):
            given: dict[str, Any] = {
                "actor": "user ada",
                "action": "drain",
                "target": f"executor {number} (夜間)",
                **fields,
            }
            await audit.note(t, **given)


async def test_the_log_is_filtered_and_read_from_either_end(world: Any) -> None:
    await note(world, 2)
    await note(world, 1, actor="user ada, token 3", action="run.cancel", target="run 9")
    await note(world, 1, actor="user adam", action="runs.cancel", target="3 runs", after={"runs": "7-8,11"})
    rows = await world.sql("SELECT id, at FROM scheduler.admin_action_log ORDER BY id")

    async def ids(*, oldest_first: bool = False, limit: int = 0, cursor: str = "", **wanted: Any) -> list[int]:
        page = PageRequest(limit=limit, cursor=cursor)
        done = await list_audit(world.pool, page, AuditFilter(**wanted), oldest_first=oldest_first)
        return [row["id"] for row in done.rows]

    assert await ids() == [4, 3, 2, 1] and await ids(oldest_first=True) == [1, 2, 3, 4]
    assert await ids(limit=2, cursor="3") == [2, 1] and await ids(limit=2, cursor="1", oldest_first=True) == [2, 3]
    assert await ids(actor="user ada") == [3, 2, 1] and await ids(actor="user adam") == [4]
    assert await ids(action="run.cancel") == [3]
    assert await ids(target="executor 1") == [1]
    assert [await ids(target=f"run {run}") for run in (7, 8, 9, 10, 11)] == [[4], [4], [3], [], [4]]
    assert await ids(since=rows[2]["at"]) == [4, 3] and await ids(until=rows[2]["at"]) == [2, 1]
    assert await ids(address="192.0.2.1") == []
    assert json.loads((await list_audit(world.pool, PageRequest(), AuditFilter(action="runs.cancel"))).rows[0]["after"])


async def test_the_log_is_filtered_as_people_type(world: Any) -> None:
    await note(world, 1, actor="user alice", action="job.disable", target="job nightly-load")
    await note(world, 1, actor="user alice, token 3", action="job.enable", target="job nightly-load")
    await note(world, 1, actor="user malice", action="undrain", target="executor 10 (host-a)")
    await note(world, 1, actor="user bob", action="limit.set", target="limit pool:licences_(a|b)")

    async def ids(**wanted: str) -> list[int]:
        return [row["id"] for row in (await list_audit(world.pool, PageRequest(), AuditFilter(**wanted))).rows]

    table: dict[str, list[tuple[str, list[int]]]] = {
        "actor": [("alice", [2, 1]), ("user:alice", [2, 1]), ("Ali", [2, 1]), ("user", [4, 3, 2, 1]), ("lice", [])],
        "action": [
            ("job", [2, 1]),
            ("disable", [1]),
            ("able", []),
            ("drain", []),
            ("job.", [2, 1]),
            ("job disable", []),
        ],
        "target": [
            *((text, [2, 1]) for text in ("nightly-load", "job:nightly-load", "job nightly-load", "nightly", "load")),
            *(("executor:10", [3]), ("host-a", [3]), ("1", []), ("executor 1", [])),
            *(
                ("pool:licences_(a|b)", [4]),
                ("limit:pool:licences_(a|b)", [4]),
                ("(a|b)", [4]),
                (".*", []),
                ("[", []),
                ("\\", []),
                ("→ा", []),
            ),
            ("(" * 100_000, []),
        ],
    }
    for name, rows in table.items():
        for text, found in rows:
            assert await ids(**{name: text}) == found, (name, text)
