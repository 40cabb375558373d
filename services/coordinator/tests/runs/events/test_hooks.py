"""Incoming webhooks over a real PostgreSQL: one event for each id, on any coordinator and over a change of the leader; none for a forged message."""

import asyncio
import base64
import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from toban_coordinator.adapters.secret_keys import FileKeys
from toban_coordinator.app.cluster.audit_log import list_audit
from toban_coordinator.app.notifications.hook_receiver import UNKNOWN, HookReceiver, Received
from toban_coordinator.app.notifications.operations_hooks import HookChange, HookOperations
from toban_coordinator.app.paging import PageRequest
from toban_coordinator.app.secrets.operations_secrets import SecretOperations
from toban_coordinator.decide.notifications.hook_messages import MAX_BODY, HookMessage, sign
from toban_coordinator.decide.notifications.hooks import HookMapping
from toban_domain.errors import ErrorCode, TobanError

PAID = HookMapping(event_type="order.paid")


class Desk:
    """Hooks, and coordinators that receive their messages."""

    def __init__(self, world: Any, key_file: Path) -> None:
        self.world = world
        self.keys = FileKeys(key_file)
        self.operations = HookOperations(pool=world.pool, keys=self.keys, now=world.now)
        self.receiver = self.coordinator()
        self.secrets: dict[str, str] = {}

    def coordinator(self) -> HookReceiver:
        return HookReceiver(pool=self.world.pool, keys=self.keys, now=self.world.now)

    async def set(self, name: str = "shop", **how: Any) -> str:
        """Makes or changes one; the secret that was made."""
        hook, made = await self.operations.set(HookChange(name=name, **how), "ada")
        self.secrets[name] = made or self.secrets.get(name, "")
        self.kind = hook.kind
        return made

    def message(
        self, body: Any = None, *, key: str = "m-1", name: str = "shop", secret: str = "", **more: Any
    ) -> HookMessage:
        raw = more.pop("raw", json.dumps(body or {}).encode())
        at = self.world.now().timestamp() + more.pop("off", 0)
        headers = sign(self.kind, secret or self.secrets[name], raw, message_id=key, now=at)
        return HookMessage(name=name, headers={**headers, **more}, body=raw)

    async def send(self, body: Any = None, **how: Any) -> Received:
        return await self.receiver.receive(self.message(body, **how))

    async def events(self) -> list[dict[str, Any]]:
        return await self.world.sql(
            "SELECT id, event_type, payload, dedupe_key, created_by FROM scheduler.events ORDER BY id"
        )


@pytest.fixture
def desk(world: Any, tmp_path: Path) -> Desk:
    path = tmp_path / "keys"
    path.write_text(base64.b64encode(os.urandom(32)).decode())
    path.chmod(0o600)
    return Desk(world, path)


async def test_a_message_is_an_event_and_its_repetition_is_none(desk: Desk) -> None:
    await desk.set(kind="standard", mapping=PAID)
    first = await desk.send({"order": 7})
    assert (first.result, first.event_type) == ("accepted", "order.paid")
    again = await desk.coordinator().receive(desk.message({"order": 7}))
    assert (again.result, again.event_id) == ("duplicate", first.event_id)
    [event] = await desk.events()
    assert (event["id"], event["payload"], event["dedupe_key"], event["created_by"]) == (
        first.event_id,
        {"order": 7},
        "hook/shop/m-1",
        "hook shop",
    )
    [hook] = await desk.operations.list("shop")
    assert hook.last_event_at is not None


async def test_one_id_at_several_coordinators_at_once_is_one_event(desk: Desk) -> None:
    await desk.set(kind="standard", mapping=PAID)
    found = await asyncio.gather(*(desk.coordinator().receive(desk.message()) for _ in range(8)))
    assert sorted(one.result for one in found) == ["accepted"] + ["duplicate"] * 7
    assert len({one.event_id for one in found}) == 1 == len(await desk.events())


