"""Signing in to the real site: with a password, with a token, again, and out."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from toban_cli.contexts import ContextFile
from toban_domain.errors import ErrorCode, TobanError
from toban_proto.v1 import coordinator_pb2 as pb

Toban = Callable[..., tuple[int, str, str]]
GIVEN = "toban_pat_" + "0" * 64
MADE = "toban_pat_" + "1" * 64
PASSWORD = "correct horse battery"
SESSION = "5e" * 32


@pytest.fixture
def site(cluster: Any, site_before: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[str]:
    """The address of a site where ada has a password; commands have no setting but an own folder for contexts."""
    for name in ("TOBAN_COORDINATORS", "TOBAN_LOG_ARCHIVERS", "TOBAN_TLS_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    cluster.accounts.people[MADE] = pb.AuthenticateResponse(user="ada", role="editor")
    cluster.accounts.password = ("ada", PASSWORD, pb.AuthenticateResponse(user="ada", role="editor", session=SESSION))
    cluster.accounts.answers |= {
        "CreateOwnToken": pb.CreateTokenResponse(id=9, secret=MADE),
        "ListOwnSessions": pb.ListOwnSessionsResponse(
            sessions=[pb.UserSession(id=3), pb.UserSession(id=4, current=True)]
        ),
        "EndOwnSession": pb.AccountsChange(),
        "RevokeOwnToken": pb.AccountsChange(),
    }
    with site_before(cluster) as url:
        yield url


@pytest.fixture
def types(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Puts lines on standard input."""
    return lambda *lines: monkeypatch.setattr("sys.stdin", io.StringIO("".join(f"{line}\n" for line in lines)))


def stored(tmp_path: Path) -> Any:
    return ContextFile({"XDG_CONFIG_HOME": str(tmp_path / "config")}).load()


def asked(cluster: Any, kind: Any) -> list[Any]:
    return [request for request in cluster.accounts.requests if isinstance(request, kind)]


def test_a_password_makes_an_own_token_and_leaves_no_session(
    site: str, cluster: Any, toban: Toban, types: Any, tmp_path: Path
) -> None:
    types("ada", PASSWORD)
    code, out, err = toban("login", site, "--context", "prod", "--days", "30")
    assert code == 0, err
    assert f"ada is signed in to {site} as editor, by token 9" in out and MADE not in out + err
    known = stored(tmp_path)
    assert known.current == "prod" and (known.named["prod"].token, known.named["prod"].token_id) == (MADE, 9)
    [made] = asked(cluster, pb.CreateOwnTokenRequest)
    assert made.name.startswith("toban login on ") and (made.role, made.days) == ("editor", 30)
    assert [request.id for request in asked(cluster, pb.EndOwnSessionRequest)] == [4]
    # Later commands use it.
    cluster.reader.answers["ListRuns"] = pb.ListRunsResponse(runs=[pb.Run(id=5)])
    assert toban("run", "list", "-o", "name") == (0, "5\n", "")
    assert toban("user", "whoami", "-o", "name")[1] == "ada\n"


def test_a_second_sign_in_needs_no_address_and_ends_the_token_of_before(
    site: str, cluster: Any, toban: Toban, types: Any, tmp_path: Path
) -> None:
    types("ada", PASSWORD)
    assert toban("login", site)[0] == 0
    cluster.accounts.answers["CreateOwnToken"] = pb.CreateTokenResponse(id=10, secret=MADE)
    types(PASSWORD)
    code, _, err = toban("login")
    assert code == 0, err
    assert [request.id for request in asked(cluster, pb.RevokeTokenRequest)] == [9]
    [(name, context)] = stored(tmp_path).named.items()
    assert name == site.removeprefix("http://").replace(":", "-") and context.token_id == 10


def test_a_token_comes_from_standard_input_or_a_file(site: str, toban: Toban, types: Any, tmp_path: Path) -> None:
    types(GIVEN)
    code, out, err = toban("login", site, "--context", "a", "--token", "-")
    assert code == 0 and "ada is signed in" in out and GIVEN not in out + err
    (tmp_path / "token").write_text(f"{GIVEN}\n")
    assert toban("login", site, "--context", "b", "--token-file", str(tmp_path / "token"))[0] == 0
    known = stored(tmp_path)
    assert known.current == "b" and known.named["a"] == known.named["b"] and known.named["a"].token_id == 0


