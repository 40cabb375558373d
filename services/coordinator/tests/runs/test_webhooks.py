"""The outbox of webhooks over a real PostgreSQL: which ends of runs are in it, who gets them, in which order, and that none is lost."""

import base64
import hashlib
import hmac
import json
import os
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from toban_coordinator.adapters.secret_keys import FileKeys
from toban_coordinator.app.notifications.operations_webhooks import TargetChange, WebhookOperations
from toban_coordinator.app.notifications.webhook_outbox import Claim, Outgoing, WebhookOutbox
from toban_coordinator.app.runs.cancel import CancelRun
from toban_coordinator.decide.notifications.webhooks import (
    BACKOFF_SECONDS,
    BREAKER_FAILURES,
    IDLE_POLL_SECONDS,
    PARALLEL,
    POLL_SECONDS,
    TryResult,
)
from toban_coordinator.store.notifications.webhooks import Filter
from toban_coordinator.store.runs import runs_finish
from toban_domain.run import FAILURES
from toban_runtime.ids import IdSource
from toban_store.tx import Tx, tx

ALL = ("SUCCEEDED", "FAILED", "TIMED_OUT", "CANCELED", "SKIPPED", "EXPIRED")
OK, DOWN = TryResult(status=204), TryResult(error="connection refused")


class Desk:
    """Targets and the outbox of one coordinator."""

    def __init__(self, world: Any, key_file: Path) -> None:
        self.world = world
        self.keys = FileKeys(key_file)
        self.operations = WebhookOperations(pool=world.pool, keys=self.keys)
        self.outbox = self.coordinator()

    def coordinator(self) -> WebhookOutbox:
        """Another one, which has never heard of anything."""
        return WebhookOutbox(pool=self.world.pool, keys=self.keys, ids=IdSource(), now=self.world.now)

    async def target(self, name: str = "pager", states: Any = ALL, jobs: Any = (), labels: Any = None) -> str:
        """Makes one; its secret."""
        which = Filter(states=states, jobs=jobs, labels=labels or {})
        change = TargetChange(name=name, url=f"https://{name}.example/hook?key=hidden", which=which)
        return (await self.operations.set(change, "ada"))[1]

    async def pending(self) -> list[tuple[str, int]]:
        """(type, run) of everything that waits, in its order."""
        rows = await self.world.sql(
            "SELECT type, run_id FROM scheduler.webhook_deliveries WHERE state = 'pending' ORDER BY id"
        )
        return [(row["type"], row["run_id"]) for row in rows]

    async def later(self, seconds: float) -> None:
        """Moves the clock on: every time of the outbox and of the targets lies so much further back."""
        await self.world.sql(
            "UPDATE scheduler.webhook_deliveries SET next_at = next_at - %(s)s * interval '1 s', created_at = created_at - %(s)s * interval '1 s',"
            " ended_at = ended_at - %(s)s * interval '1 s'",
            s=seconds,
        )
        await self.world.sql(
            "UPDATE scheduler.webhook_targets SET open_until = open_until - %(s)s * interval '1 s'", s=seconds
        )

    async def answer(self, claim: Claim, result: Callable[[Outgoing], TryResult]) -> None:
        """What a sender does with what it has claimed."""
        for one in claim.requests:
            assert await self.outbox.confirm(one.delivery, claim.lease, result(one))


@pytest.fixture
def desk(world: Any, tmp_path: Path) -> Desk:
    path = tmp_path / "keys"
    path.write_text(base64.b64encode(os.urandom(32)).decode())
    path.chmod(0o600)
    return Desk(world, path)


@pytest.fixture
async def ends(world: Any, make: Any) -> Callable[..., Any]:
    """Lets a run of a job end, in the transaction of its executor's report; its number."""
    await world.executor(slots=64)
    load = make.job("load")
    load["metadata"]["labels"] = {"team": "data"}
    await world.apply(load, make.job("report", retry={"max_attempts": 1}))

    async def end(job: str = "load", kind: str = "FAILED") -> int:
        [run] = await world.start(job)
        await world.turn("assign")
        given = {"exit_code": 3} if kind == "FAILED" else {}
        await world.report(world.key(run), make.outcome(kind, **given))
        return int(run)

    return end


def event(one: Outgoing) -> str:
    return one.headers["webhook-id"]


def run_of(one: Outgoing) -> int:
    return int(json.loads(one.body)["data"]["run"]["id"])


