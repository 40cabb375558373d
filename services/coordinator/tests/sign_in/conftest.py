"""A coordinator's use cases of signing in, with an OpenID provider on loopback and a real PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from toban_coordinator.adapters.oidc_provider import HttpsOidcProvider
from toban_coordinator.app.people.accounts import Accounts
from toban_coordinator.app.people.oidc_sign_in import OidcRules, OidcSignIn
from toban_coordinator.app.people.passwords import Passwords
from toban_coordinator.app.people.sign_in import SignIn
from toban_domain.errors import ErrorCode, TobanError
from toban_domain.oidc import parse_grants
from toban_runtime.ids import IdSource
from toban_runtime.json_http import JsonHttp
from toban_store.pool import Pool
from toban_testing.clock import FakeClock
from toban_testing.oidc_provider import Provider

PASSWORD = "correct horse battery"
HERE = "192.0.2.1"
CLI = "certificate admin-cli"
GRANTS = {"admins": parse_grants("admin"), "devs": parse_grants("operator group:devs"), "all": parse_grants("viewer")}


@pytest.fixture
def provider() -> Iterator[Provider]:
    made = Provider()
    made.start()
    yield made
    made.stop()


class World:
    """One coordinator's use cases, with a provider."""

    def __init__(self, pool: Pool, provider: Provider, passwords: Passwords, **rules: Any) -> None:
        self.pool, self.provider, self.clock = pool, provider, FakeClock()
        self.rules = OidcRules(
            **{"issuer": provider.issuer, "client_id": "toban", "name": "Example", "grants": GRANTS, **rules}
        )
        keys = HttpsOidcProvider(issuer=provider.issuer, http=JsonHttp(), clock=self.clock)
        self.oidc = OidcSignIn(pool=pool, ids=IdSource(), rules=self.rules, provider=keys)
        self.accounts = Accounts(pool=pool, passwords=passwords, ids=IdSource())
        self.sign_in = SignIn(pool=pool, passwords=passwords, ids=IdSource())

    async def nonce(self) -> str:
        return (await self.oidc.start()).nonce

    async def enter(self, *, groups: list[str] | None = None, **claims: Any) -> Any:
        """A sign-in; `claims` of the token are replaced."""
        nonce = await self.nonce()
        if groups is not None:
            claims["groups"] = groups
        return await self.oidc.finish(self.provider.token(**{"nonce": nonce, **claims}), nonce, address=HERE)

    async def refused(self, token: str, nonce: str, code: ErrorCode = ErrorCode.UNAUTHENTICATED) -> str:
        with pytest.raises(TobanError) as caught:
            await self.oidc.finish(token, nonce, address=HERE)
        assert caught.value.code is code, caught.value
        return caught.value.message


@pytest.fixture
def passwords() -> Iterator[Passwords]:
    made = Passwords(memory_kib=8, time_cost=1)
    yield made
    made.close()


@pytest.fixture
async def world(pool: Pool, provider: Provider, passwords: Passwords) -> World:
    """With the first administrator, root, who has a password; accounts are made at the first sign-in."""
    made = World(pool, provider, passwords, creates_accounts=True)
    secret, _ = await made.accounts.bootstrap_link(CLI)
    await made.accounts.redeem_link(secret, user="root", password=PASSWORD, address=HERE)
    return made