def test_signing_out_revokes_the_own_token_and_keeps_the_address(
    site: str, cluster: Any, toban: Toban, types: Any, tmp_path: Path
) -> None:
    types("ada", PASSWORD)
    assert toban("login", site, "--context", "prod")[0] == 0
    assert toban("logout")[0] == 0
    assert [request.id for request in asked(cluster, pb.RevokeTokenRequest)] == [9]
    context = stored(tmp_path).named["prod"]
    assert (context.token, context.url, context.user) == ("", site, "ada")
    assert "toban login --context prod" in toban("run", "list")[2]


def test_a_token_that_was_given_is_only_forgotten(
    site: str, cluster: Any, toban: Toban, types: Any, tmp_path: Path
) -> None:
    types(GIVEN)
    assert toban("login", site, "--context", "prod", "--token", "-")[0] == 0
    code, _, err = toban("logout", "--context", "prod")
    assert code == 0 and "stays good" in err and not asked(cluster, pb.RevokeTokenRequest)
    assert stored(tmp_path).named["prod"].token == ""


def test_a_token_that_cannot_be_revoked_is_named(
    site: str, cluster: Any, toban: Toban, types: Any, tmp_path: Path
) -> None:
    types("ada", PASSWORD)
    assert toban("login", site, "--context", "prod")[0] == 0
    cluster.accounts.answers["RevokeOwnToken"] = TobanError(ErrorCode.UNAVAILABLE, "no leader")
    code, _, err = toban("logout")
    assert (
        code == 0
        and "token 9 is not revoked (" in err
        and "no leader" in err
        and stored(tmp_path).named["prod"].token == ""
    )


def test_a_token_in_the_arguments_is_refused_and_not_repeated(site: str, toban: Toban, tmp_path: Path) -> None:
    code, out, err = toban("login", site, "--token", GIVEN)
    assert code == 64 and "takes only -" in err and GIVEN not in out + err and not stored(tmp_path).named


@pytest.mark.parametrize(
    ("lines", "argv", "code", "message"),
    [
        (("ada", "wrong"), (), 77, "user or password is wrong"),
        (("ada",), (), 65, "has no line for: Password"),
        (("hunter2",), ("--token", "-"), 65, "is no API token"),
        (("toban_pat_" + "9" * 64,), ("--token", "-"), 77, "`toban login` makes a new token"),
        ((), ("--token-file", "/nowhere"), 65, "--token-file /nowhere cannot be read"),
        ((), ("--token", "-", "--token-file", "/x"), 64, "exclude each other"),
        ((), ("--context", "a b"), 65, "is no name of a context"),
        ((), ("--ca-file", "/nowhere.pem"), 65, "has no line for: User"),
    ],
)
def test_a_sign_in_that_fails_stores_nothing(
    site: str, toban: Toban, types: Any, tmp_path: Path, lines: tuple[str, ...], argv: tuple[str, ...], code: int, message: str
) -> None:  # fmt: skip
    types(*lines)
    found, out, err = toban("login", site, *argv)
    assert found == code and message in err and "hunter2" not in out + err
    assert not stored(tmp_path).named


def test_a_person_without_a_role_gets_no_token(site: str, cluster: Any, toban: Toban, types: Any) -> None:
    cluster.accounts.password = ("ada", PASSWORD, pb.AuthenticateResponse(user="ada", session=SESSION))
    types("ada", PASSWORD)
    code, _, err = toban("login", site)
    assert code == 77 and "ada has no role yet" in err and not asked(cluster, pb.CreateOwnTokenRequest)


def test_too_many_wrong_passwords_name_the_wait(site: str, cluster: Any, toban: Toban, types: Any) -> None:
    cluster.accounts.refusal = TobanError(ErrorCode.RESOURCE_EXHAUSTED, "too many", detail={"retry_after_seconds": 30})
    types("ada", PASSWORD)
    code, _, err = toban("login", site)
    assert code == 75 and "wait 30 s" in err


@pytest.mark.parametrize(
    ("argv", "code", "message"),
    [
        (("login",), 65, "`toban login URL`"),
        (("login", "--context", "prod"), 66, "there is no context 'prod'"),
        (("login", "http://toban.example.com"), 78, "plain HTTP"),
        (("logout",), 66, "there is no current context"),
        (("logout", "--context", "prod"), 66, "there is no context 'prod'"),
    ],
)
def test_nothing_to_sign_in_to(
    toban: Toban, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, argv: tuple[str, ...], code: int, message: str
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    found, _, err = toban(*argv)
    assert found == code and message in err


def test_a_variable_that_counts_before_the_context_is_named(
    site: str, toban: Toban, types: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOBAN_COORDINATORS", "a:1")
    types(GIVEN)
    code, _, err = toban("login", site, "--token", "-")
    assert code == 0 and "TOBAN_COORDINATORS is set, and counts before" in err
