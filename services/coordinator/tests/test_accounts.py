"""Accounts over a real PostgreSQL: the first administrator, rules, the last administrator, sign-in, sessions, tokens, throttling."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from toban_coordinator.app.cluster.audit_log import list_audit
from toban_coordinator.app.people.accounts import Accounts, NewRule
from toban_coordinator.app.people.passwords import AT_ONCE, WAITING, Passwords, check_password
from toban_coordinator.app.people.sign_in import NewToken, SignIn
from toban_coordinator.decide.people.sign_in import FREE
from toban_domain.access import TOKEN_PREFIX, Action, Effect, Role, Selector, may
from toban_domain.client_address import network_of
from toban_domain.errors import ErrorCode, TobanError
from toban_runtime.ids import IdSource
from toban_store.pool import Pool
from toban_store.tx import tx

PASSWORD = "correct horse battery"
HERE, ELSEWHERE = "192.0.2.1", "203.0.113.9"
CLI = "admin-cli"


@pytest.fixture
def passwords() -> Any:
    # The least that the library takes: what is tested is what happens around a hash.
    made = Passwords(memory_kib=8, time_cost=1)
    yield made
    made.close()


@pytest.fixture
def accounts(pool: Pool, passwords: Passwords) -> Accounts:
    return Accounts(pool=pool, passwords=passwords, ids=IdSource())


@pytest.fixture
def sign_in(pool: Pool, passwords: Passwords) -> SignIn:
    return SignIn(pool=pool, passwords=passwords, ids=IdSource())


@pytest.fixture
async def root(accounts: Accounts) -> str:
    """The first administrator."""
    secret, _ = await accounts.bootstrap_link(CLI)
    await accounts.redeem_link(secret, user="root", password=PASSWORD, address=HERE)
    return "user root"


async def sql(pool: Pool, text: str) -> list[Any]:
    async with tx(pool) as t:
        return await t.fetch_all(text)


async def code_of(work: Any) -> ErrorCode:
    with pytest.raises(TobanError) as caught:
        await work
    return caught.value.code


async def grant(accounts: Accounts, user: str, role: str, *, effect: str = "allow", **selector: Any) -> int:
    rule = NewRule(user=user, effect=Effect(effect), role=Role(role), selector=Selector(**selector))
    return await accounts.add_rule(rule, actor=CLI)


async def test_the_link_makes_the_first_administrator_once(accounts: Accounts, pool: Pool) -> None:
    assert not await accounts.has_administrator()
    old, _ = await accounts.bootstrap_link(CLI)
    new, _ = await accounts.bootstrap_link(CLI)
    given = {"user": "root", "password": PASSWORD, "address": HERE}
    assert await code_of(accounts.redeem_link(old, **given)) is ErrorCode.UNAUTHENTICATED, "a newer link replaces it"
    assert await code_of(accounts.redeem_link("guess", **given)) is ErrorCode.UNAUTHENTICATED
    await accounts.redeem_link(new, **given)
    assert await accounts.has_administrator()
    assert await code_of(accounts.redeem_link(new, **given)) is ErrorCode.RESOURCE_INVALID_STATE
    assert await code_of(accounts.bootstrap_link(CLI)) is ErrorCode.RESOURCE_INVALID_STATE
    assert [row["action"] for row in (await list_audit(pool)).rows] == [
        "first_admin",
        "bootstrap_link",
        "bootstrap_link",
    ]


async def test_a_link_ends(accounts: Accounts, pool: Pool) -> None:
    secret, _ = await accounts.bootstrap_link(CLI)
    await sql(pool, "UPDATE scheduler.bootstrap_link SET ends_at = now() RETURNING 1")
    late = accounts.redeem_link(secret, user="root", password=PASSWORD, address=HERE)
    assert await code_of(late) is ErrorCode.UNAUTHENTICATED


async def test_one_of_many_that_use_a_link_at_once_succeeds(accounts: Accounts) -> None:
    secret, _ = await accounts.bootstrap_link(CLI)
    tries = [accounts.redeem_link(secret, user=f"u{n}", password=PASSWORD, address=HERE) for n in range(5)]
    results = await asyncio.gather(*tries, return_exceptions=True)
    assert sum(result is None for result in results) == 1


async def test_the_last_administrator_remains(accounts: Accounts, root: str) -> None:
    [rule] = await accounts.list_rules(user="root")
    for change in (
        accounts.set_enabled("root", enabled=False, actor=CLI),
        accounts.delete_user("root", actor=CLI),
        accounts.remove_rule(rule["id"], actor=CLI),
        grant(accounts, "root", "admin", effect="deny"),
        grant(accounts, "root", "viewer", effect="deny"),
    ):
        assert await code_of(change) is ErrorCode.RESOURCE_INVALID_STATE
    assert await accounts.has_administrator() and len(await accounts.list_rules()) == 1
    await accounts.add_user("ada", display_name="", password=PASSWORD, actor=root)
    await grant(accounts, "ada", "admin")
    own = accounts.set_enabled("root", enabled=False, actor=root)
    assert await code_of(own) is ErrorCode.RESOURCE_INVALID_STATE, "not one's own account"
    await accounts.set_enabled("root", enabled=False, actor="user ada")


async def test_two_administrators_who_remove_each_other_at_once_do_not_both_succeed(
    accounts: Accounts, root: str
) -> None:
    await accounts.add_user("ada", display_name="", password="", actor=root)
    await grant(accounts, "ada", "admin")
    results = await asyncio.gather(
        accounts.delete_user("ada", actor=root), accounts.delete_user("root", actor="user ada"), return_exceptions=True
    )
    assert sum(result is None for result in results) == 1 and await accounts.has_administrator()


async def test_rules_of_a_user_and_of_groups_and_the_simulator(accounts: Accounts, pool: Pool, root: str) -> None:
    await sql(
        pool,
        "INSERT INTO scheduler.job_definitions (name, version, enabled, spec, spec_hash) VALUES"
        """ ('backup', 1, true, '{"labels": {"team": "ops"}}', ''), ('mail', 1, true, '{}', '') RETURNING 1""",
    )
    await accounts.add_user("bob", display_name="Bob", password="", actor=root)
    await accounts.add_group("ops", actor=root)
    await accounts.change_member("ops", "bob", joins=True, actor=root)
    rule = NewRule(group="ops", effect=Effect.ALLOW, role=Role.OPERATOR, selector=Selector(labels={"team": "ops"}))
    number = await accounts.add_rule(rule, actor=root)
    verdict = await accounts.may("bob", Action.RUN, job="backup")
    assert verdict.allowed and verdict.reason == f"rule {number} of group ops: allow operator for label team=ops"
    assert not (await accounts.may("bob", Action.RUN, job="mail")).allowed
    await grant(accounts, "bob", "operator", effect="deny", job="backup")
    assert not (await accounts.may("bob", Action.RUN, job="backup")).allowed
    assert (await accounts.may("bob", Action.VIEW, job="backup")).allowed
    await accounts.change_member("ops", "bob", joins=False, actor=root)
    assert not (await accounts.may("bob", Action.VIEW, job="backup")).allowed
    assert await code_of(accounts.may("eve", Action.RUN, job="backup")) is ErrorCode.NOT_FOUND
    assert await code_of(accounts.may("bob", Action.RUN, job="none")) is ErrorCode.JOB_NOT_FOUND
    assert await code_of(accounts.may("bob", Action.RUN, scope="account")) is ErrorCode.INVALID_ARGUMENT
    assert await code_of(accounts.may("bob", Action.RUN, scope_id="7")) is ErrorCode.INVALID_ARGUMENT
    assert await code_of(accounts.may("bob", Action.RUN, job="backup", scope="team")) is ErrorCode.INVALID_ARGUMENT
    page, people, _ = await accounts.list_users()
    assert [row["name"] for row in page.rows] == ["bob", "root"] and len(people["bob"].rules) == 1


async def test_a_password_a_session_and_signing_out_everywhere(
    accounts: Accounts, sign_in: SignIn, root: str, pool: Pool
) -> None:
    one = await sign_in.with_password("root", PASSWORD, address=HERE)
    two = await sign_in.with_password("root", PASSWORD, address=ELSEWHERE)
    assert one.secret != two.secret and (await sign_in.with_session(one.secret)).name == "root"
    [stored] = await sql(
        pool, "SELECT string_agg(encode(secret_hash, 'hex'), ' ') AS hashes FROM scheduler.user_sessions"
    )
    assert one.secret not in stored["hashes"], "what is stored signs nobody in"
    assert await sign_in.sign_out(one.secret, everywhere=False) == 1
    assert await code_of(sign_in.with_session(one.secret)) is ErrorCode.UNAUTHENTICATED
    assert await sign_in.sign_out(one.secret, everywhere=True) == 0, "a session that has ended ends no other"
    assert (await sign_in.with_session(two.secret)).name == "root"
    three = await sign_in.with_password("root", PASSWORD, address=HERE)
    assert await sign_in.sign_out(three.secret, everywhere=True) == 2
    assert await code_of(sign_in.with_session(two.secret)) is ErrorCode.UNAUTHENTICATED
    audited = await sql(
        pool, "SELECT actor, after FROM scheduler.admin_action_log WHERE action = 'sign_out' ORDER BY id"
    )
    assert [tuple(row.values()) for row in audited] == [("user root", {"sessions": 1}), ("user root", {"sessions": 2})]


@pytest.mark.parametrize(
    "ending",
    [
        "UPDATE scheduler.user_sessions SET ends_at = now() RETURNING 1",
        "UPDATE scheduler.user_sessions SET last_used_at = now() - interval '31 min' RETURNING 1",
        "UPDATE scheduler.users SET enabled = false RETURNING 1",
    ],
)
async def test_a_session_ends(sign_in: SignIn, root: str, pool: Pool, ending: str) -> None:
    made = await sign_in.with_password("root", PASSWORD, address=HERE)
    await sql(pool, ending)
    assert await code_of(sign_in.with_session(made.secret)) is ErrorCode.UNAUTHENTICATED


async def test_a_new_password_ends_every_session(accounts: Accounts, sign_in: SignIn, root: str) -> None:
    made = await sign_in.with_password("root", PASSWORD, address=HERE)
    await accounts.set_password("root", "another horse battery", actor=CLI)
    assert await code_of(sign_in.with_session(made.secret)) is ErrorCode.UNAUTHENTICATED
    assert await code_of(sign_in.with_password("root", PASSWORD, address=HERE)) is ErrorCode.UNAUTHENTICATED
    await sign_in.with_password("root", "another horse battery", address=HERE)


async def test_wrong_and_unknown_are_answered_alike(accounts: Accounts, sign_in: SignIn, root: str) -> None:
    await accounts.add_user("nopass", display_name="", password="", actor=root)
    answers = set()
    for user, password in (
        ("root", "wrong horse battery"),
        ("nobody", PASSWORD),
        ("nopass", PASSWORD),
        ("x\0" * 99, PASSWORD),
    ):
        with pytest.raises(TobanError) as caught:
            await sign_in.with_password(user, password, address=HERE)
        answers.add((caught.value.code, caught.value.message, str(caught.value.detail)))
    assert len(answers) == 1 and answers.pop()[0] is ErrorCode.UNAUTHENTICATED


async def test_guesses_are_throttled_and_the_count_outlives_coordinators(
    sign_in: SignIn, root: str, pool: Pool, passwords: Passwords
) -> None:
    await sign_in.with_password("root", PASSWORD, address=HERE)
    codes = []
    # Delays double, so a slow machine gets a few more guesses before one comes within a delay.
    while ErrorCode.RESOURCE_EXHAUSTED not in codes:
        codes.append(await code_of(sign_in.with_password("root", "a wrong guess!", address=ELSEWHERE)))
    assert codes[: FREE + 1] == [ErrorCode.UNAUTHENTICATED] * (FREE + 1) and len(codes) < FREE + 8
    for key in ("account root", f"address {ELSEWHERE}"):
        blocked = f"UPDATE scheduler.sign_in_failures SET blocked_until = now() + interval '30 s' WHERE key = '{key}' RETURNING 1"
        assert len(await sql(pool, blocked)) == 1
    # Also with the right password, at another coordinator, and for another user.
    other = SignIn(pool=pool, passwords=passwords, ids=IdSource())
    with pytest.raises(TobanError) as caught:
        await other.with_password("root", PASSWORD, address=ELSEWHERE)
    assert caught.value.code is ErrorCode.RESOURCE_EXHAUSTED and caught.value.detail["retry_after_seconds"] >= 1
    assert await code_of(sign_in.with_password("eve", "guess", address=ELSEWHERE)) is ErrorCode.RESOURCE_EXHAUSTED
    assert (await other.with_password("root", PASSWORD, address=HERE)).person.name == "root", (
        "a known address is let in"
    )


async def test_failures_of_others_do_not_hold_a_known_account_at_its_address(
    sign_in: SignIn, root: str, pool: Pool
) -> None:
    await sign_in.with_password("root", PASSWORD, address=HERE)
    for _ in range(FREE):
        assert await code_of(sign_in.with_password("eve", "a wrong guess!", address=HERE)) is ErrorCode.UNAUTHENTICATED
    blocked = f"UPDATE scheduler.sign_in_failures SET blocked_until = now() + interval '900 s' WHERE key = 'address {HERE}' RETURNING failures"
    [before] = await sql(pool, blocked)
    assert (await sign_in.with_password("root", PASSWORD, address=HERE)).person.name == "root"
    assert await code_of(sign_in.with_password("eve", "guess", address=HERE)) is ErrorCode.RESOURCE_EXHAUSTED
    assert await sql(pool, blocked) == [before], "a known account forgives no failures of others"
    own = []
    while ErrorCode.RESOURCE_EXHAUSTED not in own:
        own.append(await code_of(sign_in.with_password("root", "a wrong guess!", address=HERE)))
    assert len(own) > FREE, "its own failures hold it"


async def test_guesses_side_by_side_are_counted_each(sign_in: SignIn, root: str) -> None:
    tries = [sign_in.with_password("root", "a wrong guess!", address=ELSEWHERE) for _ in range(20)]
    results = await asyncio.gather(*tries, return_exceptions=True)
    checked = sum(isinstance(one, TobanError) and one.code is ErrorCode.UNAUTHENTICATED for one in results)
    assert FREE < checked < FREE + 8, "the rest is refused without a hash"


@pytest.mark.seed(78)
async def test_a_token_is_bounded_revocable_and_shown_once(
    accounts: Accounts, sign_in: SignIn, root: str, pool: Pool
) -> None:
    new = NewToken(user="root", name="ci", role=Role.OPERATOR, selector=Selector(job="deploy"), days=30)
    secret, number, ends_at = await sign_in.create_token(new, actor=root)
    assert secret.startswith(TOKEN_PREFIX)
    person = await sign_in.with_token(secret, address=HERE)
    assert not may(person, Action.ACCOUNTS).allowed and "token" in may(person, Action.ACCOUNTS).reason
    [listed] = await sign_in.list_tokens("root")
    assert listed["last_used_from"] == HERE and "secret" not in str(listed) and listed["ends_at"] == ends_at
    assert secret not in str([dict(row) for row in (await list_audit(pool)).rows])
    await sign_in.revoke_token(number, actor=root)
    assert await code_of(sign_in.with_token(secret, address=HERE)) is ErrorCode.UNAUTHENTICATED
    assert await code_of(sign_in.revoke_token(number, actor=root)) is ErrorCode.NOT_FOUND


@pytest.mark.seed(78)
@pytest.mark.parametrize("ending", ["api_tokens SET ends_at = now()", "users SET enabled = false"])
async def test_a_token_ends(sign_in: SignIn, root: str, pool: Pool, ending: str) -> None:
    new = NewToken(user="root", name="ci", role=Role.ADMIN, selector=Selector(), days=1)
    secret, _, _ = await sign_in.create_token(new, actor=root)
    await sql(pool, f"UPDATE scheduler.{ending} RETURNING 1")
    assert await code_of(sign_in.with_token(secret, address=HERE)) is ErrorCode.UNAUTHENTICATED
    for days, name in ((0, "ci"), (367, "ci"), (1, ""), (1, "a\nb")):
        wrong = NewToken(user="root", name=name, role=Role.ADMIN, selector=Selector(), days=days)
        assert await code_of(sign_in.create_token(wrong, actor=root)) is ErrorCode.INVALID_ARGUMENT


async def test_names_and_passwords_that_are_refused(accounts: Accounts, root: str) -> None:
    for name in ("", "Root", "a b", "-a", "a" * 65, "a\0"):
        assert (
            await code_of(accounts.add_user(name, display_name="", password="", actor=root))
            is ErrorCode.INVALID_ARGUMENT
        )
    assert (
        await code_of(accounts.add_user("root", display_name="", password="", actor=root)) is ErrorCode.ALREADY_EXISTS
    )
    for password in ("short", "a" * 40, "root12345678", "x" * 257):
        with pytest.raises(TobanError):
            check_password(password, "root")
    check_password(PASSWORD, "root")


async def test_hashes_are_few_at_a_time_and_a_crowd_is_refused(passwords: Passwords) -> None:
    results = await asyncio.gather(*(passwords.hash("p") for _ in range(WAITING + 40)), return_exceptions=True)
    refused = [one for one in results if isinstance(one, TobanError)]
    assert refused and all(one.code is ErrorCode.RESOURCE_EXHAUSTED for one in refused)
    assert sum(isinstance(one, str) for one in results) >= WAITING
    assert await passwords.verify(await passwords.hash("p"), "p"), "and later ones go on"


async def test_an_unknown_user_costs_one_check_from_the_first_time_on(monkeypatch: pytest.MonkeyPatch) -> None:
    work: list[Any] = []
    fresh = Passwords(memory_kib=8, time_cost=1)
    run = fresh._run
    monkeypatch.setattr(fresh, "_run", lambda one: (work.append(one), run(one))[1])
    try:
        assert not await fresh.verify(None, PASSWORD)
        assert len(work) == 1, "a hash more would show that the user is unknown"
        assert not fresh.is_outdated(fresh._unknown_user), "with the parameters of new hashes"
        assert not await fresh.verify("no hash", PASSWORD)
    finally:
        fresh.close()


async def test_an_outdated_hash_is_made_again_at_the_next_sign_in(accounts: Accounts, root: str, pool: Pool) -> None:
    stronger = Passwords(memory_kib=16, time_cost=1)
    try:
        await SignIn(pool=pool, passwords=stronger, ids=IdSource()).with_password("root", PASSWORD, address=HERE)
        [row] = await sql(pool, "SELECT password_hash FROM scheduler.users")
        assert "m=16," in row["password_hash"] and await stronger.verify(row["password_hash"], PASSWORD)
    finally:
        stronger.close()


@pytest.mark.parametrize(
    ("address", "network"),
    [
        ("192.0.2.1", "192.0.2.1"),
        ("::ffff:192.0.2.1", "192.0.2.1"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("", "unknown"),
        ("x" * 999, "unknown"),
    ],
)
def test_addresses_are_counted_by_network(address: str, network: str) -> None:
    assert network_of(address) == network


def test_defaults_are_those_of_rfc_9106() -> None:
    made = Passwords()
    assert made._hasher.memory_cost == 65536 and made._hasher.time_cost == 3
    made.close()


async def test_a_sign_in_that_finds_no_room_is_no_failure(
    sign_in: SignIn, root: str, pool: Pool, passwords: Passwords, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(passwords, "_open", AT_ONCE + WAITING)
    for _ in range(FREE + 2):
        assert await code_of(sign_in.with_password("root", PASSWORD, address=HERE)) is ErrorCode.RESOURCE_EXHAUSTED
    assert await sql(pool, "SELECT 1 FROM scheduler.sign_in_failures") == []
    monkeypatch.undo()
    await sign_in.with_password("root", PASSWORD, address=HERE)


async def test_sessions_of_an_unknown_account_cannot_be_ended(sign_in: SignIn, root: str) -> None:
    for unknown in ("nobody", ""):
        assert await code_of(sign_in.end_sessions(unknown, actor=root)) is ErrorCode.NOT_FOUND


async def test_the_log_of_operators_says_which_rule_was_removed(accounts: Accounts, root: str, pool: Pool) -> None:
    await accounts.add_user("eve", display_name="", password="", actor=CLI)
    number = await grant(accounts, "eve", "editor", job="nightly-*")
    await accounts.remove_rule(number, actor=root)
    entry = (await list_audit(pool)).rows[0]
    before = {"of": "user eve", "effect": "allow", "role": "editor", "for": "job nightly-*"}
    assert (entry["action"], json.loads(entry["before"])) == ("remove_rule", before)
