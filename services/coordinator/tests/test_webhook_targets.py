"""Targets of webhooks over a real PostgreSQL: what is stored and where, what is refused, and what the audit has of it."""

import base64
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from toban_coordinator.adapters.secret_keys import FileKeys
from toban_coordinator.app.cluster.audit_log import list_audit
from toban_coordinator.app.notifications.operations_webhooks import TargetChange, WebhookOperations
from toban_coordinator.app.notifications.webhook_outbox import WebhookOutbox
from toban_coordinator.app.paging import FIRST_PAGE, PageRequest
from toban_coordinator.app.secrets.operations_secrets import SecretOperations
from toban_coordinator.decide.notifications.webhooks import MAX_TARGETS, TryResult
from toban_coordinator.store.notifications.webhook_outbox import Wanted
from toban_coordinator.store.notifications.webhooks import Filter
from toban_coordinator.store.secrets import secrets
from toban_domain.errors import ErrorCode, TobanError
from toban_domain.run import FAILURES
from toban_runtime.clock import SystemClock
from toban_runtime.ids import IdSource
from toban_store.pool import Pool
from toban_store.tx import autocommit, tx
from toban_testing.kept_sessions import kept_pool

URL = "https://hooks.example:8443/services/T0/very-hidden?token=hidden"
SECRET = "whsec_" + base64.b64encode(bytes(range(24))).decode()


@pytest.fixture
async def pool(coordinator_url: str) -> AsyncIterator[Pool]:
    opened = await kept_pool(coordinator_url, max_size=4)
    yield opened
    await opened.close()


@pytest.fixture
def keys(tmp_path: Path) -> FileKeys:
    path = tmp_path / "keys"
    path.write_text(base64.b64encode(os.urandom(32)).decode())
    path.chmod(0o600)
    return FileKeys(path)


@pytest.fixture
def desk(pool: Pool, keys: FileKeys) -> WebhookOperations:
    return WebhookOperations(pool=pool, keys=keys)


@pytest.fixture
def outbox(pool: Pool, keys: FileKeys) -> WebhookOutbox:
    return WebhookOutbox(pool=pool, keys=keys, ids=IdSource(), now=SystemClock().wall)


async def make(desk: WebhookOperations, name: str = "pager", **how: Any) -> str:
    return (await desk.set(TargetChange(**{"name": name, "url": URL, **how}), "ada"))[1]


async def sent(desk: WebhookOperations, outbox: WebhookOutbox) -> str:
    """The URL to which a test goes."""
    await desk.test("pager", reason="", actor="ada")
    claim = await outbox.claim(1)
    [one] = claim.requests
    assert await outbox.confirm(one.delivery, claim.lease, TryResult(status=200))
    return one.url


async def test_a_new_target_has_the_defaults_and_a_secret_that_is_shown_once(
    desk: WebhookOperations, pool: Pool
) -> None:
    secret = await make(desk)
    assert secret.startswith("whsec_") and len(base64.b64decode(secret[6:])) == 32
    [target] = await desk.list()
    assert (target.origin, target.status, tuple(target.states)) == (
        "https://hooks.example:8443",
        "active",
        FAILURES,
    )
    assert (await desk.set(TargetChange(name="pager", enabled=True), "ada"))[1] == ""
    async with autocommit(pool) as t:
        rows = await t.fetch_all("SELECT to_jsonb(w)::text AS row FROM scheduler.webhook_targets w")
        rows += await t.fetch_all("SELECT to_jsonb(a)::text AS row FROM scheduler.admin_action_log a")
    assert len(rows) == 3 and not any("hidden" in row["row"] or secret[6:] in row["row"] for row in rows)


async def test_what_is_not_given_stays(desk: WebhookOperations, outbox: WebhookOutbox) -> None:
    await make(desk, secret=SECRET)
    assert await sent(desk, outbox) == URL
    which = Filter(states=["SUCCEEDED"], jobs=["load"], labels={"team": "data"})
    await desk.set(TargetChange(name="pager", which=which), "ada")
    [target] = await desk.list()
    assert (target.states, target.jobs, target.labels, target.version) == (["SUCCEEDED"], ["load"], {"team": "data"}, 2)
    await desk.set(TargetChange(name="pager", url="https://new.example/"), "ada")
    assert await sent(desk, outbox) == "https://new.example/"
    made = (await desk.set(TargetChange(name="pager", new_secret=True), "ada"))[1]
    assert made.startswith("whsec_") and made != SECRET
    [target] = await desk.list()
    assert (target.origin, list(target.jobs)) == ("https://new.example", ["load"])


