"""A freed slot is offered at once: loop `assign` is woken when somebody waits for it."""

from typing import Any

import psycopg
import pytest

from toban_coordinator.app.runs.certain_ends import SLOTS

NAMED_AHEAD = (
    "UPDATE scheduler.runs_live SET state = 'ASSIGNED', assigned_incarnation = %(i)s, assigned_worker_id = 1, assigned_at = now()"
    " WHERE id = %(r)s"
)


@pytest.mark.parametrize("leads", [False, True])
@pytest.mark.parametrize("waits", ["PENDING", "named ahead", "nobody"])
async def test_the_end_of_a_run_wakes_assign(world: Any, make: Any, pg_url: str, waits: str, leads: bool) -> None:
    """Where the loop runs without a notification, whose commit would wait for all others."""
    incarnation = await world.executor(slots=1)
    await world.apply(make.job())
    first, *others = await world.start(count=1 if waits == "nobody" else 2)
    await world.turn("assign")
    if waits == "named ahead":
        await world.sql(NAMED_AHEAD, r=others[0], i=incarnation)
    woken: list[str] = []
    if leads:
        world.wakes.register("assign", lambda: woken.append("assign"))
        world.wakes.register(SLOTS, lambda: world.fast_path.wake_waiting(world.wakes))
    async with await psycopg.AsyncConnection.connect(pg_url, autocommit=True) as listener:
        await listener.execute("LISTEN toban_wake")
        await world.report(world.key(first), make.outcome())
        # After the commit: what was sent by then arrives with the answer.
        await listener.execute("SELECT 1")
        heard = [note.payload async for note in listener.notifies(timeout=0)]
    assert ("assign" in heard) == (waits != "nobody" and not leads)
    assert woken == (["assign"] if waits != "nobody" and leads else [])