async def test_an_accepted_event_starts_its_run_under_the_next_leader(
    desk: Desk, world: Any, inbox: Any, make: Any, new_term: Any
) -> None:
    await world.apply(make.job("hello"), inbox.trigger())
    await desk.set(kind="standard", mapping=PAID)
    accepted = await desk.send()
    world.take(await new_term(2))
    await world.turn("events")
    assert len(await inbox.runs()) == 1 and await desk.events() == []
    again = await desk.send()
    assert (again.result, again.event_id) == ("duplicate", accepted.event_id), "also when the event was processed"
    await world.turn("events")
    assert len(await inbox.runs()) == 1


@pytest.mark.parametrize("name", ["a\0b", "\0", "", "é" * 80, "x" * 80, "hook.shop", "'"])
async def test_any_name_of_a_hook_gets_the_answer_of_an_unknown_one(desk: Desk, name: str) -> None:
    await desk.set(kind="standard", mapping=PAID)
    with pytest.raises(TobanError) as caught:
        await desk.receiver.receive(replace(desk.message(), name=name))
    assert (caught.value.code, caught.value.message) == (ErrorCode.NOT_FOUND, UNKNOWN)


@pytest.mark.parametrize(
    ("kind", "header", "value"),
    [
        ("standard", "webhook-id", "m\0"),
        ("standard", "webhook-id", "é"),
        ("standard", "webhook-timestamp", "1" * 4000),
        ("standard", "webhook-signature", "v1,é " * 900),
        ("standard", "webhook-signature", "v1,\0"),
        ("github", "x-hub-signature-256", "sha256=é"),
        ("cloudevents-token", "authorization", "Bearer é"),
    ],
)
async def test_headers_of_any_form_are_not_authentic(desk: Desk, kind: str, header: str, value: str) -> None:
    await desk.set(kind=kind, mapping=PAID)
    message = desk.message()
    with pytest.raises(TobanError) as caught:
        await desk.receiver.receive(replace(message, headers={**message.headers, header: value}))
    assert caught.value.code is ErrorCode.NOT_FOUND


async def test_what_is_not_authentic_gets_one_answer(desk: Desk) -> None:
    secret = await desk.set(kind="github", mapping=PAID)
    await desk.set("off", kind="github", mapping=PAID, secret=secret)
    await desk.set("off", enabled=False)
    good = desk.message(secret=secret)
    wrong = [
        desk.message(secret="0" * 64),
        HookMessage(name="shop", body=good.body),
        HookMessage(name="shop", headers=good.headers, body=b'{"a": 1}'),
        HookMessage(name="off", headers=good.headers, body=good.body),
        HookMessage(name="nothing", headers=good.headers, body=good.body),
        HookMessage(name="", headers=good.headers, body=good.body),
        HookMessage(name="Shop'", headers=good.headers, body=good.body),
        desk.message(secret=secret, raw=b"x" * (MAX_BODY + 1)),
    ]
    for one in wrong:
        with pytest.raises(TobanError) as caught:
            await desk.receiver.receive(one)
        assert (caught.value.code, caught.value.message, caught.value.detail) == (ErrorCode.NOT_FOUND, UNKNOWN, {})
    assert await desk.events() == []
    assert (await desk.receiver.receive(good)).result == "accepted"


async def test_a_secret_that_no_key_opens_is_not_told_apart(desk: Desk, tmp_path: Path) -> None:
    await desk.set(kind="standard", mapping=PAID)
    good = desk.message()
    (tmp_path / "keys").write_text(base64.b64encode(os.urandom(32)).decode())
    with pytest.raises(TobanError) as caught:
        await desk.receiver.receive(good)
    assert caught.value.message == UNKNOWN


