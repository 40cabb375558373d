"""What Redis says of itself, for `toban doctor`."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from toban_fencing.redis_client import RedisLink
from toban_fencing.redis_locks import EPOCH_KEY
from toban_fencing.worker_registry import flag_of


@dataclass(frozen=True, slots=True, kw_only=True)
class RedisInfo:
    """Of a cluster: the node that is worst off. `max_bytes` 0 = no limit, `policy` as in maxmemory-policy; `epoch` is the latest that any
    leader has written there, 0 = none.
    """

    version: str
    policy: str
    max_bytes: int
    evicted_keys: int
    epoch: int = 0


async def inspect(link: RedisLink) -> RedisInfo:
    """Raises RedisGone when it does not answer."""
    answer: dict[str, Any] = await link.call(lambda client: client.info())
    # A cluster answers by node.
    nodes = [answer] if "redis_version" in answer else [node for node in answer.values() if isinstance(node, dict)]
    found = [_info(node) for node in nodes]
    worst = max(found, key=lambda info: (info.policy != "noeviction", info.max_bytes > 0, info.evicted_keys))
    epoch = await link.call(lambda client: client.get(EPOCH_KEY))
    return replace(worst, epoch=flag_of(epoch) or 0)


def _info(node: dict[str, Any]) -> RedisInfo:
    return RedisInfo(
        version=str(node.get("valkey_version") or node.get("redis_version", "")),
        policy=str(node.get("maxmemory_policy", "")),
        max_bytes=int(node.get("maxmemory", 0)),
        evicted_keys=int(node.get("evicted_keys", 0)),
    )
