"""Loop `audit`, verification and retention, over a real PostgreSQL: what an administrator of the database changes is found."""

import os
from typing import Any

import pytest
from structlog.testing import capture_logs

from toban_coordinator.app.cluster import audit_verify
from toban_coordinator.app.cluster.audit_verify import Verified, verify_part
from toban_coordinator.loops import audit as loop
from toban_coordinator.store.cluster import audit
from toban_domain.audit_chain import START
from toban_domain.errors import ErrorCode, FencedOut, TobanError
from toban_observability import metrics
from toban_observability.metrics import samples
from toban_store.errors import DidNotHappen, StoreError
from toban_store.tx import Tx, autocommit, tx


async def note(world: Any, count: int, **fields: Any) -> None:
    async with tx(world.pool) as t:
        for number in range(1, count + 1):
            given: dict[str, Any] = {
                "actor": "user ada",
                "action": "drain",
                "target": f"executor {number} (夜間)",
                "before": {"state": "on", "load": 1.50, "name": "\u00e9\u0001"},
                "after": None,
                "reason": "disk, full: 7",
                **fields,
            }
            await audit.note(t, **given)


async def verified(world: Any, *, head: str = "") -> Verified:
    return await verify_part(world.pool, cursor="", known_head=head)


async def found(world: Any) -> list[tuple[str, int, int]]:
    return [(one.kind, one.first, one.last) for one in (await verified(world)).problems]


async def tamper(world: Any, statement: str) -> None:
    """As an administrator of PostgreSQL, who can switch triggers off."""
    async with tx(world.administrator) as t:
        await t._run("SET LOCAL session_replication_role = replica", {})
        await t._run(statement, {})


def value(name: str) -> float:
    [(_, number)] = samples(name)
    return number


async def test_new_rows_are_chained_and_fit_what_python_computes(world: Any) -> None:
    await note(world, 3)
    before = await verified(world)
    assert (before.rows, before.unchained, before.problems) == (0, 3, [])
    assert (await world.turn("audit")).moved == 3
    assert value("toban_audit_unchained_seconds") == 0.0
    await note(world, 2, before=None, after={"deep": {"b": [1, 2.0, 1e30, None, True], "a": 'ü"\\ \u2028'}})
    assert (await world.turn("audit")).moved == 2
    after = await verified(world)
    assert (after.rows, after.unchained, after.problems, after.head.seq) == (5, 0, [], 5)
    assert (await world.turn("audit")).moved == 0


async def test_a_row_that_commits_late_is_chained_late(world: Any) -> None:
    async with tx(world.pool) as late:
        await audit.note(late, "a", "b", "late")
        await note(world, 1)
        await world.turn("audit")
    await world.turn("audit")
    rows = await world.sql("SELECT target, seq FROM scheduler.admin_action_log ORDER BY id")
    assert [(row["target"], row["seq"]) for row in rows] == [("late", 2), ("executor 1 (夜間)", 1)]
    assert await found(world) == []


@pytest.mark.parametrize(
    ("statement", "problem"),
    [
        ("UPDATE scheduler.admin_action_log SET actor = 'user bob' WHERE seq = 3", ("changed", 3, 3)),
        ("UPDATE scheduler.admin_action_log SET at = at - interval '1 microsecond' WHERE seq = 3", ("changed", 3, 3)),
        ("UPDATE scheduler.admin_action_log SET before = NULL WHERE seq = 3", ("changed", 3, 3)),
        ("DELETE FROM scheduler.admin_action_log WHERE seq IN (2, 3)", ("removed", 2, 3)),
        ("DELETE FROM scheduler.admin_action_log WHERE seq = 1", ("removed", 1, 1)),
        ("DELETE FROM scheduler.admin_action_log WHERE seq = 6", ("removed", 6, 6)),
        ("DELETE FROM scheduler.admin_action_log", ("removed", 1, 6)),
        (
            "INSERT INTO scheduler.admin_action_log (actor, action, target, seq, hash) VALUES ('a', 'b', 'c', 7, sha256('x'))",
            ("inserted", 7, 7),
        ),
        (
            "INSERT INTO scheduler.admin_action_log (actor, action, target, seq, hash) VALUES ('a', 'b', 'c', 0, sha256('x'))",
            ("inserted", 0, 0),
        ),
        (
            "UPDATE scheduler.admin_action_log SET target = 'x', hash = sha256('x') WHERE seq = 6",
            ("changed", 6, 6),
        ),
    ],
)
async def test_what_was_tampered_with_is_found_and_counted(
    world: Any, statement: str, problem: tuple[str, int, int]
) -> None:
    await note(world, 6)
    await world.turn("audit")
    assert value("toban_audit_problems") == 0
    await tamper(world, statement)
    assert problem in await found(world)
    world.take(world.term)
    await world.turn("audit")
    assert value("toban_audit_problems") >= 1


