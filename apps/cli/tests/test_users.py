"""`toban user` and `toban token`: requests, output, exit codes, and secrets that never stand in argv."""

from __future__ import annotations

import io
from typing import Any

import pytest

from toban_domain.errors import ErrorCode, TobanError
from toban_proto.v1 import coordinator_pb2 as pb

CHANGED = pb.AccountsChange()


@pytest.fixture
def accounts(cluster: Any) -> Any:
    return cluster.accounts


def test_a_verdict_is_printed_and_is_the_exit_code(accounts: Any, toban: Any) -> None:
    accounts.answers["May"] = pb.MayResponse(allowed=True, reason="rule 3 of user bob: allow operator for everything")
    code, out, _ = toban("user", "may", "bob", "run", "backup", "--scope", "account:17")
    assert (code, out) == (0, "yes: rule 3 of user bob: allow operator for everything\n")
    [asked] = accounts.requests
    assert (asked.user, asked.action, asked.job, asked.scope, asked.scope_id) == (
        "bob",
        "run",
        "backup",
        "account",
        "17",
    )
    accounts.answers["May"] = pb.MayResponse(allowed=False, reason="no rule gives bob admin for this")
    assert toban("user", "may", "bob", "operate")[:2] == (1, "no: no rule gives bob admin for this\n")
    code, out, _ = toban("user", "may", "bob", "operate", "-o", "json")
    assert code == 1 and '"reason": "no rule gives bob admin for this"' in out


def test_rules_of_users_and_groups(accounts: Any, toban: Any) -> None:
    accounts.answers["AddRule"] = pb.AddRuleResponse(id=12)
    code, out, _ = toban("user", "grant", "ops", "editor", "--group", "--label", "team=ops", "--reason", "on call")
    assert (code, out) == (0, "rule 12: allow editor for team=ops\n")
    rule = accounts.requests[-1].rule
    assert (rule.group, rule.user, rule.effect, dict(rule.selector.labels)) == ("ops", "", "allow", {"team": "ops"})
    assert toban("user", "deny", "bob", "operator", "--job", "pay", "-o", "name")[:2] == (0, "12\n")
    assert accounts.requests[-1].rule.effect == "deny" and accounts.requests[-1].rule.user == "bob"
    assert toban("user", "grant", "bob", "viewer", "--label", "team")[0] == 64
    refusal = TobanError(ErrorCode.RESOURCE_INVALID_STATE, "this would leave no enabled account")
    accounts.answers["RemoveRule"] = refusal
    assert toban("user", "revoke", "12") == (74, "", "error: this would leave no enabled account\n")


