"""The gRPC service of accounts over the real use cases: translation, refusals, and what is written to the audit log."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from toban_coordinator.adapters.oidc_provider import HttpsOidcProvider
from toban_coordinator.app.cluster.audit_log import list_audit
from toban_coordinator.app.people.accounts import Accounts
from toban_coordinator.app.people.credentials import Credentials
from toban_coordinator.app.people.oidc_sign_in import OidcRules, OidcSignIn
from toban_coordinator.app.people.own_account import OwnAccount
from toban_coordinator.app.people.passwords import Passwords
from toban_coordinator.app.people.sign_in import SignIn
from toban_coordinator.server.accounts import AccountsDeps, AccountsService
from toban_domain.errors import ErrorCode, TobanError
from toban_proto.v1 import coordinator_pb2 as pb
from toban_runtime.clock import SystemClock
from toban_runtime.ids import IdSource
from toban_runtime.json_http import JsonHttp
from toban_store.pool import Pool

PASSWORD = "correct horse battery"


class Caller:
    """The context of a call by admin-cli."""

    def auth_context(self) -> dict[str, list[bytes]]:
        """As gRPC gives it."""
        return {"peer_spiffe_id": [b"spiffe://toban.internal/admin-cli"]}


CLI = Caller()


@pytest.fixture
async def service(pool: Pool) -> AsyncIterator[AccountsService]:
    passwords = Passwords(memory_kib=8, time_cost=1)
    accounts = Accounts(pool=pool, passwords=passwords, ids=IdSource())
    sign_in = SignIn(pool=pool, passwords=passwords, ids=IdSource())
    credentials = Credentials(sign_in=sign_in, clock=SystemClock())
    own = OwnAccount(pool=pool, passwords=passwords, sign_in=sign_in)
    oidc = OidcSignIn(pool=pool, ids=IdSource())
    made = AccountsService(
        deps=AccountsDeps(accounts=accounts, sign_in=sign_in, oidc=oidc, own=own, credentials=credentials)
    )
    link = await made.CreateBootstrapLink(pb.CreateBootstrapLinkRequest(), CLI)
    await made.RedeemBootstrapLink(
        pb.RedeemBootstrapLinkRequest(secret=link.secret, user="root", password=PASSWORD), CLI
    )
    yield made
    passwords.close()


async def refused(work: Any, text: str) -> ErrorCode:
    with pytest.raises(TobanError, match=text) as caught:
        await work
    return caught.value.code


async def test_from_an_account_to_a_verdict(service: AccountsService, pool: Pool) -> None:
    assert (await service.GetAccountsState(pb.GetAccountsStateRequest(), CLI)).has_administrator
    await service.AddUser(pb.AddUserRequest(name="bob", display_name="Bob", password=PASSWORD, reason="new"), CLI)
    await service.UpdateGroup(pb.UpdateGroupRequest(name="ops", change="add"), CLI)
    await service.UpdateGroup(pb.UpdateGroupRequest(name="ops", change="join", user="bob"), CLI)
    selector = pb.AccessSelector(scope="account", scope_id="17")
    rule = pb.AccessRule(group="ops", effect="allow", role="editor", selector=selector)
    number = (await service.AddRule(pb.AddRuleRequest(rule=rule), CLI)).id
    [listed] = (await service.ListRules(pb.ListRulesRequest(group="ops"), CLI)).rules
    assert (listed.id, listed.selector.scope_id, listed.created_by) == (number, "17", "certificate admin-cli")
    may = await service.May(pb.MayRequest(user="bob", action="operate"), CLI)
    assert not may.allowed and may.reason == "no rule gives bob admin for this"
    users = (await service.ListUsers(pb.ListUsersRequest(), CLI)).users
    assert [(one.name, one.role, list(one.groups)) for one in users] == [
        ("bob", "editor", ["ops"]),
        ("root", "admin", []),
    ]
    [group] = (await service.ListGroups(pb.ListGroupsRequest(), CLI)).groups
    assert list(group.members) == ["bob"]
    await service.RemoveRule(pb.RemoveRuleRequest(id=number), CLI)
    await service.DeleteUser(pb.DeleteUserRequest(name="bob", reason="left"), CLI)
    rows = (await list_audit(pool)).rows
    assert [row["action"] for row in rows[:2]] == ["delete_user", "remove_rule"]
    assert rows[0]["reason"] == "left" and PASSWORD not in str([dict(row) for row in rows])


async def test_sessions_and_tokens(service: AccountsService) -> None:
    given = pb.AuthenticateRequest(user="root", password=PASSWORD, address="192.0.2.1")
    session = (await service.Authenticate(given, CLI)).session
    who = await service.Authenticate(pb.AuthenticateRequest(session=session), CLI)
    assert (who.user, who.role, who.session) == ("root", "admin", "")
    assert [(one.effect, one.role, one.selector.job) for one in who.rules] == [("allow", "admin", "")]
    made = await service.CreateToken(pb.CreateTokenRequest(user="root", name="ci", role="viewer", days=1), CLI)
    by_token = await service.Authenticate(pb.AuthenticateRequest(token=made.secret), CLI)
    assert by_token.role == "viewer" and not by_token.rules, "a token narrows them"
    [token] = (await service.ListTokens(pb.ListTokensRequest(), CLI)).tokens
    assert token.HasField("last_used_at") and made.secret not in str(token)
    await service.RevokeToken(pb.RevokeTokenRequest(id=made.id), CLI)
    assert (await service.EndSessions(pb.EndSessionsRequest(user="root"), CLI)).ended == 1
    for request in (pb.AuthenticateRequest(session=session), pb.AuthenticateRequest(token=made.secret)):
        assert await refused(service.Authenticate(request, CLI), "ended|unknown") is ErrorCode.UNAUTHENTICATED
    assert (await service.SignOut(pb.SignOutRequest(session=session, everywhere=True), CLI)).ended == 0


async def test_wrong_requests_name_what_is_right(service: AccountsService) -> None:
    both = pb.AuthenticateRequest(user="root", password=PASSWORD, token="t")
    assert await refused(service.Authenticate(both, CLI), "exactly one") is ErrorCode.INVALID_ARGUMENT
    rule = pb.AccessRule(user="root", effect="allow", role="boss")
    await refused(service.AddRule(pb.AddRuleRequest(rule=rule), CLI), "viewer, operator, editor, admin")
    rule = pb.AccessRule(user="root", group="ops", effect="allow", role="viewer")
    await refused(service.AddRule(pb.AddRuleRequest(rule=rule), CLI), "name one of them")
    rule = pb.AccessRule(user="root", effect="allow", role="viewer", selector=pb.AccessSelector(scope_id="1"))
    await refused(service.AddRule(pb.AddRuleRequest(rule=rule), CLI), "before its scope_id")
    await refused(service.May(pb.MayRequest(user="root", action="fly"), CLI), "view, run, cancel")
    await refused(service.UpdateGroup(pb.UpdateGroupRequest(name="x", change="drop"), CLI), "add, delete, join, leave")
    wrong = pb.UpdateGroupRequest(name="none", change="join", user="root")
    assert await refused(service.UpdateGroup(wrong, CLI), "no group") is ErrorCode.NOT_FOUND
    last = pb.UpdateUserRequest(name="root", enabled=False)
    assert await refused(service.UpdateUser(last, CLI), "no enabled account") is ErrorCode.RESOURCE_INVALID_STATE


async def test_the_calls_of_one_page_read_its_session_once(service: AccountsService) -> None:
    made = await service.Authenticate(pb.AuthenticateRequest(user="root", password=PASSWORD), CLI)
    asked = await service.Authenticate(pb.AuthenticateRequest(session=made.session), CLI)
    credentials = service._credentials
    credentials._sign_in = None  # type: ignore[assignment]
    assert (await credentials.person(made.session, address="")).name == asked.user == "root"


async def test_an_account_is_linked_to_the_provider_of_the_configuration_only(
    pool: Pool, service: AccountsService
) -> None:
    async def link(issuer: str) -> Any:
        return await service.LinkUser(pb.LinkUserRequest(name="root", issuer=issuer, subject="s-1"), CLI)

    for issuer in ("", "https://id.example"):
        assert await refused(link(issuer), "SCHEDULER_OIDC_ISSUER") is ErrorCode.RESOURCE_INVALID_STATE
    rules = OidcRules(issuer="https://id.example", client_id="toban", name="Example")
    http = HttpsOidcProvider(issuer=rules.issuer, http=JsonHttp(), clock=SystemClock())
    service._oidc = OidcSignIn(pool=pool, ids=IdSource(), rules=rules, provider=http)
    assert await refused(link("https://old.example"), "leave --issuer out") is ErrorCode.INVALID_ARGUMENT
    await link("https://id.example")
    found = await service.ListUsers(pb.ListUsersRequest(), CLI)
    assert [one.subject for one in found.users[0].identities] == ["s-1"]
    # Also of a provider that is not configured any more.
    service._oidc = OidcSignIn(pool=pool, ids=IdSource())
    await service.UnlinkUser(pb.UnlinkUserRequest(name="root", issuer="https://id.example"), CLI)