async def test_a_chain_that_was_written_again_is_found_by_a_head_that_was_noted(world: Any) -> None:
    await note(world, 4)
    await world.turn("audit")
    head = str((await verified(world)).head)
    await note(world, 1)
    await world.turn("audit")
    assert (await verified(world, head=head)).problems == []
    # All of it, by the owner's own function.
    await tamper(world, "UPDATE scheduler.admin_action_log SET actor = 'user bob', seq = NULL, hash = NULL")
    await tamper(world, "UPDATE scheduler.audit_chain SET seq = 0, hash = decode(repeat('00', 32), 'hex')")
    await world.turn("audit")
    assert await found(world) == []
    assert [(one.kind, one.first) for one in (await verified(world, head=head)).problems] == [("changed", 4)]
    await tamper(world, "DELETE FROM scheduler.admin_action_log WHERE seq >= 4")
    assert ("removed", 4) in [(one.kind, one.first) for one in (await verified(world, head=head)).problems]


async def test_a_verification_goes_on_where_the_last_part_ended(world: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit_verify, "PART_ROWS", 4)
    monkeypatch.setattr(audit_verify, "READ_ROWS", 2)
    await note(world, 9)
    await world.turn("audit")
    await tamper(world, "UPDATE scheduler.admin_action_log SET reason = '' WHERE seq IN (2, 8)")
    cursor, rows, problems = "", [], []
    while True:
        part = await verify_part(world.pool, cursor=cursor, known_head="")
        rows.append(part.rows)
        problems += [one.first for one in part.problems]
        if part.after is None:
            break
        cursor = str(part.after)
    assert (rows, problems) == ([4, 4, 1], [2, 8])
    for wrong in ("7", "x:y"):
        with pytest.raises(TobanError, match="not of the form SEQ:HASH") as caught:
            await verify_part(world.pool, cursor=wrong, known_head="")
        assert caught.value.code is ErrorCode.INVALID_ARGUMENT


@pytest.mark.parametrize("rare", [False, True])
async def test_pages_are_bounded_by_bytes(world: Any, monkeypatch: pytest.MonkeyPatch, rare: bool) -> None:
    """Rows hold whole manifests: 2,000 of them can be gigabytes. `rare`: text that PostgreSQL cannot compress."""
    text = os.urandom(20_000).hex() if rare else "x" * 40_000
    await note(world, 7, before={"text": text}, after={"text": text})
    await world.turn("audit")
    await tamper(world, "UPDATE scheduler.admin_action_log SET reason = '' WHERE seq = 6")
    monkeypatch.setattr(audit_verify, "READ_BYTES", 200_000)
    pages, after = [], START
    async with autocommit(world.pool) as t:
        while after is not None:
            part = await audit_verify.check_part(t, after, limit=2_000)
            pages.append((part.rows, [one.first for one in part.problems]))
            assert part.size <= 210_000
            after = part.after
        monkeypatch.setattr(audit_verify, "READ_BYTES", 1)
        alone = await audit_verify.check_part(t, START, limit=2_000)
    assert pages == [(2, []), (2, []), (2, [6]), (1, [])], "also the last page ends the verification"
    assert alone.rows == 1, "one row is read whatever it takes"
    monkeypatch.setattr(audit_verify, "PART_BYTES", 100_000)
    assert (await verify_part(world.pool, cursor="", known_head="")).rows == 2, "a call is bounded as well"