async def test_a_rotated_key_and_the_list_of_secrets_cover_it(
    desk: WebhookOperations, outbox: WebhookOutbox, keys: FileKeys, tmp_path: Path
) -> None:
    await make(desk)
    operations = SecretOperations(pool=desk.pool, keys=keys)
    assert await operations.list() == []
    for force in (False, True):
        with pytest.raises(TobanError, match="is for webhook pager alone; run `toban webhook delete pager`"):
            await operations.remove("webhook.pager", force=force, reason="", actor="ada")
    file = tmp_path / "keys"
    old = file.read_text()
    file.write_text(base64.b64encode(os.urandom(32)).decode() + "\n" + old)
    assert (await operations.rotate(reason="", actor="ada")).rotated == 1
    file.write_text(file.read_text().splitlines()[0])
    assert await sent(desk, outbox) == URL


async def test_a_removed_target_takes_its_secret_along(desk: WebhookOperations, pool: Pool) -> None:
    await make(desk)
    await desk.test("pager", reason="", actor="ada")
    await desk.remove("pager", reason="retired", actor="ada")
    async with autocommit(pool) as t:
        assert await t.fetch_all("SELECT 1 AS x FROM scheduler.secrets") == []
    assert (await desk.deliveries(Wanted(), FIRST_PAGE)).rows == []
    page = await list_audit(pool, PageRequest(limit=10))
    assert [row["action"] for row in page.rows] == ["webhook.remove", "webhook.test", "webhook.set"]


async def test_deliveries_by_pages_and_filters(desk: WebhookOperations, outbox: WebhookOutbox) -> None:
    await make(desk)
    for _ in range(3):
        await desk.test("pager", reason="", actor="ada")
    claim = await outbox.claim(1)
    await outbox.confirm(claim.requests[0].delivery, claim.lease, TryResult(status=503, error="a\nb\x00c"))
    first = await desk.deliveries(Wanted(webhook="pager"), PageRequest(limit=2))
    assert [row["id"] for row in first.rows] == [3, 2] and first.next_cursor == "2"
    rest = await desk.deliveries(Wanted(webhook="pager"), PageRequest(limit=2, cursor=first.next_cursor))
    assert [(row["id"], row["status"], row["error"], row["attempts"]) for row in rest.rows] == [(1, 503, "a b c", 1)]
    assert [row["id"] for row in (await desk.deliveries(Wanted(id=2), FIRST_PAGE)).rows] == [2]
    assert (await desk.deliveries(Wanted(state="failed"), FIRST_PAGE)).rows == []


@pytest.mark.parametrize(
    ("how", "code", "words"),
    [
        ({"name": "Pager"}, ErrorCode.INVALID_ARGUMENT, "is not a name of a webhook"),
        ({"url": ""}, ErrorCode.NOT_FOUND, "a new one needs --url"),
        ({"url": "ftp://a.example/"}, ErrorCode.INVALID_ARGUMENT, "none of https://, http://, smtps://, smtp://;"),
        ({"url": "a.example"}, ErrorCode.INVALID_ARGUMENT, "none of https://, http://, smtps://, smtp://;"),
        ({"url": "https://u:hidden@a.example/"}, ErrorCode.INVALID_ARGUMENT, "put them into a header"),
        ({"url": "https://a.example/" + "x" * 2000}, ErrorCode.INVALID_ARGUMENT, "the limit is 2000"),
        ({"secret": "short"}, ErrorCode.INVALID_ARGUMENT, "base64 of 24 to 64 random bytes"),
        ({"secret": SECRET, "new_secret": True}, ErrorCode.INVALID_ARGUMENT, "not both"),
        (
            {"which": Filter(states=["FAILED"], jobs=[str(n) for n in range(101)], labels={})},
            ErrorCode.INVALID_ARGUMENT,
            "101 jobs are given",
        ),
    ],
)
async def test_what_no_target_can_be(desk: WebhookOperations, how: dict[str, Any], code: ErrorCode, words: str) -> None:
    with pytest.raises(TobanError) as refused:
        await make(desk, **how)
    assert refused.value.code is code and words in refused.value.message and "hidden" not in refused.value.message
    assert await desk.list() == []


