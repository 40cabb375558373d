"""What jobs notify webhooks of, over a real PostgreSQL: each thing once, also over a change of the leader, and not in quiet hours."""

import base64
import json
import os
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from toban_coordinator.adapters.secret_keys import FileKeys
from toban_coordinator.app.definitions.disable_job import DisableJob
from toban_coordinator.app.notifications.operations_webhooks import TargetChange, WebhookOperations
from toban_coordinator.app.notifications.webhook_outbox import WebhookOutbox
from toban_coordinator.app.runs.commit_reports import commit_reports
from toban_coordinator.decide.notifications.webhooks import PARALLEL, TryResult
from toban_coordinator.decide.runs.report import Report
from toban_coordinator.store.notifications import webhook_outbox, webhooks
from toban_coordinator.store.notifications.webhooks import Filter
from toban_domain.errors import ErrorCode, TobanError
from toban_runtime.ids import IdSource
from toban_store.tx import tx

Document = dict[str, Any]


@pytest.fixture
def keys(tmp_path: Path) -> FileKeys:
    path = tmp_path / "keys"
    path.write_text(base64.b64encode(os.urandom(32)).decode())
    path.chmod(0o600)
    return FileKeys(path)


@pytest.fixture
async def operations(world: Any, keys: FileKeys) -> WebhookOperations:
    """With a webhook `chat` that gets only what jobs ask for."""
    await world.executor(slots=64)
    made = WebhookOperations(pool=world.pool, keys=keys)
    await made.set(TargetChange(name="chat", url="https://chat.example/x", which=Filter(states=[], labels={})), "ada")
    return made


@pytest.fixture
def outbox(world: Any, keys: FileKeys) -> WebhookOutbox:
    return WebhookOutbox(pool=world.pool, keys=keys, ids=IdSource(), now=world.now)


@pytest.fixture
def sent(world: Any) -> Callable[..., Any]:
    """(type, run) of everything in the outbox, in its order."""

    async def read() -> list[tuple[str, int | None]]:
        rows = await world.sql("SELECT type, run_id FROM scheduler.webhook_deliveries ORDER BY id")
        return [(row["type"], row["run_id"]) for row in rows]

    return read


@pytest.fixture
def end(world: Any, make: Any) -> Callable[..., Any]:
    async def run(kind: str, job: str = "load") -> int:
        [started] = await world.start(job)
        await world.turn("assign")
        await world.report(world.key(started), make.outcome(kind))
        return int(started)

    return run


def job(make: Any, *rules: Document, **spec: Any) -> Document:
    found: Document = make.job("load", retry={"max_attempts": 1}, notify=list(rules), **spec)
    return found


def rule(*on: str, **more: Any) -> Document:
    return {"webhook": "chat", "on": list(on), **more}


@pytest.mark.usefixtures("operations")
async def test_failures_and_the_success_after_them(world: Any, make: Any, sent: Any, end: Any) -> None:
    await world.apply(job(make, rule("failed", "recovered")))
    await end("SUCCEEDED")
    assert await sent() == []
    first, second = await end("FAILED"), await end("TIMED_OUT")
    good = await end("SUCCEEDED")
    await end("SUCCEEDED")
    assert await sent() == [("job.failed", first), ("job.failed", second), ("job.recovered", good)]


@pytest.mark.usefixtures("operations")
async def test_successes_of_one_statement_see_only_what_ended_before_it(
    world: Any, make: Any, sent: Any, end: Any
) -> None:
    await world.apply(job(make, rule("recovered")), make.job("quiet", notify=[rule("failed")]))
    await end("FAILED")
    failed = await end("FAILED", job="quiet")
    first, second, other = *await world.start("load", 2), *await world.start("quiet")
    await world.turn("assign")
    reports = [Report(world.key(run), 1, make.outcome()) for run in (first, second, other)]
    await commit_reports(world.pool, world.definitions, world.incarnations[0], reports)
    recovered = [("job.failed", failed), ("job.recovered", first), ("job.recovered", second)]
    # One statement writes them in any order.
    assert sorted(await sent()) == recovered
    await end("SUCCEEDED")
    assert sorted(await sent()) == recovered


@pytest.mark.usefixtures("operations")
async def test_the_current_definition_says_what_is_notified(world: Any, make: Any, sent: Any, end: Any) -> None:
    await world.apply(job(make))
    [run] = await world.start("load")
    await world.apply(job(make, rule("failed")))
    await world.turn("assign")
    await world.report(world.key(run), make.outcome("FAILED"))
    assert await sent() == [("job.failed", run)]