async def test_a_turn_is_bounded_by_bytes(world: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    await note(world, 6, before={"text": "x" * 40_000})
    await world.turn("audit")
    monkeypatch.setattr(audit_verify, "READ_BYTES", 100_000)
    monkeypatch.setattr(loop, "PART_BYTES", 150_000)
    world.take(world.term)
    before = value("toban_audit_verified_total")
    await world.turn("audit")
    assert value("toban_audit_verified_total") - before == 4
    await world.turn("audit")
    assert value("toban_audit_verified_total") - before == 6


def small_parts(world: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The loop of a term that checks four rows a turn, in two pages."""
    monkeypatch.setattr(loop, "READ_ROWS", 2)
    monkeypatch.setattr(loop, "TURN_ROWS", 4)
    world.take(world.term)
    return world.loops["audit"]._work.__self__


async def test_the_loop_verifies_in_parts_and_again_after_an_hour(world: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    await note(world, 9)
    chain = small_parts(world, monkeypatch)
    assert (await world.turn("audit")).next_in == loop.NEXT_PART_SECONDS
    assert chain._verifying(), "a new term verifies all"
    await world.turn("audit", "audit")
    assert not chain._verifying() and value("toban_audit_problems") == 0
    await tamper(world, "UPDATE scheduler.admin_action_log SET reason = '' WHERE seq = 1")
    chain._next = 0.0
    await world.turn("audit")
    assert chain._verifying() and value("toban_audit_problems") == 1, "known before the verification ends"
    await world.turn("audit", "audit")
    chain._next = 0.0
    await world.turn("audit")
    assert value("toban_audit_problems") == 1


async def test_a_verification_reads_pages_and_chains_nothing(world: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    await note(world, 9)
    await world.turn("audit")
    chain = small_parts(world, monkeypatch)
    statements: list[str] = []
    run = Tx._run

    async def counted(self: Tx, sql: str, *args: Any) -> Any:
        statements.append(sql)
        return await run(self, sql, *args)

    monkeypatch.setattr(Tx, "_run", counted)
    await world.turn("audit", "audit", "audit")
    assert not chain._verifying() and statements.count(audit._sql.links) == 5
    assert audit._sql.chain not in statements, "no row waits for its place"
    monkeypatch.undo()
    assert loop.TURN_ROWS / loop.READ_ROWS == 10 and loop.TURN_ROWS / loop.NEXT_PART_SECONDS >= 200_000


async def test_a_problem_is_known_to_the_next_leader_before_it_has_verified(
    world: Any, new_term: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    await note(world, 9)
    await world.turn("audit")
    await tamper(world, "UPDATE scheduler.admin_action_log SET reason = '' WHERE seq = 8")
    small_parts(world, monkeypatch)
    await world.turn("audit", "audit", "audit")
    assert value("toban_audit_problems") == 1
    metrics.clear_leader_gauges()
    world.take(await new_term(2))
    await world.turn("audit")
    assert world.loops["audit"]._work.__self__._verifying() and value("toban_audit_problems") == 1
    await tamper(world, "UPDATE scheduler.admin_action_log SET reason = 'disk, full: 7' WHERE seq = 8")
    await world.turn("audit", "audit")
    assert value("toban_audit_problems") == 0
    assert [row["problems"] for row in await world.sql("SELECT problems FROM scheduler.audit_verdict")] == [0]


@pytest.mark.parametrize("mark", ["anchor", "head"])
async def test_an_end_of_the_chain_that_is_removed_is_a_problem(world: Any, mark: str) -> None:
    """Also in the hour between two verifications, as soon as a row waits for its place."""
    await note(world, 2)
    await world.turn("audit")
    ends = await world.sql("SELECT * FROM scheduler.audit_chain")
    await tamper(world, f"DELETE FROM scheduler.audit_chain WHERE mark = '{mark}'")
    assert await found(world) == [("removed", 0, 0)]
    assert [one.kind for one in (await verified(world, head=f"1:{'00' * 32}")).problems] == ["removed"]
    await note(world, 1)
    await world.sql("UPDATE scheduler.admin_action_log SET at = at WHERE seq IS NULL")
    for _ in range(2):
        with capture_logs() as lines:
            if mark == "head":
                with pytest.raises(StoreError):
                    await world.turn("audit")
            else:
                world.take(world.term)
                await world.turn("audit")
        assert value("toban_audit_problems") == 1
        assert mark == "anchor" or value("toban_audit_unchained_seconds") > 0
    assert {line["log_level"] for line in lines} <= {"error"}
    for end in ends:
        await tamper(
            world,
            "INSERT INTO scheduler.audit_chain (mark, seq, hash)"
            f" VALUES ('{end['mark']}', {end['seq']}, decode('{bytes(end['hash']).hex()}', 'hex')) ON CONFLICT DO NOTHING",
        )
    world.take(world.term)
    await world.turn("audit")
    assert value("toban_audit_problems") == 0


async def test_what_a_verification_found_is_an_error_in_the_log(world: Any) -> None:
    await note(world, 3)
    with capture_logs() as lines:
        await world.turn("audit")
    [line] = lines
    assert (line["log_level"], line["event"], line["rows"]) == ("info", "audit verified", 3) and line["head"]
    await tamper(world, "UPDATE scheduler.admin_action_log SET reason = '' WHERE seq IN (1, 3)")
    world.take(world.term)
    with capture_logs() as lines:
        await world.turn("audit")
    assert [line["log_level"] for line in lines] == ["error"] * 3
    assert "row 1 does not fit its hash" in lines[0]["problem"] and lines[2]["problems"] == 2


async def test_a_deposed_leader_chains_nothing(world: Any) -> None:
    await note(world, 1)
    await world.sql("UPDATE scheduler.leader SET epoch = epoch + 1")
    with pytest.raises(FencedOut):
        await world.turn("audit")
    assert (await verified(world)).unchained == 1


async def test_old_rows_go_and_the_rest_stays_verifiable(world: Any) -> None:
    await note(world, 6)
    await world.turn("audit")
    head = str((await verified(world)).head)
    await tamper(world, "UPDATE scheduler.admin_action_log SET at = at - interval '400 days' WHERE seq IN (1, 2, 3, 5)")
    world.settings.set(audit_retention_days=399)
    assert (await world.turn("prune")).moved == 3, "a younger row keeps those behind it"
    assert await found(world) == [("changed", 5, 5)]
    anchor = (await verified(world)).anchor
    assert anchor.seq == 3
    await note(world, 1)
    await world.turn("audit")
    assert (await verified(world, head=head)).head.seq == 7
    with pytest.raises(TobanError, match="older than what is kept, 4 and later"):
        await verified(world, head=f"2:{'00' * 32}")
    world.settings.unsure = {"audit_retention_days"}
    assert (await world.turn("prune")).moved == 0


async def test_only_old_rows_can_be_removed_and_none_changed(world: Any) -> None:
    await note(world, 2)
    await world.turn("audit")
    await note(world, 1)
    for statement in (
        "DELETE FROM scheduler.admin_action_log WHERE seq = 1",
        "DELETE FROM scheduler.admin_action_log WHERE seq IS NULL",
        "UPDATE scheduler.admin_action_log SET actor = 'user bob' WHERE seq = 1",
        "UPDATE scheduler.admin_action_log SET actor = 'user bob' WHERE seq IS NULL",
        "UPDATE scheduler.admin_action_log SET seq = NULL, hash = NULL WHERE seq = 2",
        "SELECT scheduler.forget_audit(29, 10)",
    ):
        with pytest.raises(DidNotHappen, match=r"never changed or removed|30 days at least"):
            await world.sql(statement)