async def test_names_that_are_not_there(desk: WebhookOperations) -> None:
    await make(desk)
    for work in (
        desk.remove("pagr", reason="", actor="ada"),
        desk.test("pagr", reason="", actor="ada"),
        desk.deliveries(Wanted(webhook="pagr"), FIRST_PAGE),
        desk.redeliver("pagr", [], reason="", actor="ada"),
    ):
        with pytest.raises(TobanError, match="there is no webhook 'pagr'; did you mean 'pager'") as refused:
            await work
        assert refused.value.code is ErrorCode.NOT_FOUND
    with pytest.raises(TobanError, match="has 0 of these 1 deliveries"):
        await desk.redeliver("pager", [7], reason="", actor="ada")
    with pytest.raises(TobanError, match="is no state of a delivery"):
        await desk.deliveries(Wanted(state="lost"), FIRST_PAGE)
    await desk.set(TargetChange(name="pager", enabled=False), "ada")
    with pytest.raises(TobanError, match="enable it first"):
        await desk.test("pager", reason="", actor="ada")


async def test_there_are_at_most_so_many_and_none_takes_a_secret_of_others(
    desk: WebhookOperations, keys: FileKeys
) -> None:
    # An earlier version stored secrets of jobs by such names.
    async with tx(desk.pool) as t:
        await secrets.store(t, "webhook.pager", keys.seal("webhook.pager", b"mine!"), jobs=None, actor="ada")
    with pytest.raises(TobanError, match="exists and is not of a webhook") as refused:
        await make(desk)
    assert refused.value.code is ErrorCode.ALREADY_EXISTS
    operations = SecretOperations(pool=desk.pool, keys=keys)
    assert [one.stored.name for one in await operations.list()] == ["webhook.pager"]
    await operations.remove("webhook.pager", force=False, reason="", actor="ada")
    await make(desk)
    await desk.remove("pager", reason="", actor="ada")
    for number in range(MAX_TARGETS):
        await make(desk, f"t{number}")
    with pytest.raises(TobanError, match="which is the limit") as refused:
        await make(desk, "one-more")
    assert refused.value.code is ErrorCode.RESOURCE_EXHAUSTED


MAIL = "smtps://ada:very-hidden@mail.example:465/?from=toban@example.com&to=ops@example.com"


async def test_mail_is_a_form_that_the_url_decides(desk: WebhookOperations, outbox: WebhookOutbox, pool: Pool) -> None:
    assert await make(desk, url=MAIL) == "", "mail has no signature, and so no secret"
    [target] = await desk.list()
    assert (target.form, target.origin) == ("smtp", "smtps://mail.example:465")
    await desk.test("pager", reason="", actor="ada")
    claim = await outbox.claim(1)
    [one] = claim.requests
    assert one.url == MAIL and one.headers["subject"] == "[Toban] Test of webhook pager: it arrives."
    assert one.body.startswith(b"Test of webhook pager: it arrives.\n") and "webhook-signature" not in one.headers
    refused = TryResult(status=550, error="no such user", permanent=True)
    assert await outbox.confirm(one.delivery, claim.lease, refused)
    [row] = (await desk.deliveries(Wanted(), FIRST_PAGE)).rows
    assert (row["state"], row["attempts"]) == ("failed", 1), "what the server refuses for good is not tried again"
    async with autocommit(pool) as t:
        rows = await t.fetch_all("SELECT to_jsonb(a)::text AS row FROM scheduler.admin_action_log a")
        rows += await t.fetch_all("SELECT to_jsonb(w)::text AS row FROM scheduler.webhook_targets w")
    assert not any("very-hidden" in row["row"] for row in rows)


@pytest.mark.parametrize(
    "how",
    [
        {"url": MAIL, "form": "slack"},
        {"url": URL, "form": "smtp"},
        {"url": MAIL, "secret": SECRET},
        {"url": MAIL, "new_secret": True},
        {"url": "smtp://mail.example/?from=very-hidden&to=a@b.c"},
    ],
)
async def test_mail_that_is_refused(desk: WebhookOperations, how: dict[str, Any]) -> None:
    with pytest.raises(TobanError) as caught:
        await make(desk, **how)
    assert caught.value.code is ErrorCode.INVALID_ARGUMENT and await desk.list() == []


async def test_a_url_of_another_kind_needs_its_form(desk: WebhookOperations) -> None:
    await make(desk)
    await desk.set(TargetChange(name="pager", url=MAIL), "ada")
    with pytest.raises(TobanError, match="give both --url and --form"):
        await desk.set(TargetChange(name="pager", url=URL), "ada")
    with pytest.raises(TobanError, match="give both --url and --form"):
        await desk.set(TargetChange(name="pager", form="generic"), "ada")
    await desk.set(TargetChange(name="pager", url=URL, form="generic"), "ada")
    assert [target.form for target in await desk.list()] == ["generic"]
    with pytest.raises(TobanError, match="give both --url and --form"):
        await desk.set(TargetChange(name="pager", form="smtp"), "ada")
