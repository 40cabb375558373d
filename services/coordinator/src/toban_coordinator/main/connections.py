"""Everything that a coordinator has open to the outside."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from toban_coordinator.config import CoordinatorConfig
from toban_coordinator.leadership.election_runner import READ_SECONDS
from toban_coordinator.leadership.election_thread import ElectionThread
from toban_fencing.redis_client import RedisLink, open_client
from toban_runtime.clock import Clock
from toban_store import sessions
from toban_store.pool import Pool, open_pool
from toban_transport.channel import ChannelPool
from toban_transport.tls import TlsFiles

POOL_SIZE = 12
# The election has a thread and connections of its own, so that load cannot starve it.
ELECTION_POOL_SIZE = 2
# So have grants and the look-ups of incarnation keys: a storm of reports must not make heartbeats wait. Grants go out one batch at a time.
GRANT_POOL_SIZE = 3
# Lone fenced statements, one at a time a loop.
QUICK_POOL_SIZE = 2
CLOSE_SECONDS = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Connections:
    """Everything that is open to the outside."""

    pool: Pool
    quick_pool: Pool
    # Opened in `election_thread`, and of use there only.
    election_thread: ElectionThread
    election_pool: Pool
    election_redis: RedisLink
    grant_pool: Pool
    redis: RedisLink
    # Marks of runs are many at once: their failures must not make the leader's lock wait.
    marks: RedisLink
    tls: TlsFiles
    channels: ChannelPool

    async def close(self) -> None:
        """Close all of it."""
        await self.channels.close()
        await self.redis.close()
        await self.marks.close()
        # Side by side: a pool that is just connecting to a server that does not answer takes seconds.
        pools = (self.grant_pool, self.quick_pool, self.pool)
        await asyncio.gather(self._close_election(), *(pool.close(CLOSE_SECONDS) for pool in pools))

    async def _close_election(self) -> None:
        try:
            await self.election_thread.run(self.election_redis.close())
            await self.election_thread.run(self.election_pool.close(CLOSE_SECONDS))
        finally:
            await self.election_thread.stop()


async def connect(config: CoordinatorConfig, clock: Clock) -> Connections:
    """Open pools and clients; none of them needs the other side to be there yet."""
    tls, thread = TlsFiles(config.tls_dir), ElectionThread()
    return Connections(
        pool=await open_pool(config.database_url, application_name="toban/coordinator", min_size=2, max_size=POOL_SIZE),
        quick_pool=await open_pool(
            config.database_url,
            application_name="toban/quick",
            min_size=1,
            max_size=QUICK_POOL_SIZE,
            statement_ms=sessions.FENCED_MS,
        ),
        election_thread=thread,
        election_pool=await thread.run(_open_election_pool(config)),
        election_redis=RedisLink(client=open_client(config.redis_url), clock=clock),
        grant_pool=await open_pool(
            config.database_url, application_name="toban/grants", min_size=1, max_size=GRANT_POOL_SIZE
        ),
        redis=RedisLink(client=open_client(config.redis_url), clock=clock),
        marks=RedisLink(client=open_client(config.redis_url), clock=clock),
        tls=tls,
        channels=ChannelPool(tls=tls, trust_domain=config.trust_domain),
    )


async def _open_election_pool(config: CoordinatorConfig) -> Pool:
    return await open_pool(
        config.database_url,
        application_name="toban/election",
        min_size=ELECTION_POOL_SIZE,
        max_size=ELECTION_POOL_SIZE,
        # A session that hangs for longer than the election waits is of no more use to it.
        answer_seconds=READ_SECONDS,
    )
