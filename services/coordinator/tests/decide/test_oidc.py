"""What an ID token must say, what groups give, names of new accounts, nonces."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from toban_coordinator.decide.people.oidc import (
    NONCE_LASTS,
    ClaimError,
    Expected,
    Identity,
    account_name,
    identity_of,
    make_nonce,
    nonce_end,
)
from toban_domain.access import Role
from toban_domain.oidc import Grants, check_issuer, granted, parse_grants

NOW = datetime(2026, 11, 23, 12, tzinfo=UTC)
AT = NOW.timestamp()
ISSUER = "https://id.example/realms/a"
EXPECTED = Expected(issuer=ISSUER, client_id="toban", nonce="n-1", groups_claim="groups")
GOOD = {"iss": ISSUER, "aud": "toban", "sub": "s-1", "nonce": "n-1", "iat": AT - 1, "exp": AT + 300}
KEY = b"k" * 32


def test_a_good_token_names_its_subject() -> None:
    claims = {**GOOD, "groups": ["ops", 7, "dev"], "preferred_username": "Ada", "email": "x@y", "name": "Ada L"}
    found = identity_of(claims, EXPECTED, NOW)
    assert found == Identity(
        issuer=ISSUER, subject="s-1", groups=frozenset({"ops", "dev"}), wish="Ada", display_name="Ada L"
    )


@pytest.mark.parametrize(
    "change",
    [
        {"iss": ISSUER + "/"},
        {"iss": None},
        {"aud": "other"},
        {"aud": None},
        {"aud": ["other"]},
        {"aud": ["toban", "other"]},
        {"aud": ["toban", "other"], "azp": "other"},
        {"azp": "other"},
        {"nonce": "n-2"},
        {"nonce": None},
        {"nonce": "\ud800"},
        {"nonce": ["n-1"]},
        {"sub": ""},
        {"sub": None},
        {"sub": 5},
        {"sub": "a\n"},
        {"sub": "x" * 256},
        {"exp": AT - 31},
        {"exp": None},
        {"exp": str(AT + 300)},
        {"exp": True},
        {"exp": float("nan")},
        {"exp": float("inf")},
        {"exp": 10**400},
        {"iat": AT + 31},
        {"iat": None},
        {"iat": AT - 700},
        {"nbf": AT + 31},
    ],
)
def test_a_token_of_something_else_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(ClaimError):
        identity_of({**GOOD, **change}, EXPECTED, NOW)


@pytest.mark.parametrize(
    "change",
    [{"aud": ["toban"]}, {"aud": ["toban", "b"], "azp": "toban"}, {"azp": "toban"}, {"exp": AT - 29}, {"iat": AT + 29}],
)
def test_what_a_provider_may_also_write(change: dict[str, Any]) -> None:
    assert identity_of({**GOOD, **change}, EXPECTED, NOW).subject == "s-1"


def test_groups_count_by_their_exact_names() -> None:
    mapping = {"CN=ops,OU=x": parse_grants("operator group:ops"), "dev": parse_grants("viewer")}
    assert granted(frozenset({"CN=ops,OU=x", "dev", "DEV"}), mapping) == Grants(
        frozenset({Role.OPERATOR, Role.VIEWER}), frozenset({"ops"})
    )
    assert not granted(frozenset({"Dev", "dev ", "de"}), mapping)


@pytest.mark.parametrize("text", ["", "root", "group:", "group:UPPER", "admin,viewer"])
def test_a_mapping_to_nothing_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        parse_grants(text)


@pytest.mark.parametrize(
    ("wish", "name"), [("Ada.Lovelace", "ada.lovelace"), ("CORP\\ada", "corp-ada"), ("x" * 80, "x" * 64)]
)
def test_a_new_account_has_the_name_of_the_provider(wish: str, name: str) -> None:
    assert account_name(Identity(issuer=ISSUER, subject="s", wish=wish), taken=False) == name


@pytest.mark.parametrize(
    ("wish", "taken", "begin"), [("ada", True, "ada-"), ("", False, "user-"), ("...", False, "user-")]
)
def test_a_name_that_is_taken_or_missing_gets_a_mark(wish: str, taken: bool, begin: str) -> None:
    first, second = (
        account_name(Identity(issuer=ISSUER, subject=subject, wish=wish), taken=taken) for subject in ("s", "t")
    )
    assert first.startswith(begin) and first != second and len(first) <= 64


def test_a_nonce_is_good_for_ten_minutes_where_the_key_is() -> None:
    nonce = make_nonce(KEY, NOW, "ab" * 16)
    assert nonce_end(KEY, nonce, NOW + NONCE_LASTS - timedelta(seconds=1)) == NOW + NONCE_LASTS
    for key, given, now in (
        (KEY, nonce, NOW + NONCE_LASTS),
        (KEY, nonce, NOW - timedelta(seconds=31)),
        (b"x" * 32, nonce, NOW),
        (KEY, nonce[:-1] + "0", NOW) if nonce[-1] != "0" else (KEY, nonce[:-1] + "1", NOW),
        (KEY, f"9{nonce}", NOW),
        (KEY, "", NOW),
        (KEY, "ü.ü.ü", NOW),
    ):
        with pytest.raises(ClaimError):
            nonce_end(key, given, now)


@pytest.mark.parametrize(
    "url", ["http://id.example", "ftp://id.example", "id.example", "https://a/?b", "https://a/#b", "https://u@a"]
)
def test_an_issuer_is_https_and_bare(url: str) -> None:
    with pytest.raises(ValueError):
        check_issuer(url)


def test_a_provider_on_this_machine_may_be_without_tls() -> None:
    check_issuer("http://127.0.0.1:9000/realm")
    check_issuer("https://id.example/realm")