# ---- which ends are in it


async def test_the_end_of_a_run_is_a_signed_message(desk: Desk, ends: Any) -> None:
    secret = await desk.target()
    run = await ends()
    claim = await desk.outbox.claim(10)
    [one] = claim.requests
    assert one.url == "https://pager.example/hook?key=hidden"
    document = json.loads(one.body)
    assert document["type"] == "run.failed" and document["timestamp"]
    said = document["data"]["run"]
    assert (said["id"], said["job"], said["state"], said["exit_code"]) == (run, "load", "FAILED", 3)
    assert said["labels"] == {"team": "data"} and "payload" not in document["data"]
    signed = f"{event(one)}.{one.headers['webhook-timestamp']}.".encode() + one.body
    key = base64.b64decode(secret.removeprefix("whsec_"))
    expected = base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode()
    assert one.headers["webhook-signature"] == f"v1,{expected}"
    assert "hidden" not in repr(one) and secret not in repr(claim)


@pytest.mark.parametrize(
    ("which", "expected"),
    [
        ({"states": FAILURES}, ["run.failed"]),
        ({"states": ("SUCCEEDED",)}, ["run.succeeded"]),
        ({"jobs": ("report",)}, ["run.succeeded"]),
        ({"jobs": ("other",)}, []),
        ({"labels": {"team": "data"}}, ["run.failed"]),
        ({"labels": {"team": "data", "tier": "1"}}, []),
        ({"states": ("LATE",)}, []),
    ],
)
async def test_a_target_gets_the_ends_of_its_filter(
    desk: Desk, ends: Any, which: dict[str, Any], expected: list[str]
) -> None:
    await desk.target(**which)
    await ends("load", "FAILED")
    await ends("report", "SUCCEEDED")
    assert [kind for kind, _ in await desk.pending()] == expected


async def test_ends_without_an_executor_are_in_it_and_late_ones_by_their_name(
    desk: Desk, ends: Any, world: Any, make: Any
) -> None:
    await desk.target("all")
    await desk.target("late", states=("LATE",))
    await world.apply(make.job("load", skip_late_after_seconds=60))
    canceled, late = await world.start("load", 2)
    await CancelRun(pool=world.pool, definitions=world.definitions).cancel(canceled, reason="", mode="", actor="ada")
    await world.sql(
        "UPDATE scheduler.runs_live SET scheduled_for = now() - interval '1 hour' WHERE id = %(id)s", id=late
    )
    await world.turn("assign")
    assert Counter(await desk.pending()) == {("run.canceled", canceled): 1, ("run.skipped", late): 2}


async def test_disabled_targets_get_nothing(desk: Desk, ends: Any) -> None:
    await desk.target()
    await desk.operations.set(TargetChange(name="pager", enabled=False), "ada")
    await ends()
    assert await desk.pending() == []
    assert (await desk.outbox.claim(10)).next_poll_seconds == IDLE_POLL_SECONDS


@pytest.mark.parametrize("target", [None, {"states": ("SUCCEEDED",)}])
async def test_the_end_of_a_run_costs_no_statement_more(
    desk: Desk, ends: Any, world: Any, monkeypatch: pytest.MonkeyPatch, target: Any
) -> None:
    """Without a target that wants it: one statement ends the run, and no part of it looks at runs for webhooks."""
    if target is not None:
        await desk.target(**target)
    statements: list[str] = []
    run = Tx._run

    async def counted(self: Tx, sql: str, *args: Any) -> Any:
        statements.append(sql)
        return await run(self, sql, *args)

    monkeypatch.setattr(Tx, "_run", counted)
    await ends()
    assert sum("webhook" in sql for sql in statements) == 1
    assert [sql for sql in statements if "webhook" in sql] == [runs_finish._sql.finish]


async def test_without_a_target_no_run_is_looked_at_for_webhooks(ends: Any, world: Any) -> None:
    [run] = await world.start("report")
    moves = [{"id": run, "source": "PENDING", "token": None, "target": "CANCELED"}]
    parameters = {"moves": json.dumps(moves), "ids": f"{{{run}}}", "notify": False}
    async with tx(world.pool) as t:
        [row] = await t.fetch_all(f"EXPLAIN (ANALYZE, FORMAT JSON) {runs_finish._sql.finish}", parameters)
    nodes = nodes_of(row["QUERY PLAN"][0]["Plan"])
    parts = {node.get("Subplan Name", ""): node for node in nodes}
    assert parts["CTE gone"]["Actual Rows"] == 1, "the statement has ended the run"
    [ended] = [node for node in nodes_of(parts["CTE noticed"]) if node.get("CTE Name") == "gone"]
    assert (ended["Actual Loops"], parts["CTE recoveries"]["Actual Loops"]) == (0, 0)
    assert not [node for node in nodes if node.get("Relation Name", "").startswith("runs_history_")], "no day is opened"