@pytest.mark.usefixtures("operations")
async def test_long_and_late_runs_once_also_by_another_leader(world: Any, make: Any, sent: Any, new_term: Any) -> None:
    await world.apply(job(make, rule("long", "late", long_after_seconds=3600, late_after_seconds=60)))
    long, late = await world.start("load", 2)
    move = "UPDATE scheduler.runs_live SET scheduled_for = now() + %(by)s::interval WHERE id = %(id)s"
    await world.sql(move, id=late, by="1 day")
    await world.turn("assign")
    await world.report(world.key(long), world.now())
    await world.turn("notices")
    assert await sent() == []
    await world.sql("UPDATE scheduler.runs_live SET started_at = now() - interval '2 hours' WHERE id = %(id)s", id=long)
    await world.sql(move, id=late, by="-2 minutes")
    await world.turn("notices")
    world.take(await new_term(2))
    await world.turn("notices")
    assert await sent() == [("job.long", long), ("job.late", late)]


@pytest.mark.usefixtures("operations")
async def test_a_live_run_is_described(world: Any, make: Any, outbox: WebhookOutbox) -> None:
    await world.apply(job(make, rule("long", long_after_seconds=60)))
    [run] = await world.start("load")
    await world.turn("assign")
    await world.report(world.key(run), world.now())
    await world.sql("UPDATE scheduler.runs_live SET started_at = now() - interval '2 hours'")
    await world.turn("notices")
    [one] = (await outbox.claim(10)).requests
    document = json.loads(one.body)
    said = document["data"]["run"]
    assert (document["type"], said["state"], said["id"]) == ("job.long", "RUNNING", run)


@pytest.mark.usefixtures("operations")
async def test_a_job_without_a_success_is_noted_once_until_it_succeeds(
    world: Any, make: Any, sent: Any, end: Any, new_term: Any, outbox: WebhookOutbox
) -> None:
    await world.apply(job(make, rule("missing", "recovered"), expect_success_within_seconds=3600))
    await world.turn("notices")
    assert await sent() == []
    await world.sql("UPDATE scheduler.job_definitions SET created_at = now() - interval '2 hours'")
    await world.turn("notices")
    world.take(await new_term(2))
    await world.turn("notices")
    assert await sent() == [("job.missing", None)]
    claim = await outbox.claim(10)
    said = json.loads(claim.requests[0].body)["data"]["job"]
    assert (said["name"], said["expected_within_seconds"]) == ("load", 3600) and said["since"]
    assert await outbox.confirm(claim.requests[0].delivery, claim.lease, TryResult(status=200))
    good = await end("SUCCEEDED")
    await world.turn("notices")
    assert await sent() == [("job.missing", None), ("job.recovered", good)]
    assert await world.sql("SELECT * FROM scheduler.job_silences") == []


@pytest.mark.usefixtures("operations")
async def test_a_success_that_is_too_old_is_a_silence(world: Any, make: Any, sent: Any, end: Any) -> None:
    await world.apply(job(make, rule("missing"), expect_success_within_seconds=1))
    await world.sql("UPDATE scheduler.job_definitions SET created_at = now() - interval '1 day'")
    await end("SUCCEEDED")
    await end("FAILED")
    # A finished run cannot be changed, so the test waits for the shortest time that a job can expect.
    await world.sql("SELECT pg_sleep(1.1)::text")
    await world.turn("notices")
    assert await sent() == [("job.missing", None)]


@pytest.mark.usefixtures("operations")
async def test_disabled_jobs_are_not_missed(world: Any, make: Any, sent: Any) -> None:
    await world.apply(job(make, rule("missing"), expect_success_within_seconds=60))
    await world.sql("UPDATE scheduler.job_definitions SET created_at = now() - interval '2 hours'")
    await world.turn("notices")
    assert len(await world.sql("SELECT * FROM scheduler.job_silences")) == 1
    await world.apply(job(make, rule("missing"), expect_success_within_seconds=60, enabled=False))
    await world.turn("notices")
    assert await world.sql("SELECT * FROM scheduler.job_silences") == [] and len(await sent()) == 1


@pytest.mark.usefixtures("operations")
async def test_jobs_that_a_person_disabled_are_not_missed(world: Any, make: Any, sent: Any) -> None:
    await world.apply(job(make, rule("missing"), expect_success_within_seconds=60))
    await world.sql("UPDATE scheduler.job_definitions SET created_at = now() - interval '2 hours'")
    await DisableJob(pool=world.pool).disable("load", reason="a holiday", actor="ada")
    await world.turn("notices")
    assert await sent() == []


