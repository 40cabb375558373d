"""What people do with their own account: password, sessions, API tokens, and the bounds of a token that does it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from toban_coordinator.app.cluster.audit_log import list_audit
from toban_coordinator.app.people.accounts import Accounts, NewRule
from toban_coordinator.app.people.credentials import Credentials
from toban_coordinator.app.people.oidc_sign_in import OidcSignIn
from toban_coordinator.app.people.own_account import OwnAccount
from toban_coordinator.app.people.passwords import Passwords
from toban_coordinator.app.people.sign_in import MOST_TOKENS, NewToken, SignIn
from toban_coordinator.decide.people.sign_in import FREE
from toban_coordinator.server.accounts import AccountsDeps, AccountsService
from toban_coordinator.server.person_check import PeopleCheck
from toban_domain.access import Effect, Role, Selector
from toban_domain.errors import ErrorCode, TobanError
from toban_observability.context import Caller
from toban_proto.v1 import coordinator_pb2 as pb
from toban_runtime.ids import IdSource
from toban_store.pool import Pool
from toban_store.tx import autocommit
from toban_testing.clock import FakeClock
from toban_testing.kept_sessions import kept_pool
from toban_transport.call_context import set_actor
from toban_transport.person_rules import ADDRESS, CREDENTIAL

PASSWORD, OTHER = "correct horse battery", "another horse battery"
HERE = "192.0.2.1"
CLI = "certificate admin-cli"


class World:
    """Accounts bob (operator) and eve (viewer) behind the service, with the checks of a call before each."""

    def __init__(self, pool: Pool, passwords: Passwords) -> None:
        ids = IdSource()
        self.pool = pool
        self.sign_in = SignIn(pool=pool, passwords=passwords, ids=ids)
        self.accounts = Accounts(pool=pool, passwords=passwords, ids=ids)
        credentials = Credentials(sign_in=self.sign_in, clock=FakeClock())
        own = OwnAccount(pool=pool, passwords=passwords, sign_in=self.sign_in)
        oidc = OidcSignIn(pool=pool, ids=ids)
        deps = AccountsDeps(accounts=self.accounts, sign_in=self.sign_in, oidc=oidc, own=own, credentials=credentials)
        self._service = AccountsService(deps=deps)
        self._check = PeopleCheck(pool=pool, credentials=credentials)

    async def call(self, secret: str, method: str, request: Any = None, *, service: str = "admin-web") -> Any:
        given = {CREDENTIAL: secret, ADDRESS: HERE} if secret else {}
        admission = await self._check.admit(
            f"/toban_proto.v1.Accounts/{method}", caller=Caller(HERE, service), about=lambda: request, given=given
        )
        set_actor(CLI if admission is None else admission.actor)
        return await getattr(self._service, method)(request, None)

    async def user(self, name: str, role: str = "") -> str:
        """A session of a new account."""
        await self.accounts.add_user(name, display_name="", password=PASSWORD, actor=CLI)
        if role:
            rule = NewRule(user=name, effect=Effect.ALLOW, role=Role(role), selector=Selector())
            await self.accounts.add_rule(rule, actor=CLI)
        return await self.session(name)

    async def session(self, name: str, password: str = PASSWORD) -> str:
        made = await self.sign_in.with_password(name, password, address=HERE, user_agent="a browser")
        return made.secret

    async def token(self, user: str, role: str, **given: Any) -> str:
        new = NewToken(user=user, name="t", role=Role(role), selector=Selector(**given), days=2)
        return (await self.sign_in.create_token(new, actor=CLI))[0]

    async def actions(self) -> list[tuple[str, str, str]]:
        return [(row["actor"], row["action"], row["target"]) for row in (await list_audit(self.pool)).rows]


@pytest.fixture
async def world(coordinator_url: str) -> AsyncIterator[World]:
    pool = await kept_pool(coordinator_url, max_size=4)
    passwords = Passwords(memory_kib=8, time_cost=1)
    yield World(pool, passwords)
    passwords.close()
    await pool.close()


async def refused(work: Any) -> tuple[ErrorCode, str]:
    with pytest.raises(TobanError) as caught:
        await work
    return caught.value.code, caught.value.message


def passwd(current: str, new: str) -> pb.ChangeOwnPasswordRequest:
    return pb.ChangeOwnPasswordRequest(current=current, password=new)


def token(role: str, days: int = 30, **given: Any) -> pb.CreateOwnTokenRequest:
    return pb.CreateOwnTokenRequest(name="ci", role=role, days=days, **given)


async def test_the_own_password_is_changed_and_every_session_ends(world: World) -> None:
    bob, eve = await world.user("bob"), await world.user("eve")
    await world.session("bob")
    assert (await world.call(bob, "ChangeOwnPassword", passwd(PASSWORD, OTHER))).ended == 2
    assert (await refused(world.sign_in.with_session(bob)))[0] is ErrorCode.UNAUTHENTICATED
    assert (await refused(world.session("bob")))[0] is ErrorCode.UNAUTHENTICATED
    assert await world.session("bob", OTHER)
    assert (await world.sign_in.with_session(eve)).name == "eve"
    assert ("user bob", "change_password", "user bob") in await world.actions()


async def test_a_password_needs_the_present_one_and_must_be_good(world: World) -> None:
    bob = await world.user("bob")
    assert await refused(world.call(bob, "ChangeOwnPassword", passwd("wrong horse battery", OTHER))) == (
        ErrorCode.UNAUTHENTICATED,
        "the present password is wrong",
    )
    for new, why in (("short", "12 to 256"), (PASSWORD, "present one")):
        code, message = await refused(world.call(bob, "ChangeOwnPassword", passwd(PASSWORD, new)))
        assert code is ErrorCode.INVALID_ARGUMENT and why in message
    assert await world.session("bob"), "nothing changed"


async def test_guesses_of_the_present_password_are_throttled_as_sign_ins(world: World) -> None:
    bob = await world.user("bob")
    codes = [
        (await refused(world.call(bob, "ChangeOwnPassword", passwd(f"guess number {n} of it", OTHER))))[0]
        for n in range(FREE + 2)
    ]
    assert codes[0] is ErrorCode.UNAUTHENTICATED and codes[-1] is ErrorCode.RESOURCE_EXHAUSTED
    assert (await refused(world.session("bob")))[0] is ErrorCode.RESOURCE_EXHAUSTED


async def test_an_account_without_a_password_has_none_to_change(world: World) -> None:
    await world.accounts.add_user("local", display_name="", password="", actor=CLI)
    secret = await world.token("local", "viewer")
    code, message = await refused(world.call(secret, "ChangeOwnPassword", passwd(PASSWORD, OTHER)))
    assert code is ErrorCode.RESOURCE_INVALID_STATE and "toban user password local" in message


async def test_own_sessions_are_listed_and_ended(world: World) -> None:
    bob, eve = await world.user("bob"), await world.user("eve")
    other = await world.session("bob")
    idle = await world.session("bob")
    async with autocommit(world.pool) as t:
        await t.execute(
            "UPDATE scheduler.user_sessions SET last_used_at = now() - interval '31 minutes'"
            " WHERE id = (SELECT max(id) FROM scheduler.user_sessions)"
        )
    sessions = (await world.call(bob, "ListOwnSessions")).sessions
    assert [(one.address, one.user_agent, one.current) for one in sessions] == [
        (HERE, "a browser", False),
        (HERE, "a browser", True),
    ]
    request = pb.EndOwnSessionRequest(id=sessions[0].id)
    assert (await refused(world.call(eve, "EndOwnSession", request)))[0] is ErrorCode.NOT_FOUND, "of another person"
    await world.call(bob, "EndOwnSession", request)
    for ended in (other, idle):
        assert (await refused(world.sign_in.with_session(ended)))[0] is ErrorCode.UNAUTHENTICATED
    assert (await world.sign_in.with_session(bob)).name == "bob"
    assert (await refused(world.call(bob, "EndOwnSession", request)))[0] is ErrorCode.NOT_FOUND
    assert ("user bob", "end_session", f"session {request.id}") in await world.actions()


async def test_own_tokens_are_made_listed_and_revoked(world: World) -> None:
    bob, eve = await world.user("bob", "operator"), await world.user("eve", "viewer")
    made = await world.call(bob, "CreateOwnToken", token("operator", selector=pb.AccessSelector(job="deploy")))
    person = await world.sign_in.with_token(made.secret, address=HERE)
    assert person.name == "bob" and person.ceiling is not None
    assert (person.ceiling.role, person.ceiling.selector) == (Role.OPERATOR, Selector(job="deploy"))
    [listed] = (await world.call(bob, "ListOwnTokens")).tokens
    assert (listed.id, listed.user, listed.created_by) == (made.id, "bob", "user bob")
    assert list((await world.call(eve, "ListOwnTokens")).tokens) == []
    revoke = pb.RevokeTokenRequest(id=made.id)
    assert (await refused(world.call(eve, "RevokeOwnToken", revoke)))[0] is ErrorCode.NOT_FOUND, "of another person"
    await world.call(bob, "RevokeOwnToken", revoke)
    late = world.sign_in.with_token(made.secret, address=HERE)
    assert (await refused(late))[0] is ErrorCode.UNAUTHENTICATED


@pytest.mark.parametrize(("own", "wanted"), [("", "viewer"), ("viewer", "operator"), ("editor", "admin")])
async def test_a_token_has_at_most_the_own_role(world: World, own: str, wanted: str) -> None:
    bob = await world.user("bob", own)
    code, message = await refused(world.call(bob, "CreateOwnToken", token(wanted)))
    assert code is ErrorCode.PERMISSION_DENIED and f"highest role of the account is {own or 'none'}" in message


async def test_a_token_that_is_narrower_than_its_account_manages_nothing(world: World) -> None:
    await world.user("bob", "operator")
    requests = {
        "ChangeOwnPassword": passwd(PASSWORD, OTHER),
        "ListOwnSessions": pb.ListOwnSessionsRequest(),
        "EndOwnSession": pb.EndOwnSessionRequest(id=1),
        "CreateOwnToken": token("viewer"),
        "ListOwnTokens": pb.ListOwnTokensRequest(),
        "RevokeOwnToken": pb.RevokeTokenRequest(id=1),
    }
    for narrow in (await world.token("bob", "viewer"), await world.token("bob", "operator", job="deploy")):
        for method, request in requests.items():
            code, message = await refused(world.call(narrow, method, request, service="admin-cli"))
            assert code is ErrorCode.PERMISSION_DENIED and "narrower than the account" in message, method
    wide = await world.token("bob", "operator")
    assert (await world.call(wide, "ListOwnTokens", requests["ListOwnTokens"], service="admin-cli")).tokens


async def test_a_token_of_a_token_ends_with_it_at_the_latest(world: World) -> None:
    """Who copies a token of two days cannot make one of a year from it."""
    await world.user("bob", "operator")
    wide = await world.token("bob", "operator")
    made = await world.call(wide, "CreateOwnToken", token("operator", days=366), service="admin-cli")
    tokens = {one.id: one for one in (await world.call(wide, "ListOwnTokens")).tokens}
    [maker] = [one for one in tokens.values() if one.id != made.id]
    assert made.ends_at == maker.ends_at
    assert tokens[made.id].created_by.startswith("user bob, token ")


async def test_an_account_has_a_bounded_number_of_tokens(world: World) -> None:
    bob = await world.user("bob", "viewer")
    async with autocommit(world.pool) as t:
        await t.execute(
            "INSERT INTO scheduler.api_tokens (user_id, name, secret_hash, role, created_by, ends_at)"
            " SELECT u.id, 'n', sha256(n::text::bytea), 'viewer', 'test', now() + interval '1 day'"
            "   FROM scheduler.users u, generate_series(1, %(most)s::integer) n WHERE u.name = 'bob'",
            {"most": MOST_TOKENS},
        )
    assert (await refused(world.call(bob, "CreateOwnToken", token("viewer"))))[0] is ErrorCode.RESOURCE_EXHAUSTED


async def test_a_certificate_has_no_account(world: World) -> None:
    code, message = await refused(world.call("", "ListOwnSessions", pb.ListOwnSessionsRequest(), service="admin-cli"))
    assert code is ErrorCode.UNAUTHENTICATED and "TOBAN_TOKEN" in message