def nodes_of(node: dict[str, Any]) -> list[dict[str, Any]]:
    return [node, *(inner for part in node.get("Plans", []) for inner in nodes_of(part))]


# ---- delivery


async def test_a_target_that_is_down_for_an_hour_gets_each_event_once_and_in_order(
    desk: Desk, ends: Any, world: Any
) -> None:
    """The receiver loses the response of some deliveries: it dedupes by id."""
    await desk.target()
    runs = [await ends() for _ in range(12)]
    # Three more events of each run, in the order of their rows.
    for kind in ("run.a", "run.b", "run.c"):
        await world.sql(
            "INSERT INTO scheduler.webhook_deliveries (target_id, type, run_id)"
            " SELECT d.target_id, %(k)s, d.run_id FROM scheduler.webhook_deliveries d WHERE d.type = 'run.failed' ORDER BY d.id",
            k=kind,
        )
    waiting = await desk.pending()
    assert len(waiting) == 48
    received: dict[str, tuple[int, str]] = {}
    lost_responses = 0

    def receive(one: Outgoing) -> TryResult:
        nonlocal lost_responses
        first = event(one) not in received
        received.setdefault(event(one), (run_of(one), json.loads(one.body)["type"]))
        if first and len(received) % 7 == 0:
            lost_responses += 1
            return TryResult(error="the response was lost")
        return OK

    tries = 0
    for _ in range(120):
        claim = await desk.outbox.claim(10)
        tries += len(claim.requests)
        await desk.answer(claim, lambda _: DOWN)
        await desk.later(30)
    assert received == {} and 10 < tries < 60, "the breaker leaves most of them untried"
    assert len(await desk.pending()) == 48
    for _ in range(600):
        await desk.answer(await desk.outbox.claim(10), receive)
        if not await desk.pending():
            break
        await desk.later(30)
    assert await desk.pending() == [] and lost_responses > 3
    assert len(received) == 48 and Counter(received.values()) == Counter({(run, kind): 1 for kind, run in waiting})
    for run in runs:
        kinds = [kind for of, kind in received.values() if of == run]
        assert kinds == ["run.failed", "run.a", "run.b", "run.c"]


async def test_what_is_committed_outlives_leader_and_sender(desk: Desk, ends: Any) -> None:
    """The coordinator that ended the run and the sender that claimed it are both gone: another one of each delivers it."""
    await desk.target()
    run = await ends()
    lost = await desk.coordinator().claim(10)
    assert [run_of(one) for one in lost.requests] == [run]
    assert (await desk.outbox.claim(10)).requests == [], "it is its sender's alone until the lease ends"
    await desk.later(61)
    claim = await desk.coordinator().claim(10)
    assert [event(one) for one in claim.requests] == [event(one) for one in lost.requests]
    assert not await desk.outbox.confirm(lost.requests[0].delivery, lost.lease, OK), "the lease has gone to another"
    assert len(await desk.pending()) == 1
    await desk.answer(claim, lambda _: OK)
    assert await desk.pending() == []


async def test_a_slow_target_leaves_senders_for_others(desk: Desk, ends: Any) -> None:
    await desk.target("slow")
    await desk.target("quick", jobs=("report",))
    for _ in range(PARALLEL + 3):
        await ends()
    claim = await desk.outbox.claim(10)
    assert len(claim.requests) == PARALLEL and claim.next_poll_seconds == POLL_SECONDS
    run = await ends("report")
    assert [(one.target, run_of(one)) for one in (await desk.outbox.claim(10)).requests] == [("quick", run)]
    await desk.answer(claim, lambda _: OK)
    assert len((await desk.outbox.claim(3)).requests) == 3
    assert len((await desk.outbox.claim(10)).requests) == 1


