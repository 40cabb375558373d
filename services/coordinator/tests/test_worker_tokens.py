"""API tokens of external workers: for steps of one type and nothing else, and never more than their account may."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import pytest

from toban_coordinator.app.people.accounts import Accounts, NewRule
from toban_coordinator.app.people.credentials import Credentials
from toban_coordinator.app.people.passwords import Passwords
from toban_coordinator.app.people.sign_in import NewToken, SignIn
from toban_coordinator.server.person_check import PeopleCheck
from toban_domain.access import Effect, Role, Selector
from toban_domain.errors import ErrorCode, TobanError
from toban_observability.context import Caller
from toban_runtime.ids import IdSource
from toban_testing.clock import FakeClock
from toban_testing.kept_sessions import kept_pool
from toban_transport.person_rules import CREDENTIAL, PERSON_RULES

ROOT = "user root"
EVERYTHING, OPS = Selector(), Selector(labels={"team": "ops"})


@dataclass
class World:
    """Accounts with API tokens."""

    accounts: Accounts
    sign_in: SignIn
    check: PeopleCheck

    async def user(self, name: str, *rules: tuple[str, str, Selector]) -> None:
        await self.accounts.add_user(name, display_name="", password="", actor=ROOT)
        for effect, role, selector in rules:
            rule = NewRule(user=name, effect=Effect(effect), role=Role(role), selector=selector)
            await self.accounts.add_rule(rule, actor=ROOT)

    async def token(self, user: str, role: str, selector: Selector = EVERYTHING) -> str:
        new = NewToken(user=user, name="t", role=Role(role), selector=selector, days=1)
        return (await self.sign_in.create_token(new, actor=ROOT))[0]

    async def ask(self, method: str, *, secret: str) -> Any:
        """The admission, or the code of the refusal."""
        caller = Caller("192.0.2.7", "admin-web")
        try:
            return await self.check.admit(method, caller=caller, about=pytest.fail, given={CREDENTIAL: secret})
        except TobanError as error:
            return error.code


@pytest.fixture
async def world(coordinator_url: str) -> AsyncIterator[World]:
    pool = await kept_pool(coordinator_url, max_size=4)
    passwords, ids = Passwords(memory_kib=8, time_cost=1), IdSource()
    sign_in = SignIn(pool=pool, passwords=passwords, ids=ids)
    check = PeopleCheck(pool=pool, credentials=Credentials(sign_in=sign_in, clock=FakeClock()))
    yield World(Accounts(pool=pool, passwords=passwords, ids=ids), sign_in, check)
    passwords.close()
    await pool.close()


def allowed(answer: Any) -> bool:
    assert not isinstance(answer, ErrorCode) or answer is ErrorCode.PERMISSION_DENIED
    return not isinstance(answer, ErrorCode)


# Reviewed by hand, not derived from the rules.
EXTERNAL_WORK = {
    f"/toban_proto.v1.ExternalWork/{name}"
    for name in ("Claim", "Heartbeat", "UpdateProgress", "AppendLog", "Complete", "Fail", "AcknowledgeCancel")
}
TRANSCODE = Selector(scope="worker", scope_id="transcode")


async def test_a_token_of_an_external_worker_is_for_external_work_only(world: World) -> None:
    await world.user("bob", ("allow", "admin", EVERYTHING))
    secret = await world.token("bob", "operator", TRANSCODE)
    answers = {method: await world.ask(method, secret=secret) for method in PERSON_RULES}
    assert {method for method, answer in answers.items() if allowed(answer)} == EXTERNAL_WORK
    assert {answer.worker_type for answer in answers.values() if allowed(answer)} == {"transcode"}
    wide = await world.token("bob", "operator")
    assert (await world.ask("/toban_proto.v1.ExternalWork/Claim", secret=wide)).worker_type == ""


@pytest.mark.parametrize(
    "rules",
    [(), (("allow", "viewer", EVERYTHING),), (("allow", "operator", OPS),)],
    ids=["no role", "viewer", "operator for some jobs"],
)
async def test_a_token_of_an_external_worker_does_no_more_than_its_account(world: World, rules: Any) -> None:
    await world.user("bob", *rules)
    secret = await world.token("bob", "operator", TRANSCODE)
    for method in EXTERNAL_WORK:
        assert await world.ask(method, secret=secret) is ErrorCode.PERMISSION_DENIED, method


@pytest.mark.parametrize(
    ("role", "selector", "text"),
    [
        ("operator", Selector(scope="worker"), "worker_type '' is not a name"),
        ("operator", Selector(scope="worker", scope_id="Trans code"), "worker_type 'Trans code' is not a name"),
        ("operator", Selector(scope="worker", scope_id="a", job="mail"), "leave out job and labels"),
        ("operator", Selector(scope="worker", scope_id="a", labels={"team": "ops"}), "leave out job and labels"),
        ("viewer", TRANSCODE, "needs role operator, not viewer"),
        ("admin", TRANSCODE, "needs role operator, not admin"),
    ],
)
async def test_a_token_for_external_work_and_something_else_is_refused(
    world: World, role: str, selector: Selector, text: str
) -> None:
    await world.user("bob", ("allow", "admin", EVERYTHING))
    with pytest.raises(TobanError, match=text) as caught:
        await world.token("bob", role, selector)
    assert caught.value.code is ErrorCode.INVALID_ARGUMENT
