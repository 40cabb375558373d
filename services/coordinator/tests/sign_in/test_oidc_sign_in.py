"""Sign-in with an OpenID provider over loopback and a real PostgreSQL: tokens, replays, accounts, groups, keys, a provider that is down."""

from __future__ import annotations

import asyncio
import base64
import hmac
import json
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from toban_coordinator.adapters.oidc_provider import (
    FRESH_SECONDS,
    STALE_SECONDS,
    UNKNOWN_KEY_SECONDS,
    HttpsOidcProvider,
)
from toban_coordinator.app.cluster.audit_log import list_audit
from toban_coordinator.app.people.oidc_sign_in import OidcSignIn
from toban_domain.access import Role, highest_role
from toban_domain.errors import ErrorCode, TobanError
from toban_domain.oidc import Grants, parse_grants
from toban_runtime.ids import IdSource
from toban_runtime.json_http import JsonHttp
from toban_store.pool import Pool
from toban_store.tx import tx
from toban_testing.oidc_provider import new_key

PASSWORD = "correct horse battery"
HERE = "192.0.2.1"
CLI = "certificate admin-cli"


async def test_the_first_sign_in_makes_the_account_that_later_ones_find(world: Any) -> None:
    made = await world.enter(groups=["devs", "others"], name="Ada L")
    assert (made.person.name, highest_role(made.person)) == ("ada", Role.OPERATOR)
    assert (await world.sign_in.with_session(made.secret)).name == "ada"
    assert made.person.signs_in and not made.person.has_password
    # By the subject: what else the provider writes is of no weight.
    again = await world.enter(groups=["devs"], preferred_username="root", email="root@example")
    assert again.person.name == "ada"
    _, _, linked = await world.accounts.list_users()
    assert [(one["name"], one["subject"]) for one in linked] == [("ada", "subject-1")]
    assert [row["action"] for row in (await list_audit(world.pool)).rows][:5] == [
        "sign_in",
        "sign_in",
        "set_roles",
        "add_user",
        "first_admin",
    ]


async def test_a_name_that_is_taken_takes_over_no_account(world: Any) -> None:
    made = await world.enter(groups=["all"], preferred_username="root", email="root")
    assert made.person.name.startswith("root-") and highest_role(made.person) is Role.VIEWER


async def test_a_session_lasts_as_the_configuration_says(world: Any) -> None:
    world.oidc = replace(world.oidc, rules=replace(world.rules, session_lasts=timedelta(minutes=5)))
    made = await world.enter(groups=["all"])
    async with tx(world.pool) as t:
        [row] = await t.fetch_all("SELECT ends_at - created_at AS lasts FROM scheduler.user_sessions")
    assert row["lasts"] == timedelta(minutes=5) and made.ends_at is not None


async def test_groups_are_read_at_each_sign_in_and_leave_what_is_ours(world: Any) -> None:
    await world.enter(groups=["devs", "all"])
    await world.accounts.add_group("ours", actor=CLI)
    await world.accounts.change_member("ours", "ada", joins=True, actor=CLI)
    async with tx(world.pool) as t:
        await t.execute(
            "INSERT INTO scheduler.access_rules (user_id, effect, role, job) "
            "SELECT id, 'allow', 'editor', 'x' FROM scheduler.users WHERE name = 'ada'"
        )
    made = await world.enter(groups=["all"])
    assert {rule.role for rule in made.person.rules} == {Role.VIEWER, Role.EDITOR}
    members = {row["name"]: row["members"] for row in await world.accounts.list_groups()}
    assert members == {"devs": [], "ours": ["ada"]}
    made = await world.enter(groups=[])
    assert {rule.role for rule in made.person.rules} == {Role.EDITOR}


async def test_a_membership_that_an_administrator_makes_too_stays(world: Any) -> None:
    await world.enter(groups=["devs"])
    await world.accounts.change_member("devs", "ada", joins=True, actor=CLI)
    await world.enter(groups=[])
    assert (await world.accounts.list_groups())[0]["members"] == ["ada"]