async def test_authentic_messages_get_a_reason(desk: Desk) -> None:
    await desk.set(kind="standard", mapping=PAID)
    for how, code in (
        ({"off": -400}, ErrorCode.INVALID_ARGUMENT),
        ({"raw": b"{"}, ErrorCode.PAYLOAD_INVALID),
        ({"body": {"a": "x" * 40_000}}, ErrorCode.PAYLOAD_TOO_LARGE),
        ({"body": {"a": "\0"}}, ErrorCode.PAYLOAD_INVALID),
    ):
        with pytest.raises(TobanError) as caught:
            await desk.send(**how)
        assert caught.value.code is code
    assert await desk.events() == []
    await desk.set(mapping=HookMapping(event_type="order.paid", fields=["b"]))
    assert (await desk.send({"a": "x" * 40_000, "b": 1})).result == "accepted", "what is left out does not count"
    assert (await desk.events())[0]["payload"] == {"b": 1}


async def test_values_that_are_not_listed_are_ignored(desk: Desk) -> None:
    await desk.set(kind="github", mapping=HookMapping(events={"push": "git.push"}))
    assert await desk.send(**{"x-github-event": "ping"}) == Received(result="ping")
    assert await desk.send(**{"x-github-event": "star"}) == Received(result="ignored")
    assert (await desk.send(**{"x-github-event": "push"})).event_type == "git.push"
    assert len(await desk.events()) == 1


async def test_during_a_rotation_two_secrets_are_valid(desk: Desk) -> None:
    old = await desk.set(kind="standard", mapping=PAID)
    new = await desk.set(new_secret=True)
    assert old != new and (await desk.operations.list())[0].secrets == 2
    for number, secret in enumerate((old, new)):
        assert (await desk.send(key=f"a-{number}", secret=secret)).result == "accepted"
    await desk.set(drop_old_secret=True)
    assert (await desk.operations.list())[0].secrets == 1
    assert (await desk.send(key="b", secret=new)).result == "accepted"
    with pytest.raises(TobanError, match="no such hook"):
        await desk.send(key="c", secret=old)
    third, fourth = await desk.set(new_secret=True), await desk.set(new_secret=True)
    assert (await desk.send(key="d", secret=third)).result == (await desk.send(key="e", secret=fourth)).result
    with pytest.raises(TobanError, match="no such hook"):
        await desk.send(key="f", secret=new)


async def test_the_rate_counts_events_on_all_coordinators(desk: Desk, world: Any) -> None:
    await desk.set(kind="standard", mapping=PAID, rate=1)
    await desk.coordinator().receive(desk.message(key="1"))
    with pytest.raises(TobanError, match="takes 1 messages a minute") as caught:
        await desk.coordinator().receive(desk.message(key="2"))
    assert caught.value.code is ErrorCode.RESOURCE_EXHAUSTED and caught.value.detail["retry_after_seconds"] == 60
    assert (await desk.send(key="1")).result == "duplicate", "one that was received before costs nothing"
    await world.sql("UPDATE scheduler.hooks SET refilled_at = refilled_at - interval '60 seconds'")
    assert (await desk.send(key="2")).result == "accepted"


async def test_a_failed_event_can_be_sent_again(desk: Desk, world: Any, inbox: Any, make: Any) -> None:
    job = make.job("hello")
    job["spec"]["enabled"] = False
    await world.apply(job, inbox.trigger())
    await desk.set(kind="standard", mapping=PAID)
    first = await desk.send()
    await world.turn("events")
    again = await desk.send()
    assert again.result == "accepted" and again.event_id != first.event_id


async def test_a_test_reads_a_message_and_emits_nothing(desk: Desk) -> None:
    await desk.set(kind="github", mapping=HookMapping(events={"push": "git.push"}, fields=["ref"]))
    said = await desk.operations.test("shop", '{"ref": "main", "x": 1}', "push")
    assert (said.type, said.payload) == ("git.push", {"ref": "main"})
    assert (await desk.operations.test("shop", "", "star")).type == ""
    await desk.set("events", kind="cloudevents", mapping=HookMapping(events={"a": "b"}))
    event = '{"id": "1", "source": "/s", "type": "a", "specversion": "1.0"}'
    assert (await desk.operations.test("events", event, "")).type == "b"
    with pytest.raises(TobanError, match="reads no header"):
        await desk.operations.test("events", event, "a")
    assert await desk.events() == []