def test_passwords_come_from_standard_input(accounts: Any, toban: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    accounts.answers["AddUser"] = accounts.answers["UpdateUser"] = CHANGED
    accounts.answers["RedeemBootstrapLink"] = pb.RedeemBootstrapLinkResponse()
    monkeypatch.setattr("sys.stdin", io.StringIO("correct horse battery\n"))
    assert toban("user", "add", "bob", "--password")[0] == 0
    assert accounts.requests[-1].password == "correct horse battery"
    monkeypatch.setattr("sys.stdin", io.StringIO("the secret\ncorrect horse battery\n"))
    assert toban("user", "first", "ada")[:2] == (0, "ada is the first administrator\n")
    assert (accounts.requests[-1].secret, accounts.requests[-1].password) == ("the secret", "correct horse battery")
    monkeypatch.setattr("sys.stdin", io.StringIO(""))
    assert toban("user", "password", "bob") == (65, "", "error: standard input has no line for: Password\n")
    assert toban("user", "disable", "bob", "--reason", "left")[0] == 0
    assert accounts.requests[-1].HasField("enabled") and not accounts.requests[-1].HasField("password")


def test_groups(accounts: Any, toban: Any) -> None:
    accounts.answers["UpdateGroup"] = CHANGED
    assert toban("user", "group", "join", "ops", "bob")[:2] == (0, "group ops: join bob\n")
    assert toban("user", "group", "join", "ops")[0] == 64 and toban("user", "group", "add", "ops", "bob")[0] == 64


def test_a_token_is_the_first_line_and_its_name(accounts: Any, toban: Any) -> None:
    accounts.answers["CreateToken"] = pb.CreateTokenResponse(
        id=7, secret="toban_pat_abc", ends_at={"seconds": 2_000_000_000}
    )
    code, out, _ = toban("token", "add", "bob", "ci", "--role", "operator", "--job", "deploy")
    assert code == 0 and out.splitlines()[0] == "toban_pat_abc" and "not shown again" in out
    assert toban("token", "add", "bob", "ci", "-o", "name")[:2] == (0, "toban_pat_abc\n")
    accounts.answers["ListTokens"] = pb.ListTokensResponse(
        tokens=[pb.ApiToken(id=7, user="bob", name="ci", revoked=True)]
    )
    assert "revoked" in toban("token", "list")[1]
    accounts.answers["ListUsers"] = pb.ListUsersResponse(
        users=[pb.User(name="bob", role="editor", enabled=True, groups=["ops"])]
    )
    assert "editor" in toban("user", "list")[1]


@pytest.mark.parametrize("own", [False, True])
def test_a_token_for_external_work(accounts: Any, toban: Any, own: bool) -> None:
    made = pb.CreateTokenResponse(id=7, secret="toban_pat_abc", ends_at={"seconds": 2_000_000_000})
    accounts.answers |= {"CreateToken": made, "CreateOwnToken": made}
    command = ("token", "add-own", "gpu") if own else ("token", "add", "bob", "gpu")
    code, out, _ = toban(*command, "--scope", "worker:transcode")
    assert code == 0 and "operator for worker:transcode" in out
    asked = accounts.requests[-1]
    assert (asked.role, asked.selector.scope, asked.selector.scope_id) == ("operator", "worker", "transcode")
    assert toban(*command)[0] == 0 and accounts.requests[-1].role == "viewer"
    assert toban(*command, "--role", "editor", "--scope", "worker:transcode")[0] == 0
    assert accounts.requests[-1].role == "editor", "a role that does not fit is refused, not replaced"
    listed = pb.ApiToken(id=7, user="bob", name="gpu", role="operator", selector=asked.selector)
    accounts.answers["ListTokens"] = pb.ListTokensResponse(tokens=[listed])
    assert "worker:transcode" in toban("token", "list")[1]


def test_the_own_password_comes_from_standard_input(accounts: Any, toban: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    accounts.answers["ChangeOwnPassword"] = pb.SignOutResponse(ended=2)
    monkeypatch.setattr("sys.stdin", io.StringIO("correct horse battery\nanother horse battery\n"))
    assert toban("user", "passwd")[:2] == (0, "the password is changed; 2 sessions ended\n")
    [asked] = accounts.requests
    assert (asked.current, asked.password) == ("correct horse battery", "another horse battery")
    accounts.answers["ChangeOwnPassword"] = TobanError(ErrorCode.UNAUTHENTICATED, "the present password is wrong")
    monkeypatch.setattr("sys.stdin", io.StringIO("wrong\nanother horse battery\n"))
    assert toban("user", "passwd") == (77, "", "error: the present password is wrong\n")


def test_own_sessions(accounts: Any, toban: Any) -> None:
    session = pb.UserSession(id=31, address="192.0.2.1", user_agent="Firefox", ends_at={"seconds": 2_000_000_000})
    accounts.answers["ListOwnSessions"] = pb.ListOwnSessionsResponse(sessions=[session])
    code, out, _ = toban("user", "sessions")
    assert code == 0 and "31" in out and "192.0.2.1" in out and "Firefox" in out
    accounts.answers["EndOwnSession"] = CHANGED
    assert toban("user", "end-session", "31")[:2] == (0, "session 31 ended\n")
    assert accounts.requests[-1].id == 31


def test_own_tokens(accounts: Any, toban: Any) -> None:
    made = pb.CreateTokenResponse(id=7, secret="toban_pat_abc", ends_at={"seconds": 2_000_000_000})
    accounts.answers["CreateOwnToken"] = made
    code, out, _ = toban("token", "add-own", "ci", "--role", "operator", "--job", "deploy", "--days", "30")
    assert code == 0 and out.splitlines()[0] == "toban_pat_abc" and "token 7: operator for job deploy" in out
    asked = accounts.requests[-1]
    assert (asked.name, asked.role, asked.selector.job, asked.days) == ("ci", "operator", "deploy", 30)
    accounts.answers["ListOwnTokens"] = pb.ListTokensResponse(tokens=[pb.ApiToken(id=7, user="bob", name="ci")])
    assert toban("token", "own", "-o", "name")[:2] == (0, "7\n")
    accounts.answers["RevokeOwnToken"] = CHANGED
    assert toban("token", "revoke-own", "7", "--reason", "lost")[:2] == (0, "token 7 revoked\n")
    assert (accounts.requests[-1].id, accounts.requests[-1].reason) == (7, "lost")


def test_links_to_an_openid_provider(accounts: Any, toban: Any) -> None:
    accounts.answers["LinkUser"] = accounts.answers["UnlinkUser"] = CHANGED
    words = ("user", "link", "bob", "--subject", "s-1", "--issuer", "https://id.example", "--reason", "joined")
    assert toban(*words)[:2] == (0, "user bob is linked to subject s-1\n")
    asked = accounts.requests[-1]
    assert (asked.name, asked.subject, asked.issuer, asked.reason) == ("bob", "s-1", "https://id.example", "joined")
    assert toban("user", "link", "bob")[0] == 64
    assert toban("user", "unlink", "bob", "-o", "name")[:2] == (0, "bob\n")
    assert (accounts.requests[-1].name, accounts.requests[-1].issuer) == ("bob", "")
    identity = pb.UserIdentity(issuer="https://id.example", subject="s-1")
    accounts.answers["ListUsers"] = pb.ListUsersResponse(users=[pb.User(name="bob", identities=[identity])])
    assert "s-1 of https://id.example" in toban("user", "list", "-o", "wide")[1]
