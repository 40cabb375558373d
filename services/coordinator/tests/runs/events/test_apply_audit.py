"""Jobs and triggers in the log of what operators did."""

from typing import Any

from toban_coordinator.store.cluster import audit


async def test_jobs_and_triggers_are_in_the_log_of_operators(world: Any, make: Any, inbox: Any) -> None:
    async def actions() -> list[dict[str, Any]]:
        return await world.sql(
            "SELECT actor, action, target, before, after FROM scheduler.admin_action_log ORDER BY id"
        )

    await world.apply(make.job(), inbox.trigger(), dry_run=True)
    assert await actions() == [], "nothing was changed"
    await world.apply(make.job(), inbox.trigger())
    await world.apply(make.job(), inbox.trigger())
    await world.apply(make.job(enabled=False), inbox.trigger(enabled=False))
    rows = await actions()
    assert [(row["action"], row["target"]) for row in rows] == [
        ("job.create", "job hello"),
        ("trigger.create", "trigger on-paid"),
        ("job.update", "job hello"),
        ("trigger.update", "trigger on-paid"),
    ]
    assert {row["actor"] for row in rows} == {"admin-cli"}
    assert [row["before"] for row in rows[:2]] == [None, None]
    for row in rows[2:]:
        assert row["before"]["spec"] == rows[rows.index(row) - 2]["after"]["spec"]
        assert (row["before"]["version"], row["after"]["version"]) == (1, 2)
        assert row["before"]["spec"].get("enabled", True) and not row["after"]["spec"]["enabled"]


async def test_the_reason_is_noted_with_each_definition_that_changes(world: Any, make: Any, inbox: Any) -> None:
    await world.apply(make.job(), reason="first")
    documents = (make.job(), make.schedule("nightly"), inbox.trigger())
    await world.apply(*documents, reason="  the disk is slow  ")
    await world.apply(*documents, reason="nothing changes")
    rows = await world.sql("SELECT target, reason FROM scheduler.admin_action_log ORDER BY id")
    assert [(row["target"], row["reason"]) for row in rows] == [
        ("job hello", "first"),
        ("schedule nightly", "the disk is slow"),
        ("trigger on-paid", "the disk is slow"),
    ]


async def test_hundreds_of_jobs_are_noted_in_few_statements(world: Any, make: Any, monkeypatch: Any) -> None:
    sizes: list[int] = []
    note_all = audit.note_all

    async def counted(t: Any, actions: Any) -> None:
        sizes.append(len(actions))
        await note_all(t, actions)

    monkeypatch.setattr(audit, "note_all", counted)
    await world.apply(*(make.job(f"j{number}") for number in range(600)))
    assert sum(sizes) == 600 and max(sizes) <= 500 and len(sizes) < 60
