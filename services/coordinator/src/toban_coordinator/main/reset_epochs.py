"""`python -m toban_coordinator reset-epochs`: the way out when the epochs are used up. Every coordinator must be stopped.

Exclusion needs no epoch for this: when nothing beats and no executor has been granted anything for a whole lease, no job runs under a lease, and the
executors of before are closed in the same transaction.
"""

from __future__ import annotations

import asyncio
import sys

from toban_coordinator.config import CoordinatorConfig
from toban_coordinator.store.cluster import epoch_reset
from toban_domain.epoch import EpochExhausted
from toban_domain.errors import ErrorCode, TobanError
from toban_domain.settings import SETTINGS
from toban_fencing.executor_lease import take_seconds
from toban_runtime.clock import Clock, SystemClock
from toban_store.pool import Pool, open_pool

LOOK_SECONDS = 1.0
ACTOR = "reset-epochs"
DONE = """The epochs begin again at {epoch}. Before the coordinators start:
* delete the keys scheduler:leader:epoch and scheduler:leader:lock in Redis;
* give each executor a new state directory, also those that are stopped now;
* reset every fencing token (TOBAN_FENCE) that a resource outside of Toban remembers.
"""


async def reset(pool: Pool, clock: Clock) -> int:
    """Waits for a whole lease without a sign of life, then resets; the new epoch. Raises RESOURCE_INVALID_STATE when something lives."""
    seen = await epoch_reset.activity(pool)
    since = clock.boottime()
    wait = take_seconds(max(seen.lease_ms, int(1000 * SETTINGS["executor_lease_seconds"].default)))
    sys.stderr.write(f"watching for {wait:.0f} s that no coordinator works and no executor is granted anything\n")
    while clock.boottime() - since < wait:
        await clock.sleep(LOOK_SECONDS)
        if await epoch_reset.activity(pool) != seen:
            raise _alive()
    try:
        epoch = await epoch_reset.reset(pool, seen=seen, actor=ACTOR)
    except EpochExhausted as error:
        raise TobanError(ErrorCode.RESOURCE_INVALID_STATE, f"{error}; move to a new database") from None
    if epoch is None:
        raise _alive()
    return epoch


def _alive() -> TobanError:
    return TobanError(
        ErrorCode.RESOURCE_INVALID_STATE,
        "a coordinator works on this database, so nothing was changed; stop all coordinators, then run reset-epochs again",
    )


def main(config: CoordinatorConfig) -> int:
    """The exit code."""
    try:
        epoch = asyncio.run(_run(config))
    except TobanError as error:
        sys.stderr.write(f"{error.message}\n")
        return error.exit_code
    sys.stdout.write(DONE.format(epoch=epoch))
    return 0


async def _run(config: CoordinatorConfig) -> int:
    pool = await open_pool(config.database_url, application_name=f"toban/{ACTOR}", min_size=1, max_size=1)
    try:
        return await reset(pool, SystemClock())
    finally:
        await pool.close()
