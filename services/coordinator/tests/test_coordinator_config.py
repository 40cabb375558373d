"""The variables of an OpenID provider: what they mean, and the line for each mistake."""

from __future__ import annotations

import os

import pytest

from toban_coordinator.config import CoordinatorConfig
from toban_domain.oidc import parse_grants
from toban_runtime.config import ConfigError, read

STORES = {"DATABASE_URL": "postgresql://toban:k1DF8s@db/toban", "REDIS_URL": "redis://a"}
GOOD = {"OIDC_ISSUER": "https://id.example.com/realms/a", "OIDC_CLIENT_ID": "toban"}


@pytest.fixture(autouse=True)
def bare(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("SCHEDULER_")]:
        monkeypatch.delenv(name)


def configured(monkeypatch: pytest.MonkeyPatch, **given: str) -> CoordinatorConfig:
    for name, value in {**STORES, **given}.items():
        monkeypatch.setenv(f"SCHEDULER_{name}", value)
    return read(CoordinatorConfig)


def test_groups_come_as_json(monkeypatch: pytest.MonkeyPatch) -> None:
    text = '{"CN=ops,OU=staff": "operator group:ops", "admins": "admin"}'
    made = configured(monkeypatch, **GOOD, OIDC_GROUPS=text, OIDC_CREATE_ACCOUNTS="true", OIDC_SESSION_MINUTES="60")
    assert made.oidc_groups == {
        "CN=ops,OU=staff": parse_grants("operator group:ops"),
        "admins": parse_grants("admin"),
    }
    assert (made.oidc_shown, made.oidc_create_accounts, made.oidc_session_minutes) == ("id.example.com", True, 60)


def test_without_a_provider_nothing_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    made = configured(monkeypatch)
    assert (made.oidc_issuer, made.password_sign_in) == ("", True)


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"OIDC_ISSUER": GOOD["OIDC_ISSUER"]}, "SCHEDULER_OIDC_CLIENT_ID: not set"),
        ({"OIDC_CLIENT_ID": "toban"}, "SCHEDULER_OIDC_ISSUER: not set"),
        (
            {**GOOD, "OIDC_ISSUER": "http://id.example.com"},
            "SCHEDULER_OIDC_ISSUER: http://id.example.com/ is not https",
        ),
        ({**GOOD, "OIDC_ISSUER": "id.example.com"}, "SCHEDULER_OIDC_ISSUER: "),
        ({**GOOD, "OIDC_ISSUER": "https://id.example.com?x=1"}, "SCHEDULER_OIDC_ISSUER: has a query"),
        ({**GOOD, "OIDC_GROUPS": "admins=admin"}, "SCHEDULER_OIDC_GROUPS: is not JSON"),
        ({**GOOD, "OIDC_GROUPS": '["admins"]'}, "SCHEDULER_OIDC_GROUPS: is not a JSON object"),
        ({**GOOD, "OIDC_GROUPS": '{"admins": "root"}'}, "SCHEDULER_OIDC_GROUPS: 'root' is neither"),
        ({**GOOD, "OIDC_SCOPE": "profile"}, "SCHEDULER_OIDC_SCOPE: lacks openid"),
        ({**GOOD, "OIDC_CA_FILE": "/nowhere/ca.pem"}, "SCHEDULER_OIDC_CA_FILE: /nowhere/ca.pem"),
        ({**GOOD, "OIDC_SESSION_MINUTES": "4"}, "SCHEDULER_OIDC_SESSION_MINUTES: "),
        ({"PASSWORD_SIGN_IN": "false"}, "SCHEDULER_PASSWORD_SIGN_IN: false without an OpenID provider"),
    ],
)
def test_a_mistake_is_one_line(monkeypatch: pytest.MonkeyPatch, given: dict[str, str], text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        configured(monkeypatch, **given)
    assert caught.value.message.startswith(text) and "\n" not in caught.value.message