@pytest.mark.parametrize(
    ("how", "code", "words"),
    [
        ({"name": "Shop"}, ErrorCode.INVALID_ARGUMENT, "not a name of a hook"),
        ({"kind": ""}, ErrorCode.NOT_FOUND, "a new one needs --kind"),
        ({"kind": "plain"}, ErrorCode.INVALID_ARGUMENT, "use standard, github, cloudevents, cloudevents-token"),
        ({"mapping": None}, ErrorCode.INVALID_ARGUMENT, "needs the type of its events"),
        ({"rate": 10**6}, ErrorCode.INVALID_ARGUMENT, "messages a minute"),
        ({"secret": "short"}, ErrorCode.INVALID_ARGUMENT, "secret"),
        ({"secret": "x" * 20, "new_secret": True}, ErrorCode.INVALID_ARGUMENT, "not both"),
        ({"new_secret": True, "drop_old_secret": True}, ErrorCode.INVALID_ARGUMENT, "two changes"),
    ],
)
async def test_a_hook_that_is_refused(desk: Desk, how: dict[str, Any], code: ErrorCode, words: str) -> None:
    with pytest.raises(TobanError, match=words) as caught:
        await desk.set(**{"kind": "github", "mapping": PAID, **how})
    assert caught.value.code is code and await desk.operations.list() == []


async def test_what_is_stored_and_audited_has_no_secret(desk: Desk, world: Any) -> None:
    secret = await desk.set(kind="cloudevents-token", mapping=PAID)
    await desk.set(enabled=False, reason="paused")
    with pytest.raises(TobanError, match="cannot be changed"):
        await desk.set(kind="github")
    secrets = SecretOperations(pool=world.pool, keys=desk.keys)
    assert await secrets.list() == []
    with pytest.raises(TobanError, match="is for hook shop alone; run `toban hook delete shop`"):
        await secrets.remove("hook.shop", force=True, reason="", actor="ada")
    rows = await world.sql("SELECT to_jsonb(h)::text AS row FROM scheduler.hooks h")
    rows += await world.sql("SELECT to_jsonb(a)::text AS row FROM scheduler.admin_action_log a")
    assert not any(secret in row["row"] for row in rows)
    await desk.operations.remove("shop", reason="", actor="ada")
    assert await world.sql("SELECT 1 AS x FROM scheduler.secrets") == []
    page = await list_audit(world.pool, PageRequest(limit=3))
    assert [row["action"] for row in page.rows] == ["hook.remove", "hook.set", "hook.set"]
    for call in (desk.operations.list("shop"), desk.operations.remove("shop", reason="", actor="ada")):
        with pytest.raises(TobanError, match="there is no hook 'shop'; see `toban hook list`"):
            await call


async def test_there_are_at_most_so_many(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("toban_coordinator.decide.notifications.hooks.MAX_HOOKS", 1)
    await desk.set(kind="github", mapping=PAID)
    with pytest.raises(TobanError, match="there are 1 hooks"):
        await desk.set("other", kind="github", mapping=PAID)


async def test_names_that_are_tried_do_not_fill_the_log(desk: Desk) -> None:
    await desk.set(kind="github", mapping=PAID)
    with capture_logs() as logged:
        for number in range(20):
            with pytest.raises(TobanError, match="no such hook"):
                await desk.receiver.receive(HookMessage(name=f"try-{number}", address="203.0.113.9"))
        with pytest.raises(TobanError, match="no such hook"):
            await desk.receiver.receive(HookMessage(name="shop"))
    refused = [line for line in logged if line["event"] == "a message to a hook was refused"]
    assert [(line["subject"], line["reason"]) for line in refused] == [
        ("try-0", "there is no hook of this name"),
        ("shop", "no signature or token of the message is of a valid secret"),
    ]