async def test_a_delivery_that_always_fails_ends_and_is_sent_again_by_hand(desk: Desk, ends: Any) -> None:
    await desk.target()
    await ends()
    ids = set()
    for _ in range(len(BACKOFF_SECONDS) + 1):
        [one] = (claim := await desk.outbox.claim(10)).requests
        ids.add(event(one))
        await desk.answer(claim, lambda _: TryResult(status=500, retry_after=10**9))
        await desk.later(max(BACKOFF_SECONDS))
    assert await desk.pending() == [] and len(ids) == 1
    [target] = await desk.operations.list()
    assert (target.status, target.failures, target.last_error) == (
        "down",
        len(BACKOFF_SECONDS) + 1,
        "the target responded with 500",
    )
    assert await desk.operations.redeliver("pager", [], reason="", actor="ada") == 1
    [again] = (claim := await desk.outbox.claim(10)).requests
    assert event(again) in ids
    await desk.answer(claim, lambda _: OK)
    [target] = await desk.operations.list()
    assert (target.status, target.failures, target.open_until, target.failing_since) == ("active", 0, None, None)
    assert await desk.operations.redeliver("pager", [again.delivery], reason="", actor="ada") == 1
    assert [event(one) for one in (await desk.outbox.claim(10)).requests] == [event(again)]


async def test_the_breaker_lets_one_through_at_a_time(desk: Desk, ends: Any) -> None:
    await desk.target()
    for _ in range(BREAKER_FAILURES + 5):
        await ends()
    await desk.answer(await desk.outbox.claim(4), lambda _: DOWN)
    await desk.answer(await desk.outbox.claim(1), lambda _: DOWN)
    assert (await desk.outbox.claim(10)).requests == []
    await desk.later(31)
    probe = await desk.outbox.claim(10)
    assert len(probe.requests) == 1 and (await desk.outbox.claim(10)).requests == []
    await desk.answer(probe, lambda _: DOWN)
    await desk.later(31)
    assert (await desk.outbox.claim(10)).requests == [], "each pause is twice the one before"
    await desk.later(30)
    await desk.answer(await desk.outbox.claim(10), lambda _: OK)
    assert len((await desk.outbox.claim(10)).requests) == PARALLEL


async def test_what_cannot_be_made_ready_is_a_try_that_failed(desk: Desk, ends: Any, world: Any) -> None:
    await desk.target()
    await ends()
    await world.sql("DELETE FROM scheduler.secrets")
    assert (await desk.outbox.claim(10)).requests == []
    [target] = await desk.operations.list()
    assert target.failures == 1 and "set URL and secret of the webhook again" in target.last_error


async def test_a_run_past_its_retention_is_no_failure_of_the_target(desk: Desk, ends: Any, world: Any) -> None:
    await desk.target()
    gone, kept = await ends(), await ends()
    async with tx(world.administrator) as t:
        await t._run("SET LOCAL session_replication_role = replica", {})
        await t._run("DELETE FROM scheduler.runs_history WHERE id = %(id)s", {"id": gone})
    claim = await desk.outbox.claim(10)
    assert [run_of(one) for one in claim.requests] == [kept] and claim.next_poll_seconds == 0
    [row] = await world.sql("SELECT * FROM scheduler.webhook_deliveries WHERE run_id = %(id)s", id=gone)
    assert (row["state"], row["attempts"], row["lease"]) == ("failed", 0, None)
    assert "its run is past its retention" in row["error"]
    [target] = await desk.operations.list()
    assert (target.status, target.failures, target.pending) == ("active", 0, 1)


async def test_the_log_says_that_a_webhook_recovers_only_when_it_was_down(desk: Desk, ends: Any) -> None:
    await desk.target()
    for _ in range(BREAKER_FAILURES + 2):
        await ends()
    with capture_logs() as lines:
        await desk.answer(await desk.outbox.claim(1), lambda _: DOWN)
        await desk.answer(await desk.outbox.claim(1), lambda _: OK)
        assert lines == [], "one failure is none that anybody has heard of"
        for _ in range(BREAKER_FAILURES):
            await desk.answer(await desk.outbox.claim(1), lambda _: DOWN)
        await desk.later(31)
        await desk.answer(await desk.outbox.claim(1), lambda _: OK)
    assert [(one["event"], one["subject"], one["failures"]) for one in lines] == [
        ("a webhook has failed several times in a row; its deliveries wait", "pager", BREAKER_FAILURES),
        ("a webhook that was down takes deliveries again", "pager", BREAKER_FAILURES),
    ]