@pytest.mark.parametrize(("creates", "groups"), [(False, ["admins"]), (True, ["nothing"]), (True, [])])
async def test_a_subject_without_an_account_is_told_its_name(world: Any, creates: bool, groups: list[str]) -> None:
    world.oidc = replace(world.oidc, rules=replace(world.rules, creates_accounts=creates))
    nonce = await world.nonce()
    token = world.provider.token(nonce, groups=groups)
    message = await world.refused(token, nonce, ErrorCode.PERMISSION_DENIED)
    assert "toban user link NAME --subject subject-1" in message
    assert len((await world.accounts.list_users())[0].rows) == 1
    # Linked, the same token signs in: it was not used up by the refusal.
    await world.accounts.add_user("bob", display_name="", password="", actor=CLI)
    await world.accounts.link("bob", issuer=world.provider.issuer, subject="subject-1", actor=CLI)
    assert (await world.oidc.finish(token, nonce, address=HERE)).person.name == "bob"


async def test_links_are_of_one_account_and_one_subject(world: Any) -> None:
    issuer = world.provider.issuer
    for name in ("bob", "eve"):
        await world.accounts.add_user(name, display_name="", password="", actor=CLI)
    await world.accounts.link("bob", issuer=issuer, subject="subject-1", actor=CLI)
    for name, subject, code in (
        ("eve", "subject-1", ErrorCode.ALREADY_EXISTS),
        ("bob", "subject-2", ErrorCode.ALREADY_EXISTS),
        ("nobody", "subject-3", ErrorCode.NOT_FOUND),
        ("eve", "", ErrorCode.INVALID_ARGUMENT),
    ):
        with pytest.raises(TobanError) as caught:
            await world.accounts.link(name, issuer=issuer, subject=subject, actor=CLI)
        assert caught.value.code is code
    made = await world.enter(groups=["devs"])
    await world.accounts.unlink("bob", issuer=issuer, actor=CLI)
    with pytest.raises(TobanError):
        await world.sign_in.with_session(made.secret)
    [person] = [one for name, one in (await world.accounts.list_users())[1].items() if name == "bob"]
    assert person.rules == () and not person.signs_in
    with pytest.raises(TobanError) as caught:
        await world.accounts.unlink("bob", issuer=issuer, actor=CLI)
    assert caught.value.code is ErrorCode.NOT_FOUND


async def test_a_disabled_account_stays_out(world: Any) -> None:
    made = await world.enter(groups=["all"])
    await world.accounts.set_enabled("ada", enabled=False, actor=CLI)
    with pytest.raises(TobanError):
        await world.sign_in.with_session(made.secret)
    nonce = await world.nonce()
    token = world.provider.token(nonce, groups=["admins"])
    assert "disabled" in await world.refused(token, nonce, ErrorCode.PERMISSION_DENIED)


@pytest.mark.parametrize(
    "claims",
    [
        {"aud": "other"},
        {"iss": "https://evil.example"},
        {"nonce": "1.aa.bb"},
        {"exp": 1},
        {"sub": ""},
        {"azp": "other"},
    ],
)
async def test_a_token_of_something_else_is_refused(world: Any, claims: dict[str, Any]) -> None:
    nonce = await world.nonce()
    await world.refused(world.provider.token(**{"nonce": nonce, "groups": ["admins"], **claims}), nonce)


async def test_a_token_signs_in_once(world: Any) -> None:
    nonce = await world.nonce()
    token = world.provider.token(nonce, groups=["all"])
    results = await asyncio.gather(
        *(world.oidc.finish(token, nonce, address=HERE) for _ in range(4)), return_exceptions=True
    )
    assert sum(not isinstance(one, TobanError) for one in results) == 1
    # Another token of the same sign-in is none of another one.
    assert "before" in await world.refused(world.provider.token(nonce, groups=["all"], jti="2"), nonce)


async def test_a_nonce_of_ours_is_needed(world: Any) -> None:
    await world.refused(world.provider.token("made up", groups=["all"]), "made up")
    nonce = await world.nonce()
    await world.refused(world.provider.token(nonce, groups=["all"]), await world.nonce())


