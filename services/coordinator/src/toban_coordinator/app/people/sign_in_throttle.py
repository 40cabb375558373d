"""Failed sign-ins make later ones under the same keys wait. All coordinators see them, and a restart does not forget them."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from datetime import datetime, timedelta

from toban_coordinator.decide.people.sign_in import Failures, ThrottleKeys, after_failure, wait
from toban_coordinator.store.people import sessions
from toban_domain.errors import ErrorCode, TobanError
from toban_store.pool import Pool
from toban_store.tx import Tx, autocommit, tx


async def count_failure(pool: Pool, counted: Sequence[str], *, account: str = "") -> None:
    """Counts an attempt as failed under some keys, in the order of keys; `account` is the one of them that is of an account.

    Raises RESOURCE_EXHAUSTED with `retry_after_seconds` when it has to wait.
    """
    async with tx(pool) as t:
        found, now = await sessions.lock_failures(t, counted)
        assert now is not None, "a row for each key"
        _require_no_wait(found.values(), now)
        failures = {
            key: after_failure(one if one.count else None, now, of_account=key == account) for key, one in found.items()
        }
        await sessions.put_failures(t, failures)


async def require_no_wait(pool: Pool, key: str) -> None:
    """Raises RESOURCE_EXHAUSTED with `retry_after_seconds` while attempts under a key have to wait. Counts nothing."""
    async with autocommit(pool) as t:
        found, now = await sessions.seen_failures(t, key)
    _require_no_wait(found, now)


async def forgive(t: Tx, keys: ThrottleKeys, *, known: bool) -> None:
    """Forgets the failures before a password that was right. From a `known` address the attempt was not counted for the address, which keeps
    the failures of others."""
    # In the order in which failures are counted.
    await sessions.lock_failures(t, keys.counted(known=False))
    await sessions.forgive(t, own=[keys.pair, keys.account], address="" if known else keys.address)


def _require_no_wait(found: Collection[Failures], now: datetime) -> None:
    left = wait(list(found), now)
    if left > timedelta(0):
        seconds = math.ceil(left.total_seconds())
        raise TobanError(
            ErrorCode.RESOURCE_EXHAUSTED,
            f"too many failed sign-ins; try again in {seconds} s",
            detail={"retry_after_seconds": seconds},
        )
