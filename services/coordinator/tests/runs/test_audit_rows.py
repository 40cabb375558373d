"""What callers do with runs is in the audit: one row a call, in the write that does it, with where the call came from."""

from collections.abc import Iterator
from typing import Any

import pytest

from toban_coordinator.app.cluster.audit_log import run_numbers, spans
from toban_coordinator.app.runs.rerun import RerunRequest, RunRepeats
from toban_coordinator.app.runs.start_runs import RunRequest
from toban_domain.errors import TobanError
from toban_observability.context import CALLER, Caller


@pytest.fixture(autouse=True)
def caller() -> Iterator[None]:
    token = CALLER.set(Caller("192.0.2.7", "admin-web"))
    yield
    CALLER.reset(token)


async def audited(world: Any, *actions: str) -> list[dict[str, Any]]:
    rows = await world.sql(
        "SELECT action, actor, target, before, after, reason, address, service FROM scheduler.admin_action_log"
        " WHERE action = ANY (%(actions)s) ORDER BY id",
        actions=list(actions),
    )
    assert all((row.pop("address"), row.pop("service")) == ("192.0.2.7", "admin-web") for row in rows)
    return rows


def start(target: str, after: dict[str, Any], reason: str = "") -> dict[str, Any]:
    return {
        "action": "run.start",
        "actor": "admin-cli",
        "target": target,
        "before": None,
        "after": after,
        "reason": reason,
    }


@pytest.mark.seed(119)
async def test_a_start_is_one_row_by_either_path(world: Any, make: Any) -> None:
    await world.executor(slots=9)
    await world.apply(make.job(), make.job("other"))
    [queued] = await world.start()
    await world.turn("assign")
    [express] = await world.start_again()
    await world.turn("assign")
    several = await world.start_again(count=3)
    assert (await world.run(express))["state"] == "ASSIGNED", "placed as it was made"
    assert await audited(world, "run.start") == [
        start(f"run {queued}", {"jobs": ["hello"]}),
        start(f"run {express}", {"jobs": ["hello"]}),
        start("3 runs", {"jobs": ["hello"], "runs": spans(several)}),
    ]


async def test_runs_that_were_not_made_are_in_no_row(world: Any, make: Any) -> None:
    await world.apply(make.job())
    wanted = [RunRequest(job="hello", idempotency_key=key) for key in ("a", "b")]
    first = await world.service.start(wanted[:1], "admin-cli", reason="load test")
    again = await world.service.start(wanted, "admin-cli")
    await world.service.start(wanted, "admin-cli")
    with pytest.raises(TobanError):
        await world.service.start([RunRequest(job="nothing")], "admin-cli")
    assert [row["target"] for row in await audited(world, "run.start")] == [
        f"run {first[0].run_id}",
        f"run {again[1].run_id}",
    ]
    assert (await audited(world, "run.start"))[0]["reason"] == "load test"


@pytest.mark.seed(119)
async def test_a_cancel_is_a_row_with_the_state_before_and_after(world: Any, make: Any) -> None:
    await world.executor(slots=1)
    await world.apply(make.job())
    sent, waiting = await world.start(count=2)
    await world.turn("assign")
    for run in (sent, waiting, sent):
        await world.cancel(run)
    await world.cancel(sent, "kill")
    rows = [
        (row["action"], row["target"], row["before"], row["after"])
        for row in await audited(world, "run.cancel", "run.kill")
    ]
    assert rows == [
        ("run.cancel", f"run {sent}", {"state": "ASSIGNED"}, {"state": "CANCEL_REQUESTED"}),
        ("run.cancel", f"run {waiting}", {"state": "PENDING"}, {"state": "CANCELED"}),
        ("run.kill", f"run {sent}", {"state": "CANCEL_REQUESTED"}, {"state": "CANCEL_REQUESTED", "mode": "kill"}),
    ]


async def test_a_refused_cancel_leaves_no_row(world: Any, make: Any) -> None:
    await world.executor()
    await world.apply(make.job(cancel={"supported": False}))
    [run] = await world.start()
    await world.turn("assign")
    with pytest.raises(TobanError):
        await world.cancel(run)
    assert await audited(world, "run.cancel") == []


async def test_reruns_and_notes_are_rows(world: Any, make: Any) -> None:
    await world.executor()
    await world.apply(make.job())
    [run] = await world.start()
    await world.turn("assign")
    await world.report(world.key(run), make.outcome("FAILED", exit_code=1))
    repeats = RunRepeats(pool=world.pool, start=world.service)
    made = await repeats.rerun(RerunRequest(run_id=run, reason="input was late"), "user ada")
    for _ in range(2):
        await repeats.note(run, "see ticket 7", actor="user ada")
    rerun, note = await audited(world, "run.rerun", "run.note")
    assert (rerun["target"], rerun["before"], rerun["reason"]) == (f"run {made.run_id}", {"run": run}, "input was late")
    assert (note["target"], note["after"]) == (f"run {run}", {"text": "see ticket 7"}), "sent twice, kept once"


def test_numbers_of_runs_are_spans() -> None:
    assert run_numbers([7]) == ("run 7", {})
    assert run_numbers([9, 1, 2, 3, 5]) == ("5 runs", {"runs": "1-3,5,9"})
    assert spans([]) == ""
