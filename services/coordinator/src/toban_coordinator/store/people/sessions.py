"""Sessions, API tokens and failed sign-ins. Secrets come as SHA-256 hashes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from toban_coordinator.decide.people.sign_in import Failures
from toban_coordinator.store.people.accounts import selector_columns
from toban_domain.access import Role, Selector
from toban_store import queries
from toban_store.tx import Row, Tx

_sql = queries.load(__name__)
# The last use is written at most this often, seconds.
TOUCH_SECONDS = 30.0


async def add_session(
    t: Tx, user: str, secret_hash: bytes, *, password_hash: str, address: str, user_agent: str, lasts: timedelta
) -> datetime | None:
    """When it ends; None: there is no such enabled account with this password."""
    parameters = {
        "user": user,
        "secret_hash": secret_hash,
        "password_hash": password_hash,
        "address": address,
        "user_agent": user_agent,
        "seconds": lasts.total_seconds(),
    }
    row = await t.fetch_one(_sql.insert_session, parameters)
    return None if row is None else row["ends_at"]


async def session(t: Tx, secret_hash: bytes) -> Row | None:
    """Whose it is, with its times."""
    return await t.fetch_one(_sql.session, {"secret_hash": secret_hash})


async def touch_session(t: Tx, secret_hash: bytes) -> None:
    """It was used now."""
    await t.execute(_sql.touch_session, {"secret_hash": secret_hash, "seconds": TOUCH_SECONDS})


async def revoke_session(t: Tx, secret_hash: bytes) -> bool:
    """False: it was not good any more."""
    return await t.execute(_sql.revoke_session, {"secret_hash": secret_hash}) == 1


async def revoke_sessions(t: Tx, user: str) -> int:
    """How many sessions of an account ended."""
    return await t.execute(_sql.revoke_sessions, {"user": user})


async def good_sessions(t: Tx, user: str, *, current: bytes, idle: timedelta) -> list[Row]:
    """Those of an account that are good, the newest first; the one with the hash `current` is marked."""
    parameters = {"user": user, "current": current, "seconds": idle.total_seconds()}
    return await t.fetch_all(_sql.good_sessions, parameters)


async def end_session(t: Tx, session_id: int, *, user: str) -> bool:
    """False: the account has no such session that is good."""
    return await t.execute(_sql.end_session, {"id": session_id, "user": user}) == 1


async def add_token(
    t: Tx,
    *,
    user: str,
    name: str,
    secret_hash: bytes,
    role: Role,
    selector: Selector,
    actor: str,
    lasts: timedelta,
    maker: int | None = None,
) -> Row | None:
    """Its id and end, not after that of the token `maker`; None: there is no such account."""
    parameters = {
        "user": user,
        "name": name,
        "secret_hash": secret_hash,
        "role": role.value,
        "actor": actor,
        "seconds": lasts.total_seconds(),
        "maker": maker,
    }
    return await t.fetch_one(_sql.insert_token, parameters | selector_columns(selector))


async def token(t: Tx, secret_hash: bytes) -> Row | None:
    """Whose it is, the most that it may do, and whether it is good."""
    return await t.fetch_one(_sql.token, {"secret_hash": secret_hash})


async def touch_token(t: Tx, token_id: int, *, address: str) -> None:
    """It was used now."""
    await t.execute(_sql.touch_token, {"id": token_id, "address": address, "seconds": TOUCH_SECONDS})


async def revoke_token(t: Tx, token_id: int, *, user: str = "") -> Row | None:
    """Its name and user; None: it was not good any more, is of another account than `user`, or there is none."""
    return await t.fetch_one(_sql.revoke_token, {"id": token_id, "user": user})


async def count_tokens(t: Tx, user: str) -> int:
    """How many tokens of an account are good."""
    row = await t.fetch_one(_sql.count_tokens, {"user": user})
    return 0 if row is None else int(row["good"])


async def tokens(t: Tx, user: str = "") -> list[Row]:
    """The newest first."""
    return await t.fetch_all(_sql.tokens, {"user": user})


async def lock_failures(t: Tx, keys: Sequence[str]) -> tuple[dict[str, Failures], datetime | None]:
    """The failures under each key, and PostgreSQL's time after the locks were taken; rows that were missing are made."""
    await t.execute(_sql.failures_rows, {"keys": list(keys)})
    rows = await t.fetch_all(_sql.failures, {"keys": list(keys)})
    found = {row["key"]: Failures(row["failures"], row["last_at"], row["blocked_until"]) for row in rows}
    return found, max((row["server_time"] for row in rows), default=None)


async def seen_failures(t: Tx, key: str) -> tuple[list[Failures], datetime]:
    """The failures under a key, at most one row, and PostgreSQL's time. Locks and makes nothing."""
    row = await t.fetch_one(_sql.seen_failures, {"key": key})
    assert row is not None, "the statement has one row"
    found = [] if row["last_at"] is None else [Failures(row["failures"], row["last_at"], row["blocked_until"])]
    return found, row["server_time"]


async def forget_failures(t: Tx, key: str) -> None:
    """Forgets those under a key."""
    await t.execute(_sql.forget_failures, {"key": key})


async def put_failures(t: Tx, failures: Mapping[str, Failures]) -> None:
    """New counts, under locked keys."""
    parameters = {
        "keys": list(failures),
        "counts": [one.count for one in failures.values()],
        "last": [one.last_at for one in failures.values()],
        "until": [one.blocked_until for one in failures.values()],
    }
    await t.execute(_sql.put_failures, parameters)


async def forgive(t: Tx, *, own: Sequence[str], address: str) -> None:
    """Forgets the failures under `own`, and takes one from those under key `address`, "" = of none."""
    await t.execute(_sql.forgive, {"own": list(own), "address": address})
