"""Sign-in with a password, sessions and API tokens: from a secret to the person that it stands for."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from toban_coordinator.app.external.claim_names import check_worker_type
from toban_coordinator.app.people.accounts import SECRET_BYTES, hash_secret, no_user
from toban_coordinator.app.people.passwords import LONGEST as LONGEST_PASSWORD
from toban_coordinator.app.people.passwords import Passwords
from toban_coordinator.app.people.sign_in_throttle import count_failure, forgive
from toban_coordinator.decide.people.sign_in import (
    KNOWN,
    LONGEST,
    ThrottleKeys,
    session_is_good,
)
from toban_coordinator.store.cluster import audit
from toban_coordinator.store.people import accounts, sessions
from toban_domain.access import TOKEN_PREFIX, WORKER, Effect, Person, Role, Rule, Selector
from toban_domain.client_address import network_of
from toban_domain.errors import ErrorCode, TobanError
from toban_observability import metrics
from toban_observability.logs import get_logger
from toban_runtime.ids import IdSource
from toban_store.pool import Pool
from toban_store.tx import Row, autocommit, tx

_log = get_logger(__name__)
MOST_TOKEN_DAYS = 366
MOST_TOKENS = 100
_MAX_NAME = 64
_sign_ins = metrics.counter(
    "toban_sign_ins_total",
    "Passwords given to sign in or to change them: ok, wrong, or throttled without a check.",
    ("result",),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class NewToken:
    """An API token to make: for whom, the most that it may do, and how many days."""

    user: str
    name: str
    role: Role
    selector: Selector
    days: int


@dataclass(frozen=True, slots=True)
class SignedIn:
    """A person with the session that stands for them. The secret is given here once."""

    person: Person
    secret: str
    ends_at: datetime


@dataclass(frozen=True, slots=True)
class Checked:
    """A password that is right: its stored hash, what its failures are counted by, and whether the account knows the address."""

    stored: str
    keys: ThrottleKeys
    known: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class SignIn:
    """Answers the same for an unknown user and a wrong password, in the same time."""

    pool: Pool
    passwords: Passwords
    ids: IdSource

    async def with_password(self, user: str, password: str, *, address: str, user_agent: str = "") -> SignedIn:
        """A new session. Raises UNAUTHENTICATED, and RESOURCE_EXHAUSTED with `retry_after_seconds` after failures."""
        user = user.replace("\0", "?")
        checked = await self.check(user, password, address=address)
        stored = checked.stored
        rehashed = await self.passwords.hash(password) if self.passwords.is_outdated(stored) else None
        return await self._open_session(user, checked, rehashed=rehashed, user_agent=user_agent)

    async def check(self, user: str, password: str, *, address: str) -> Checked:
        """The password's hash when it is right. Raises UNAUTHENTICATED, and RESOURCE_EXHAUSTED with `retry_after_seconds` after failures."""
        # One that is not looked at is no failure of anybody.
        self.passwords.require_room()
        address = network_of(address)
        async with autocommit(self.pool) as t:
            row = await accounts.credentials(t, user, address=address, known_seconds=KNOWN.total_seconds())
        keys = ThrottleKeys.of(user, address)
        known = row is not None and row["known"]
        # Counted before the check: guesses side by side do not share one count.
        try:
            await count_failure(self.pool, keys.counted(known=known), account=keys.account)
        except TobanError as error:
            if error.code is ErrorCode.RESOURCE_EXHAUSTED:
                _sign_ins.labels("throttled").inc()
            raise
        stored = row["password_hash"] if row is not None and row["enabled"] else None
        if not await self.passwords.verify(stored, password[: LONGEST_PASSWORD + 1]):
            _sign_ins.labels("wrong").inc()
            _log.warning("a sign-in failed", address=address)
            raise TobanError(ErrorCode.UNAUTHENTICATED, "user or password is wrong")
        _sign_ins.labels("ok").inc()
        assert stored is not None, "no password fits an absent one"
        return Checked(stored, keys, known)

    async def with_session(self, secret: str) -> Person:
        """Whose session it is. Raises UNAUTHENTICATED for one that has ended, was revoked, or whose account is disabled."""
        hashed = hash_secret(secret)
        async with autocommit(self.pool) as t:
            row = await sessions.session(t, hashed)
            if (
                row is None
                or not row["enabled"]
                or not session_is_good(
                    last_used_at=row["last_used_at"],
                    ends_at=row["ends_at"],
                    revoked=row["revoked"],
                    now=row["server_time"],
                )
            ):
                raise TobanError(
                    ErrorCode.UNAUTHENTICATED, "the session has ended; sign in again", detail={"sign_in": True}
                )
            await sessions.touch_session(t, hashed)
            return (await accounts.people(t, row["name"]))[0]

    async def with_token(self, secret: str, *, address: str) -> Person:
        """Whose token it is, bounded by it. Raises UNAUTHENTICATED."""
        async with autocommit(self.pool) as t:
            row = await sessions.token(t, hash_secret(secret)) if secret.startswith(TOKEN_PREFIX) else None
            if row is None or not row["good"] or not row["enabled"]:
                message = "the API token is unknown, revoked or has expired; make one with `toban token add`"
                raise TobanError(ErrorCode.UNAUTHENTICATED, message, detail={"sign_in": True})
            await sessions.touch_token(t, row["id"], address=network_of(address))
            person = (await accounts.people(t, row["name"]))[0]
        ceiling = Rule(
            id=row["id"],
            effect=Effect.ALLOW,
            role=Role(row["role"]),
            selector=accounts.selector_of(row),
            origin=f"token {row['id']}",
        )
        return replace(person, ceiling=ceiling)

    async def sign_out(self, secret: str, *, everywhere: bool) -> int:
        """How many sessions ended: this one, or all of its person. A session that has ended already ends no other."""
        async with tx(self.pool) as t:
            row = await sessions.session(t, hash_secret(secret))
            if row is None or not await sessions.revoke_session(t, hash_secret(secret)):
                return 0
            ended = 1 + (await sessions.revoke_sessions(t, row["name"]) if everywhere else 0)
            await audit.note(t, f"user {row['name']}", "sign_out", "session", after={"sessions": ended})
            return ended

    async def end_sessions(self, user: str, *, actor: str, reason: str = "") -> int:
        """Every session of an account, by an administrator; how many. Raises NOT_FOUND."""
        async with tx(self.pool) as t:
            if not user or not await accounts.people(t, user):
                raise no_user(user)
            ended = await sessions.revoke_sessions(t, user)
            await audit.note(t, actor, "end_sessions", f"user {user}", reason, after={"sessions": ended})
        return ended

    async def create_token(self, new: NewToken, *, actor: str, maker: Rule | None = None) -> tuple[str, int, datetime]:
        """Secret (given here once), number and end, which is that of the token `maker` at the latest.

        Raises INVALID_ARGUMENT, NOT_FOUND, and RESOURCE_EXHAUSTED when the account has MOST_TOKENS.
        """
        if not 1 <= new.days <= MOST_TOKEN_DAYS:
            raise TobanError(ErrorCode.INVALID_ARGUMENT, f"a token for {new.days} days; use 1 to {MOST_TOKEN_DAYS}")
        if not 1 <= len(new.name) <= _MAX_NAME or not new.name.isprintable():
            message = f"a token needs a name of 1 to {_MAX_NAME} printable characters, such as its use"
            raise TobanError(ErrorCode.INVALID_ARGUMENT, message)
        _check_work(new)
        secret = TOKEN_PREFIX + self.ids.token_hex(SECRET_BYTES)
        async with tx(self.pool) as t:
            if await sessions.count_tokens(t, new.user) >= MOST_TOKENS:
                message = f"{new.user} has {MOST_TOKENS} API tokens that are good; revoke one first"
                raise TobanError(ErrorCode.RESOURCE_EXHAUSTED, message)
            row = await sessions.add_token(
                t,
                user=new.user,
                name=new.name,
                secret_hash=hash_secret(secret),
                role=new.role,
                selector=new.selector,
                actor=actor,
                lasts=timedelta(days=new.days),
                maker=None if maker is None else maker.id,
            )
            if row is None:
                raise no_user(new.user)
            after = {"user": new.user, "name": new.name, "role": new.role.value, "for": str(new.selector)}
            await audit.note(t, actor, "create_token", f"token {row['id']}", after=after)
        return secret, row["id"], row["ends_at"]

    async def list_tokens(self, user: str = "") -> list[Row]:
        """Tokens of one account or of all; never their secrets."""
        async with autocommit(self.pool) as t:
            return await sessions.tokens(t, user)

    async def revoke_token(self, token_id: int, *, actor: str, reason: str = "", user: str = "") -> None:
        """Raises NOT_FOUND for one that is revoked already or does not exist, and with `user` for one of another account."""
        async with tx(self.pool) as t:
            row = await sessions.revoke_token(t, token_id, user=user)
            if row is None:
                raise TobanError(
                    ErrorCode.NOT_FOUND, f"there is no token {token_id} that is good; `toban token list` shows all"
                )
            before = {"user": row["user"], "name": row["name"]}
            await audit.note(t, actor, "revoke_token", f"token {token_id}", reason, before=before)

    async def _open_session(self, user: str, checked: Checked, *, rehashed: str | None, user_agent: str) -> SignedIn:
        secret = self.ids.token_hex(SECRET_BYTES)
        address, before = checked.keys.address.removeprefix("address "), checked.stored
        async with tx(self.pool) as t:
            await forgive(t, checked.keys, known=checked.known)
            if rehashed is not None:
                await accounts.rehash(t, user, before=before, password_hash=rehashed)
            ends_at = await sessions.add_session(
                t,
                user,
                hash_secret(secret),
                password_hash=rehashed or before,
                address=address,
                user_agent=user_agent[:200],
                lasts=LONGEST,
            )
            if ends_at is None:
                raise TobanError(ErrorCode.UNAUTHENTICATED, "user or password is wrong")
            await audit.note(t, f"user {user}", "sign_in", "session", after={"address": address})
            [person] = await accounts.people(t, user)
        return SignedIn(person, secret, ends_at)


def _check_work(new: NewToken) -> None:
    """Raises INVALID_ARGUMENT for a token for external work that is also for something else, or that could not do it."""
    selector = new.selector
    if selector.scope != WORKER:
        return
    check_worker_type(selector.scope_id)
    if selector.job or selector.labels:
        message = (
            "a token with scope worker is for every step of its worker_type, whatever the job; leave out job and labels"
        )
        raise TobanError(ErrorCode.INVALID_ARGUMENT, message)
    if new.role is not Role.OPERATOR:
        message = f"a token with scope worker needs role operator, not {new.role}: no lower one allows external work, and no higher one is needed"
        raise TobanError(ErrorCode.INVALID_ARGUMENT, message)