def made_up(header: dict[str, Any], claims: dict[str, Any], sign: Callable[[bytes], bytes]) -> str:
    """A token by hand: libraries refuse to make these."""

    def text(raw: bytes) -> str:
        return base64.urlsafe_b64encode(raw).decode().rstrip("=")

    signed = ".".join(text(json.dumps(part).encode()) for part in (header, claims))
    return f"{signed}.{text(sign(signed.encode()))}"


async def test_only_a_key_of_the_provider_signs(world: Any) -> None:
    nonce, provider = await world.nonce(), world.provider
    good = provider.token(nonce, groups=["admins"])
    claims = json.loads(base64.urlsafe_b64decode(good.split(".")[1] + "=="))
    public = provider.key.as_pem(private=False)
    header, payload, signature = good.split(".")
    tokens = {
        "another key": provider.token(nonce, key=new_key("one"), groups=["admins"]),
        "HS256 with the public key": made_up(
            {"alg": "HS256", "kid": "one"}, claims, lambda text: hmac.digest(public, text, "sha256")
        ),
        "none": made_up({"alg": "none"}, claims, lambda _: b""),
        "none with its key": made_up({"alg": "none", "kid": "one"}, claims, lambda _: b"x"),
        "changed": ".".join((header, payload[:-4] + ("AAAA" if payload[-4:] != "AAAA" else "BBBB"), signature)),
        "cut": good.rpartition(".")[0],
        "no token": "…",
        "too long": good + "A" * 40_000,
        "own key in the header": provider.token(
            nonce, key=new_key("x"), header={"kid": "one", "jwk": new_key("x").as_dict(private=False)}
        ),
    }
    # Each from an address of its own, so that none waits for those before.
    for number, (what, token) in enumerate(tokens.items()):
        with pytest.raises(TobanError) as caught:
            await world.oidc.finish(token, nonce, address=f"192.0.2.{number}")
        assert caught.value.code is ErrorCode.UNAUTHENTICATED, what
    assert (await world.oidc.finish(good, nonce, address=HERE)).person.name == "ada"


async def test_new_keys_are_fetched_once_a_minute(world: Any) -> None:
    await world.enter(groups=["all"])
    world.provider.key = new_key("two")
    fetched = world.provider.requests.count("/keys")
    nonce = await world.nonce()
    await world.refused(world.provider.token(nonce, groups=["all"]), nonce)
    assert world.provider.requests.count("/keys") == fetched, "the first fetch was just now"
    await world.clock.advance(UNKNOWN_KEY_SECONDS)
    assert (await world.enter(groups=["all"])).person.name == "ada"
    for number in range(10):
        nonce = await world.nonce()
        token = world.provider.token(nonce, key=new_key(f"unknown-{number}"))
        with pytest.raises(TobanError):
            await world.oidc.finish(token, nonce, address=f"198.51.100.{number}")
    assert world.provider.requests.count("/keys") == fetched + 1


async def test_a_provider_that_is_down_stops_no_password(world: Any) -> None:
    world.provider.down = True
    with pytest.raises(TobanError) as caught:
        await world.oidc.start()
    assert caught.value.code is ErrorCode.PROVIDER_UNAVAILABLE and "503" in caught.value.message
    asked = len(world.provider.requests)
    with pytest.raises(TobanError):
        await world.oidc.start()
    assert len(world.provider.requests) == asked, "not asked again within seconds"
    assert (await world.sign_in.with_password("root", PASSWORD, address=HERE)).person.name == "root"


async def test_known_keys_serve_for_a_day(world: Any) -> None:
    await world.enter(groups=["all"])
    world.provider.down = True
    await world.clock.advance(FRESH_SECONDS)
    await world.enter(groups=["all"])
    await world.clock.advance(STALE_SECONDS)
    with pytest.raises(TobanError) as caught:
        await world.oidc.start()
    assert caught.value.code is ErrorCode.PROVIDER_UNAVAILABLE


