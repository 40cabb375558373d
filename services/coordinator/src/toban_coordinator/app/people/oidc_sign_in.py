"""Sign-in with an OpenID provider. The site brings the ID token; who it is of is decided here, so that a site cannot name anyone."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from toban_coordinator.app.people.accounts import SECRET_BYTES, hash_secret
from toban_coordinator.app.people.sign_in import SignedIn
from toban_coordinator.app.people.sign_in_throttle import count_failure, require_no_wait
from toban_coordinator.decide.people.oidc import (
    NONCE_LASTS,
    ClaimError,
    Expected,
    Identity,
    OidcThrottle,
    account_name,
    identity_of,
    make_nonce,
    nonce_end,
)
from toban_coordinator.ports.oidc import Endpoints, OidcProvider
from toban_coordinator.store.cluster import audit
from toban_coordinator.store.people import accounts, identities, sessions
from toban_domain.access import can_administer
from toban_domain.client_address import network_of
from toban_domain.errors import ErrorCode, TobanError
from toban_domain.oidc import Grants, granted
from toban_observability import metrics
from toban_observability.logs import get_logger
from toban_runtime.ids import IdSource
from toban_store.pool import Pool
from toban_store.tx import Tx, autocommit, tx

_log = get_logger(__name__)
ACTOR = "OpenID provider"
_FAILURES = frozenset({ErrorCode.UNAUTHENTICATED, ErrorCode.PERMISSION_DENIED})
_results = metrics.counter(
    "toban_oidc_sign_ins_total",
    "Sign-ins with the OpenID provider: ok, refused (the token is not good), unknown (no enabled account for its subject), throttled, "
    "unavailable (the provider does not answer).",
    ("result",),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class OidcRules:
    """What the configuration says about one provider. `grants` by the exact name of a group there."""

    issuer: str
    client_id: str
    name: str
    scope: str = "openid profile email"
    groups_claim: str = "groups"
    grants: Mapping[str, Grants] = field(default_factory=dict)
    creates_accounts: bool = False
    session_lasts: timedelta = timedelta(hours=8)
    passwords: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Started:
    """What the site needs for a sign-in."""

    endpoints: Endpoints
    client_id: str
    scope: str
    nonce: str
    issuer: str


@dataclass(frozen=True, slots=True, kw_only=True)
class OidcSignIn:
    """`rules` and `provider` None: no provider is configured."""

    pool: Pool
    ids: IdSource
    rules: OidcRules | None = None
    provider: OidcProvider | None = None

    async def passwords_off(self) -> bool:
        """Whether passwords are refused: only while an administrator is linked who has signed in with the provider, so that no one is locked out."""
        if self.rules is None or self.rules.passwords:
            return False
        async with autocommit(self.pool) as t:
            linked = await identities.linked(t, self.rules.issuer)
            return any(person.name in linked and can_administer(person) for person in await accounts.people(t))

    async def require_passwords(self) -> None:
        """Raises PERMISSION_DENIED while passwords are refused."""
        if await self.passwords_off():
            assert self.rules is not None
            message = f"passwords are switched off; sign in with {self.rules.name} at the site, programs with an API token made there"
            raise TobanError(ErrorCode.PERMISSION_DENIED, message)

    def linkable_issuer(self, issuer: str) -> str:
        """The issuer of the provider, which alone signs people in. Raises RESOURCE_INVALID_STATE without one, INVALID_ARGUMENT for another."""
        rules, _ = self._configured()
        if issuer not in ("", rules.issuer):
            message = (
                f"the coordinators use the issuer {rules.issuer}, and a link to another one has no effect; leave --issuer out, "
                "or change SCHEDULER_OIDC_ISSUER first"
            )
            raise TobanError(ErrorCode.INVALID_ARGUMENT, message)
        return rules.issuer

    async def start(self) -> Started:
        """A nonce that any coordinator knows again. Raises RESOURCE_INVALID_STATE without a provider, PROVIDER_UNAVAILABLE."""
        rules, provider = self._configured()
        endpoints = await self._endpoints(provider)
        async with autocommit(self.pool) as t:
            key, now = await identities.nonce_key(t)
        nonce = make_nonce(key, now, self.ids.token_hex(16))
        return Started(
            endpoints=endpoints, client_id=rules.client_id, scope=rules.scope, nonce=nonce, issuer=rules.issuer
        )

    async def finish(self, id_token: str, nonce: str, *, address: str, user_agent: str = "") -> SignedIn:
        """A session for the subject of a token, with what its groups give now.

        Raises UNAUTHENTICATED for a token that is not good, PERMISSION_DENIED for a subject without an enabled account, PROVIDER_UNAVAILABLE,
        RESOURCE_EXHAUSTED with `retry_after_seconds`.
        """
        rules, provider = self._configured()
        await self._endpoints(provider)
        throttle = OidcThrottle(network_of(address))
        claims = await self._signed(provider, id_token, throttle.unverified)
        person = throttle.of_person(claims)
        await self._require_no_wait(person)
        try:
            identity, nonce_hash = await self._verified(rules, claims, nonce)
            made = await self._enter(rules, identity, nonce_hash, person, address=address, user_agent=user_agent)
        except TobanError as error:
            if error.code in _FAILURES:
                await self._count(person)
            raise
        _results.labels("ok").inc()
        return made

    async def _signed(self, provider: OidcProvider, id_token: str, key: str) -> Mapping[str, Any]:
        """The claims of a token. Raises UNAUTHENTICATED, PROVIDER_UNAVAILABLE, RESOURCE_EXHAUSTED."""
        await self._require_no_wait(key)
        try:
            return await provider.claims(id_token)
        except TobanError as error:
            refused = error.code is ErrorCode.UNAUTHENTICATED
            _results.labels("refused" if refused else "unavailable").inc()
            if refused:
                _log.warning("an ID token was refused", reason=error.message)
                await self._count(key)
            raise

    async def _require_no_wait(self, key: str) -> None:
        try:
            await require_no_wait(self.pool, key)
        except TobanError as error:
            if error.code is ErrorCode.RESOURCE_EXHAUSTED:
                _results.labels("throttled").inc()
            raise

    async def _count(self, key: str) -> None:
        """After the check, unlike a password: a signature cannot be guessed, and people of one address sign in side by side."""
        with suppress(TobanError):
            await count_failure(self.pool, [key])

    async def _enter(
        self, rules: OidcRules, identity: Identity, nonce_hash: bytes, key: str, *, address: str, user_agent: str
    ) -> SignedIn:
        secret = self.ids.token_hex(SECRET_BYTES)
        async with tx(self.pool) as t:
            await sessions.forget_failures(t, key)
            # Kept until it would be too old, whatever the clocks say.
            _, now = await identities.nonce_key(t)
            if not await identities.use_nonce(t, nonce_hash, ends_at=now + NONCE_LASTS):
                raise _refused("it was used before")
            await accounts.lock(t)
            name = await self._account(t, rules, identity)
            ends_at = await identities.add_session(
                t,
                identity,
                hash_secret(secret),
                address=network_of(address),
                user_agent=user_agent[:200],
                lasts=rules.session_lasts,
            )
            assert ends_at is not None, "changes of accounts wait for the lock"
            after = {"address": network_of(address), "issuer": identity.issuer, "subject": identity.subject}
            await audit.note(t, f"user {name}", "sign_in", "session", after=after)
            [person] = await accounts.people(t, name)
        return SignedIn(person, secret, ends_at)

    def _configured(self) -> tuple[OidcRules, OidcProvider]:
        if self.rules is None or self.provider is None:
            message = "no OpenID provider is configured; set SCHEDULER_OIDC_ISSUER and SCHEDULER_OIDC_CLIENT_ID of the coordinators"
            raise TobanError(ErrorCode.RESOURCE_INVALID_STATE, message)
        return self.rules, self.provider

    async def _endpoints(self, provider: OidcProvider) -> Endpoints:
        try:
            return await provider.endpoints()
        except TobanError:
            _results.labels("unavailable").inc()
            raise

    async def _verified(self, rules: OidcRules, claims: Mapping[str, Any], nonce: str) -> tuple[Identity, bytes]:
        async with autocommit(self.pool) as t:
            key, now = await identities.nonce_key(t)
        expected = Expected(
            issuer=rules.issuer, client_id=rules.client_id, nonce=nonce, groups_claim=rules.groups_claim
        )
        try:
            nonce_end(key, nonce, now)
            return identity_of(claims, expected, now), hash_secret(nonce)
        except ClaimError as error:
            raise _refused(str(error)) from None

    async def _account(self, t: Tx, rules: OidcRules, identity: Identity) -> str:
        """The name of the account, with what its groups give."""
        grants = granted(identity.groups, rules.grants)
        row = await identities.account_of(t, identity)
        if row is not None and not row["enabled"]:
            raise _unknown(f"the account {row['name']} is disabled", identity)
        unlinked = None if row is not None else await identities.unlinked_from(t, identity)
        if row is None and (unlinked is not None or not (rules.creates_accounts and grants)):
            why = "none of its groups gives a role here, and " if rules.creates_accounts else ""
            if unlinked is not None:
                why = f"an administrator unlinked it from the account {unlinked}, and "
            message = (
                f"{why}no account is linked to subject {identity.subject} of {identity.issuer}; an administrator links one: "
                f"toban user link NAME --subject {identity.subject}"
            )
            raise _unknown(message, identity)
        name = row["name"] if row is not None else await self._create(t, identity)
        before = await identities.replace_grants(t, name, grants, actor=ACTOR)
        after = {"roles": sorted(role.value for role in grants.roles), "groups": sorted(grants.groups)}
        if before is not None and dict(before) != after:
            await audit.note(t, ACTOR, "set_roles", f"user {name}", before=before, after=after)
        return name

    async def _create(self, t: Tx, identity: Identity) -> str:
        name = account_name(identity, taken=False)
        if await identities.name_taken(t, name):
            name = account_name(identity, taken=True)
        made = await accounts.add_user(
            t, name, display_name=identity.display_name, password_hash=None, actor=ACTOR
        ) and await identities.link(t, identity, name, actor=ACTOR)
        if not made:
            raise TobanError(ErrorCode.CONFLICT, f"the account {name} cannot be made; an administrator links another")
        after = {"issuer": identity.issuer, "subject": identity.subject}
        await audit.note(t, ACTOR, "add_user", f"user {name}", after=after)
        _log.info("an account was made for a person of the OpenID provider", user=name)
        return name


def _refused(why: str) -> TobanError:
    _results.labels("refused").inc()
    _log.warning("an ID token was refused", reason=why)
    return TobanError(ErrorCode.UNAUTHENTICATED, f"the ID token is refused: {why}")


def _unknown(message: str, identity: Identity) -> TobanError:
    _results.labels("unknown").inc()
    _log.warning("a person of the OpenID provider has no account that is enabled", subject=identity.subject)
    return TobanError(ErrorCode.PERMISSION_DENIED, message, detail={"subject": identity.subject})