@pytest.mark.usefixtures("operations")
async def test_in_quiet_hours_nothing_is_sent_and_no_try_counts(
    world: Any, make: Any, end: Any, outbox: WebhookOutbox
) -> None:
    now = world.now()
    hours = {"from": f"{now - timedelta(hours=1):%H:%M}", "until": f"{now + timedelta(hours=1):%H:%M}"}
    await world.apply(job(make, rule("failed", quiet_hours=hours)))
    run = await end("FAILED")
    assert (await outbox.claim(10)).requests == []
    [row] = await world.sql("SELECT attempts, lease, next_at FROM scheduler.webhook_deliveries")
    assert (row["attempts"], row["lease"]) == (0, None)
    assert timedelta() < row["next_at"] - now <= timedelta(hours=1, minutes=1)
    await world.sql("UPDATE scheduler.webhook_deliveries SET next_at = now()")
    await world.at(now + timedelta(hours=2))
    [one] = (await outbox.claim(10)).requests
    assert json.loads(one.body)["data"]["run"]["id"] == run


async def due(world: Any) -> bool:
    return bool(
        await world.sql("SELECT 1 FROM scheduler.webhook_deliveries WHERE state = 'pending' AND next_at <= now()")
    )


@pytest.mark.usefixtures("operations")
async def test_what_waits_for_quiet_hours_holds_up_nothing(
    world: Any, make: Any, end: Any, outbox: WebhookOutbox, operations: Any
) -> None:
    now = world.now()
    hours = {"from": f"{now - timedelta(hours=1):%H:%M}", "until": f"{now + timedelta(hours=1):%H:%M}"}
    await world.apply(job(make, rule("failed", quiet_hours=hours)))
    for _ in range(PARALLEL + 1):
        run = await end("FAILED")
    # Later events of the last run: one outside of quiet hours, and one within.
    await world.sql(
        "INSERT INTO scheduler.webhook_deliveries (target_id, type, run_id, quiet)"
        " SELECT target_id, e, run_id, CASE e WHEN 'job.c' THEN quiet END"
        " FROM scheduler.webhook_deliveries, unnest(ARRAY['job.b', 'job.c']) AS e WHERE run_id = %(r)s",
        r=run,
    )
    statements = 0
    postpone = webhook_outbox.postpone

    async def counted(*args: Any) -> None:
        nonlocal statements
        statements += 1
        await postpone(*args)

    kinds: list[str] = []
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(webhook_outbox, "postpone", counted)
        for _ in range(10):
            claim = await outbox.claim(10)
            assert claim.requests or not claim.next_poll_seconds or not await due(world), "the others are due at once"
            for one in claim.requests:
                kinds.append(json.loads(one.body)["type"])
                assert await outbox.confirm(one.delivery, claim.lease, TryResult(status=204))
    assert kinds == ["job.b"] and statements < PARALLEL, "one statement for those of one claim"
    async with tx(world.pool) as t:
        health = await webhooks.health(t)
    assert (health.overdue, health.active, health.failing) == (0.0, 1, 0)
    [target] = await operations.list()
    assert (target.pending, target.oldest_pending_at, target.failures) == (PARALLEL + 2, None, 0)
    # When they end, the order of the run counts again.
    await world.sql("UPDATE scheduler.webhook_deliveries SET next_at = now() WHERE run_id = %(r)s", r=run)
    await world.at(now + timedelta(hours=2))
    for kind in ("job.failed", "job.c"):
        [one] = (claim := await outbox.claim(10)).requests
        assert json.loads(one.body)["type"] == kind and claim.next_poll_seconds > 0
        assert await outbox.confirm(one.delivery, claim.lease, TryResult(status=204))


async def test_webhooks_that_are_not_there_and_those_that_are_needed(world: Any, make: Any, operations: Any) -> None:
    with pytest.raises(TobanError, match="there is no webhook 'chta'; did you mean 'chat'") as refused:
        await world.apply(job(make, {"webhook": "chta"}))
    assert refused.value.detail["errors"][0]["path"] == "spec.notify[0].webhook"
    await world.apply(job(make, rule("failed")))
    with pytest.raises(TobanError, match="is notified by load") as refused:
        await operations.remove("chat", reason="", actor="ada")
    assert refused.value.code is ErrorCode.RESOURCE_INVALID_STATE
    await world.apply(job(make))
    await operations.remove("chat", reason="", actor="ada")


async def test_forms_of_chat_services_have_no_secret(operations: Any, outbox: WebhookOutbox) -> None:
    url = "https://hooks.slack.example/T0/B0/hidden"
    target, secret = await operations.set(TargetChange(name="slack", url=url, form="slack"), "ada")
    assert (target.form, secret) == ("slack", "")
    await operations.test("slack", reason="", actor="ada")
    [one] = (await outbox.claim(10)).requests
    assert (one.url, set(one.headers)) == (url, {"Content-Type", "webhook-id"})
    assert json.loads(one.body)["text"] == "Test of webhook slack: it arrives."
    target, secret = await operations.set(TargetChange(name="slack", form="generic"), "ada")
    assert target.form == "generic" and secret.startswith("whsec_")
    with pytest.raises(TobanError, match="'irc' is no form of a webhook"):
        await operations.set(TargetChange(name="slack", form="irc"), "ada")