async def test_a_discovery_document_of_another_issuer_is_refused(world: Any) -> None:
    keys = HttpsOidcProvider(issuer=world.provider.issuer + "/", http=JsonHttp(), clock=world.clock)
    with pytest.raises(TobanError, match="SCHEDULER_OIDC_ISSUER"):
        await keys.endpoints()


async def test_passwords_go_off_when_an_administrator_can_do_without(world: Any) -> None:
    world.oidc = replace(world.oidc, rules=replace(world.rules, passwords=False))
    await world.enter(groups=["all"])
    assert not await world.oidc.passwords_off(), "no administrator is linked"
    await world.enter(groups=["admins"])
    assert await world.oidc.passwords_off()
    with pytest.raises(TobanError, match="Example") as caught:
        await world.oidc.require_passwords()
    assert caught.value.code is ErrorCode.PERMISSION_DENIED
    await world.enter(groups=[])
    assert not await world.oidc.passwords_off()


async def test_a_link_that_was_never_used_switches_no_password_off(world: Any) -> None:
    """Its subject may be wrong."""
    world.oidc = replace(world.oidc, rules=replace(world.rules, passwords=False))
    await world.accounts.link("root", issuer=world.provider.issuer, subject="subject-1", actor=CLI)
    assert not await world.oidc.passwords_off()
    await world.enter(groups=[])
    assert await world.oidc.passwords_off()
    # Another subject has to show that it can sign in again.
    await world.accounts.unlink("root", issuer=world.provider.issuer, actor=CLI)
    await world.accounts.link("root", issuer=world.provider.issuer, subject="subject-2", actor=CLI)
    assert not await world.oidc.passwords_off()


async def test_who_was_unlinked_gets_no_new_account(world: Any) -> None:
    made = await world.enter(groups=["all"])
    await world.accounts.unlink(made.person.name, issuer=world.provider.issuer, actor=CLI)
    nonce = await world.nonce()
    token = world.provider.token(nonce, groups=["admins"])
    message = await world.refused(token, nonce, ErrorCode.PERMISSION_DENIED)
    assert "unlinked it from the account ada" in message and "toban user link NAME --subject subject-1" in message
    await world.accounts.delete_user("ada", actor=CLI)
    await world.refused(token, nonce, ErrorCode.PERMISSION_DENIED)
    # Other people still get one, and the person when an administrator links it again.
    assert (await world.enter(groups=["all"], sub="subject-2", preferred_username="bob")).person.name == "bob"
    await world.accounts.add_user("eve", display_name="", password="", actor=CLI)
    await world.accounts.link("eve", issuer=world.provider.issuer, subject="subject-1", actor=CLI)
    assert (await world.oidc.finish(token, nonce, address=HERE)).person.name == "eve"
    await world.accounts.delete_user("eve", actor=CLI)
    assert (await world.enter(groups=["all"])).person.name == "ada", "the link has ended the mark"


async def test_the_same_groups_are_no_change(world: Any) -> None:
    """In whatever order the database sorts their names."""
    both = {"x": parse_grants("group:a-b group:a.c group:ab group:a_d viewer operator")}
    world.oidc = replace(world.oidc, rules=replace(world.rules, grants=both))
    for _ in range(3):
        await world.enter(groups=["x"])
    actions = [row["action"] for row in (await list_audit(world.pool)).rows]
    assert actions.count("set_roles") == 1


async def test_the_last_link_of_an_administrator_remains(world: Any) -> None:
    await world.enter(groups=["admins"])
    await world.accounts.delete_user("root", actor=CLI)
    with pytest.raises(TobanError) as caught:
        await world.accounts.unlink("ada", issuer=world.provider.issuer, actor=CLI)
    assert caught.value.code is ErrorCode.RESOURCE_INVALID_STATE


async def test_without_a_provider_there_is_nothing_to_start(pool: Pool) -> None:
    oidc = OidcSignIn(pool=pool, ids=IdSource())
    for call in (oidc.start(), oidc.finish("t", "n", address=HERE)):
        with pytest.raises(TobanError, match="SCHEDULER_OIDC_ISSUER"):
            await call
    assert not await oidc.passwords_off()


def test_a_grant_of_nothing_is_false() -> None:
    assert not Grants()
