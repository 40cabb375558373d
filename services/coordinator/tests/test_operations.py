"""What operators change, over a real PostgreSQL: settings, drains, detach, and the log of all of it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest

from toban_coordinator.app.cluster.audit_log import list_audit
from toban_coordinator.app.cluster.operations_settings import SettingChange, SettingsOperations
from toban_coordinator.app.cluster.settings_stream import SettingsStreams
from toban_coordinator.app.executors.operations_executors import ExecutorOperations
from toban_coordinator.app.paging import PageRequest
from toban_coordinator.server.cluster_to_proto import audit_entry_to_pb, setting_to_pb, settings_to_pb
from toban_coordinator.store.cluster.settings import SettingsCache
from toban_coordinator.store.executors import executors
from toban_domain.errors import ErrorCode, TobanError
from toban_domain.settings import SETTINGS
from toban_proto.v1 import coordinator_pb2 as pb
from toban_runtime.clock import SystemClock
from toban_runtime.ids import IdSource
from toban_store.notifications import Listener
from toban_store.pool import Pool
from toban_store.tx import tx
from toban_testing.fake_coordinator import FixedSettings
from toban_testing.kept_sessions import kept_pool

ACTOR = "admin-cli"
IDS = IdSource()


@pytest.fixture
def desk(pool: Pool) -> SettingsOperations:
    return SettingsOperations(pool=pool)


@pytest.fixture
def fleet(pool: Pool) -> ExecutorOperations:
    return ExecutorOperations(pool=pool)


def change(name: str, value: object, **fields: Any) -> SettingChange:
    return SettingChange(name=name, value_json=json.dumps(value), **fields)


async def audit(pool: Pool, **page: Any) -> list[pb.AuditEntry]:
    return [audit_entry_to_pb(row) for row in (await list_audit(pool, PageRequest(**page))).rows]


async def shown(desk: SettingsOperations) -> list[pb.Setting]:
    """Every setting as callers get it."""
    return [setting_to_pb(state) for state in await desk.list()]


async def updated(desk: SettingsOperations, change: SettingChange, actor: str) -> pb.Setting:
    """A setting as the caller that changed it gets it."""
    return setting_to_pb(await desk.update(change, actor))


async def register(pool: Pool, instance: str = "x1", **changes: Any) -> tuple[str, int]:
    """A new incarnation: itself and its worker id."""
    fields = {"node_id": "n1", "boot_id": "b1", "pid": 7, "grpc_host": "127.0.0.1", "grpc_port": 4000, "slots": 4}
    new = executors.Registration(incarnation=IDS.uuid(), instance=instance, **{**fields, **changes})
    made = await executors.register(pool, new, key_hash=b"h", lease_ms=10_000)
    assert made is not None
    return new.incarnation, made.worker_id


async def beat(pool: Pool, incarnation: str, **fields: Any) -> executors.Grant:
    """One heartbeat, echoing all it has heard."""
    granted = await executors.grant(pool, [executors.Beat(incarnation=incarnation, echo=1 << 40, **fields)])
    return granted[incarnation]


# ---------------------------------------------------------------- settings


@pytest.mark.seed(61)
async def test_every_setting_is_listed_with_its_default(desk: SettingsOperations) -> None:
    found = await shown(desk)
    assert [one.name for one in found] == list(SETTINGS)
    for one in found:
        spec = SETTINGS[one.name]
        assert json.loads(one.value_json) == json.loads(one.default_json) == spec.default
        assert (one.version, one.updated_by, one.minimum, one.maximum) == (0, "", spec.minimum, spec.maximum)


@pytest.mark.seed(20, 65)
async def test_a_change_is_stored_counted_and_written_down(desk: SettingsOperations, pool: Pool) -> None:
    first = await updated(desk, change("assign_ahead_seconds", 60, reason=" large batches\0 "), ACTOR)
    assert (json.loads(first.value_json), first.version, first.updated_by) == (60, 1, ACTOR)
    second = await updated(desk, change("assign_ahead_seconds", 45.5), "admin-web")
    assert (json.loads(second.value_json), second.version) == (45.5, 2)
    listed = {one.name: one for one in await shown(desk)}
    assert listed["assign_ahead_seconds"] == second
    newest, oldest = await audit(pool)
    assert (oldest.actor, oldest.action, oldest.target) == (ACTOR, "update_setting", "setting assign_ahead_seconds")
    assert (oldest.reason, newest.actor) == ("large batches�", "admin-web")
    assert json.loads(oldest.before_json) == {"value": 30.0, "version": 0}
    assert json.loads(oldest.after_json) == {"value": 60.0, "version": 1}
    assert json.loads(newest.before_json) == {"value": 60.0, "version": 1}


async def test_the_same_value_again_changes_nothing(desk: SettingsOperations, pool: Pool) -> None:
    assert (await updated(desk, change("assign_ahead_seconds", 30), ACTOR)).version == 0
    assert await audit(pool) == []


@pytest.mark.parametrize(
    ("request_", "code", "words"),
    [
        (change("assign_ahead", 5), ErrorCode.NOT_FOUND, "nearest is assign_ahead_seconds"),
        (change("assign_ahead_seconds", -1), ErrorCode.INVALID_ARGUMENT, "from 0 to 3600 .seconds."),
        (change("fire_batch_size", 2.5), ErrorCode.INVALID_ARGUMENT, "a whole number"),
        (change("assign_ahead_seconds", "5"), ErrorCode.INVALID_ARGUMENT, "takes a number"),
        (
            SettingChange(name="assign_ahead_seconds", value_json="x"),
            ErrorCode.INVALID_ARGUMENT,
            "not a number",
        ),
        (change("heartbeat_interval_seconds", 5), ErrorCode.INVALID_ARGUMENT, "stays 1: heartbeat_ttl_seconds must be"),
        (change("executor_lease_seconds", 3.9), ErrorCode.INVALID_ARGUMENT, "from 4 to 600 .seconds."),
        (change("executor_lease_seconds", 4.2), ErrorCode.INVALID_ARGUMENT, "every running job"),
        (change("continuation_retry_count", 9), ErrorCode.INVALID_ARGUMENT, "stays 3: continuation_retry_count x"),
        (change("leader_tick_seconds", 30), ErrorCode.INVALID_ARGUMENT, "a healthy leader would be deposed"),
        (change("assign_ahead_seconds", 5, version=1), ErrorCode.CONFLICT, "has version 0, not 1"),
    ],
)
async def test_what_is_refused_changes_nothing(
    desk: SettingsOperations, pool: Pool, request_: SettingChange, code: ErrorCode, words: str
) -> None:
    with pytest.raises(TobanError, match=words) as caught:
        await desk.update(request_, ACTOR)
    assert caught.value.code is code
    assert all(one.version == 0 for one in await shown(desk))
    assert await audit(pool) == []


async def test_of_two_who_saw_the_same_version_one_wins(desk: SettingsOperations, pool: Pool) -> None:
    wanted = [change("assign_ahead_seconds", value, version=0) for value in (40, 50, 60, 70)]
    results = await asyncio.gather(*(updated(desk, one, ACTOR) for one in wanted), return_exceptions=True)
    won = [one for one in results if isinstance(one, pb.Setting)]
    lost = [one for one in results if isinstance(one, TobanError)]
    assert (len(won), {one.code for one in lost}) == (1, {ErrorCode.CONFLICT})
    assert lost[0].detail["version"] == 1
    assert [json.loads(entry.after_json)["value"] for entry in await audit(pool)] == [json.loads(won[0].value_json)]


async def test_two_changes_at_once_never_break_a_rule_together(desk: SettingsOperations) -> None:
    """Each alone is safe: a heartbeat each 2.4 s within the time to live of 5 s, and a time to live of 2 s for one each second."""
    changes = [change("heartbeat_interval_seconds", 2.4), change("heartbeat_ttl_seconds", 2)]
    results = await asyncio.gather(*(updated(desk, one, ACTOR) for one in changes), return_exceptions=True)
    assert sum(isinstance(one, TobanError) for one in results) == 1
    now = {one.name: json.loads(one.value_json) for one in await shown(desk)}
    assert now["heartbeat_ttl_seconds"] >= 2 * now["heartbeat_interval_seconds"]


async def test_a_value_of_another_release_is_shown_as_the_default_and_can_be_corrected(
    desk: SettingsOperations, pool: Pool
) -> None:
    async with tx(pool) as t:
        await t.execute("INSERT INTO scheduler.settings (name, value, version) VALUES ('fire_batch_size', '99999', 4)")
    [found] = [one for one in await shown(desk) if one.name == "fire_batch_size"]
    assert (json.loads(found.value_json), found.version) == (500, 4)
    mended = await updated(desk, change("fire_batch_size", 200, version=4), ACTOR)
    assert (json.loads(mended.value_json), mended.version) == (200, 5)


async def test_a_change_wakes_every_listener(desk: SettingsOperations, pg_url: str) -> None:
    heard: asyncio.Queue[str] = asyncio.Queue()

    async def listen() -> None:
        async for payload in Listener(pg_url, application_name="test", clock=SystemClock()):
            await heard.put(payload)

    task = asyncio.create_task(listen())
    try:
        assert await heard.get() == ""
        await desk.update(change("assign_ahead_seconds", 61), ACTOR)
        async with asyncio.timeout(60):
            assert await heard.get() == "settings"
    finally:
        task.cancel()


async def test_the_cache_says_when_something_changed_and_keeps_the_last_known(
    desk: SettingsOperations, pool: Pool, pg_url: str
) -> None:
    own = await kept_pool(pg_url, max_size=1)
    cache = SettingsCache(pool=own, clock=SystemClock())
    assert cache.known["assign_ahead_seconds"] == 30.0
    first = asyncio.create_task(cache.wait_other_than(None))
    await asyncio.sleep(0)
    assert not first.done(), "nothing was read yet"
    assert await cache.refresh() and not await cache.refresh()
    waits = asyncio.create_task(cache.wait_other_than(await first))
    await desk.update(change("assign_ahead_seconds", 61), ACTOR)
    assert await cache.refresh()
    async with asyncio.timeout(60):
        assert (await waits)["assign_ahead_seconds"] == 61
    await own.close()
    assert not await cache.refresh()
    assert cache.known["assign_ahead_seconds"] == 61


async def test_what_cannot_be_undone_waits_for_a_value_that_is_known(pool: Pool, pg_url: str) -> None:
    own = await kept_pool(pg_url, max_size=1)
    cache = SettingsCache(pool=own, clock=SystemClock())
    assert await cache.get_verified("history_retention_days") == 90, "nothing stored: the default is the value"
    async with tx(pool) as t:
        await t.execute(
            "INSERT INTO scheduler.settings (name, value) VALUES ('history_retention_days', '99999'), ('dedupe_days', '30')"
        )
    assert await cache.get_verified("history_retention_days") is None
    assert await cache.get_verified("dedupe_days") == 30
    await own.close()
    assert await cache.get_verified("dedupe_days") is None, "what was read before may have changed"
    assert (await cache.get())["dedupe_days"] == 30
    assert await SettingsCache(pool=own, clock=SystemClock()).get_verified("dedupe_days") is None


async def test_a_stream_sends_now_and_each_change_and_ends_when_told() -> None:
    source = FixedSettings(assign_ahead_seconds=5)
    streams = SettingsStreams(source=source)
    messages = streams.watch()
    message = settings_to_pb(await anext(messages))
    assert (json.loads(message.values_json["assign_ahead_seconds"]), message.version) == (5, 1)
    assert set(message.values_json) == set(SETTINGS)
    waits = asyncio.ensure_future(anext(messages))
    await asyncio.sleep(0)
    assert not waits.done()
    source.set(assign_ahead_seconds=6)
    assert (await waits)["assign_ahead_seconds"] == 6
    ends = asyncio.ensure_future(anext(messages, None))
    await asyncio.sleep(0)
    streams.stop()
    assert await ends is None


# ---------------------------------------------------------------- audit


async def test_the_audit_log_goes_by_pages(desk: SettingsOperations, pool: Pool) -> None:
    for value in range(1, 6):
        await desk.update(change("assign_ahead_seconds", value), ACTOR)
    seen: list[int] = []
    cursor = ""
    for _ in range(3):
        answer = await list_audit(pool, PageRequest(limit=2, cursor=cursor))
        seen += [row["id"] for row in answer.rows]
        cursor = answer.next_cursor
    assert (seen, cursor) == ([5, 4, 3, 2, 1], "")
    with pytest.raises(TobanError, match=r"page\.limit"):
        await audit(pool, limit=501)
    with pytest.raises(TobanError, match=r"page\.cursor"):
        await audit(pool, cursor="x")


# ---------------------------------------------------------------- drain


async def test_a_drain_is_kept_for_the_instance_until_undrain(fleet: ExecutorOperations, pool: Pool) -> None:
    incarnation, worker = await register(pool)
    _other, beside = await register(pool, instance="x2")
    assert (await beat(pool, incarnation)).state == "on"
    row = await fleet.drain(worker, reason="new disk", actor=ACTOR)
    assert (row["state"], row["drained"], row["drain_reason"]) == ("draining", True, "new disk")
    assert (await beat(pool, incarnation)).granted, "its running jobs go on"
    assert (await beat(pool, incarnation)).state == "draining"
    again, later = await register(pool)
    assert (await beat(pool, again)).state == "draining", "a restart does not end it"
    assert (await fleet.undrain(later, reason="disk is in", actor=ACTOR))["drained"] is False
    assert (await beat(pool, again)).state == "on"
    assert (await beat(pool, incarnation)).state == "on"
    entries = {(entry.action, entry.target, entry.reason) for entry in await audit(pool)}
    assert entries == {
        ("drain", f"executor {worker} (n1)", "new disk"),
        ("undrain", f"executor {later} (n1)", "disk is in"),
    }
    assert (await fleet.undrain(beside, reason="", actor=ACTOR))["state"] == "on"
    assert len(await audit(pool)) == 2, "nothing was changed the last time"


async def test_draining_twice_is_one_action_unless_the_reason_is_new(fleet: ExecutorOperations, pool: Pool) -> None:
    _incarnation, worker = await register(pool)
    for reason in ("a", "a", "b"):
        row = await fleet.drain(worker, reason=reason, actor=ACTOR)
    assert row["drain_reason"] == "b"
    assert [entry.reason for entry in await audit(pool)] == ["b", "a"]


async def test_an_executor_that_is_stopping_stays_draining_after_undrain(fleet: ExecutorOperations, pool: Pool) -> None:
    incarnation, worker = await register(pool)
    await fleet.drain(worker, reason="", actor=ACTOR)
    await fleet.undrain(worker, reason="", actor=ACTOR)
    assert (await beat(pool, incarnation, draining=True)).state == "draining"


async def test_a_detached_executor_that_reports_again_stays_drained(fleet: ExecutorOperations, pool: Pool) -> None:
    """The leader takes back one that was silent; the drain that came meanwhile counts."""
    _incarnation, worker = await register(pool)
    await fleet.drain(worker, reason="", actor=ACTOR)
    async with tx(pool) as t:
        await t.execute("UPDATE scheduler.executors SET state = 'detached', detach_mode = ''")
        rows = await executors.rejoin(t, [_incarnation])  # type: ignore[arg-type]
        state = await t.fetch_one("SELECT state FROM scheduler.executors")
    assert rows == [worker] and state == {"state": "draining"}


async def test_an_executor_that_is_gone_can_be_undrained(fleet: ExecutorOperations, pool: Pool) -> None:
    _incarnation, worker = await register(pool)
    await fleet.drain(worker, reason="", actor=ACTOR)
    async with tx(pool) as t:
        await t.execute("UPDATE scheduler.executors SET state = 'off', off_at = now()")
    row = await fleet.undrain(worker, reason="", actor=ACTOR)
    assert (row["state"], row["drained"]) == ("off", False)


async def test_another_leader_than_the_operator_saw_refuses(fleet: ExecutorOperations, pool: Pool) -> None:
    _incarnation, worker = await register(pool)
    async with tx(pool) as t:
        await t.execute("UPDATE scheduler.leader SET epoch = 7")
    for work in (fleet.drain, fleet.undrain, fleet.detach):
        with pytest.raises(TobanError, match="epoch 7 leads, not 6") as caught:
            await work(worker, reason="", actor=ACTOR, epoch=6)
        assert caught.value.code is ErrorCode.CONFLICT and caught.value.detail == {"epoch": 7}
    assert await audit(pool) == []
    assert (await fleet.drain(worker, reason="", actor=ACTOR, epoch=7))["drained"]


# ---------------------------------------------------------------- detach


@pytest.mark.seed(119)
@pytest.mark.parametrize(("mode", "stored"), [("", "let_finish"), ("let_finish", "let_finish"), ("stop", "stop")])
async def test_a_detach_says_how_to_the_executor_and_is_final(
    fleet: ExecutorOperations, pool: Pool, mode: str, stored: str
) -> None:
    incarnation, worker = await register(pool)
    assert (await fleet.detach(worker, mode=mode, reason="why", actor=ACTOR))["state"] == "detached"
    heard = await beat(pool, incarnation)
    assert (heard.state, heard.detach_mode, heard.granted) == ("detached", stored, True)
    with pytest.raises(TobanError, match=f"being detached already .{stored}.") as caught:
        await fleet.detach(worker, mode=mode, reason="why", actor=ACTOR)
    assert caught.value.code is ErrorCode.RESOURCE_INVALID_STATE
    [entry] = await audit(pool)
    assert json.loads(entry.after_json) == {"state": "detached", "mode": stored}
    assert json.loads(entry.before_json)["state"] == "on"


async def test_a_detach_that_waits_can_become_one_that_stops(fleet: ExecutorOperations, pool: Pool) -> None:
    incarnation, worker = await register(pool)
    await fleet.detach(worker, mode="let_finish", reason="", actor=ACTOR)
    await fleet.detach(worker, mode="stop", reason="it takes too long", actor=ACTOR)
    assert (await beat(pool, incarnation)).detach_mode == "stop"
    with pytest.raises(TobanError, match=r"being detached already .stop."):
        await fleet.detach(worker, mode="let_finish", reason="", actor=ACTOR)
    assert [json.loads(entry.after_json)["mode"] for entry in await audit(pool)] == ["stop", "let_finish"]


@pytest.mark.parametrize("state", ["cut", "off"])
async def test_what_has_ended_cannot_be_detached(fleet: ExecutorOperations, pool: Pool, state: str) -> None:
    _incarnation, worker = await register(pool)
    async with tx(pool) as t:
        off = ", off_at = now()" if state == "off" else ""
        await t.execute(f"UPDATE scheduler.executors SET state = '{state}'{off}")
    with pytest.raises(TobanError, match=f"is {state} already"):
        await fleet.detach(worker, mode="stop", reason="", actor=ACTOR)
    assert await audit(pool) == []


async def test_wrong_words_about_executors(fleet: ExecutorOperations, pool: Pool) -> None:
    _incarnation, worker = await register(pool)
    with pytest.raises(TobanError, match="use let_finish or stop"):
        await fleet.detach(worker, mode="kill", reason="", actor=ACTOR)
    calls: list[Callable[[], Any]] = [
        lambda: fleet.drain(999, reason="", actor=ACTOR),
        lambda: fleet.undrain(999, reason="", actor=ACTOR),
        lambda: fleet.detach(999, reason="", actor=ACTOR),
    ]
    for call in calls:
        with pytest.raises(TobanError, match="there is no executor 999") as caught:
            await call()
        assert caught.value.code is ErrorCode.EXECUTOR_NOT_FOUND
