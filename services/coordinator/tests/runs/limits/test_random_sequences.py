"""Random sequences of starts, ends, losses, changes of leader and of limits: no limit is ever exceeded, nothing leaks, all runs end."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import pytest

from toban_domain.errors import TobanError

KEYED = {"payload_schema": {"properties": {"k": {}}}, "default_payload": {"k": "a"}}
JOBS: dict[str, dict[str, Any]] = {
    "two": {"limit": 2},
    "keyed": {"limit_key": "k", "limit_per_key": 1, "limit": 3},
    "ab": {"pools": {"a": 1, "b": 2}},
    "ba": {"pools": {"b": 1, "a": 2}, "limit": 4},
    "queued": {"policy": "queue", "dedupe_keys": ["k"]},
    "replacing": {"policy": "replace", "dedupe_keys": ["k"]},
    "once": {"policy": "reject_same_scope", "dedupe_keys": ["k"]},
    "free": {},
}
POOLS = {"a": 3, "b": 3}


class Sequence:
    """One sequence, with a checker that knows nothing of how the coordinator counts."""

    def __init__(self, world: Any, make: Any, limited: Any, new_term: Callable[[int], Any], seed: int) -> None:
        self.world, self.make, self.limited, self.new_term = world, make, limited, new_term
        self.random = random.Random(seed)
        self.executors, self.terms = 1, 1

    async def prepare(self) -> None:
        await self.world.executor(1, slots=12)
        for pool, size in POOLS.items():
            await self.world.sql(
                "INSERT INTO scheduler.limits (name, value) VALUES (%(n)s, %(v)s)", n=f"pool:{pool}", v=size
            )
        retry = {"max_retries": 1, "backoff_seconds": [0]}
        await self.world.apply(
            *(self.make.job(name, concurrency=spec, retry=retry, **KEYED) for name, spec in JOBS.items())
        )

    async def start(self) -> None:
        with suppress(TobanError):
            await self.world.start(
                self.random.choice(list(JOBS)),
                self.random.randint(1, 4),
                payload_json=json.dumps({"k": self.random.choice("abc")}),
                scope="account",
                scope_id=self.random.choice("xyz"),
            )

    async def end(self) -> None:
        live = await self.limited.live()
        for run in self.random.sample(live, self.random.randint(0, len(live))):
            state = await self.world.state(run)
            kind = "CANCELED" if state == "CANCEL_REQUESTED" else self.random.choice(["SUCCEEDED", "FAILED"])
            await self.limited.end(run, kind)

    async def cancel(self) -> None:
        rows = await self.world.sql("SELECT id FROM scheduler.runs_live ORDER BY random() LIMIT 1")
        for row in rows:
            await self.world.cancel(row["id"])

    async def lose(self) -> None:
        await self.world.sql("UPDATE scheduler.executors SET state = 'off', off_at = now() WHERE state <> 'off'")
        self.executors += 1
        await self.world.executor(self.executors, slots=12)
        await self.limited.turn("reap")

    async def change_leader(self) -> None:
        self.terms += 1
        await self.world.sender.close()
        self.world.take(await self.new_term(self.terms))

    async def check(self) -> None:
        rows = await self.world.sql(
            "SELECT job_name, payload ->> 'k' AS k, state::text AS state FROM scheduler.runs_live WHERE dispatched_at IS NOT NULL"
        )
        by_job = Counter(row["job_name"] for row in rows)
        by_key = Counter((row["job_name"], row["k"]) for row in rows)
        for name, spec in JOBS.items():
            assert by_job[name] <= spec.get("limit", 10**6), (name, by_job)
            if "policy" in spec or "limit_per_key" in spec:
                assert all(by_key[name, k] <= 1 for k in "abc"), (name, by_key)
        for pool, size in POOLS.items():
            taken = sum(spec.get("pools", {}).get(pool, 0) * by_job[name] for name, spec in JOBS.items())
            assert taken <= size, (pool, by_job)
            assert await self.limited.held(f"pool:{pool}") == taken
        assert await self.limited.held("job:two") == by_job["two"]


@pytest.mark.seed(190, 196, 197)
@pytest.mark.parametrize("seed", [0, 1, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(2, 6))])
async def test_no_limit_is_ever_exceeded_and_all_runs_end(
    world: Any, make: Any, limited: Any, new_term: Callable[[int], Any], seed: int
) -> None:
    sequence = Sequence(world, make, limited, new_term, seed)
    await sequence.prepare()
    steps: list[tuple[Callable[[], Awaitable[None]], int]] = [
        (sequence.start, 6),
        (sequence.end, 5),
        (limited.turns, 8),
        (sequence.cancel, 1),
        (sequence.lose, 1),
        (sequence.change_leader, 1),
    ]
    for _ in range(60):
        [step] = sequence.random.choices([one for one, _ in steps], [weight for _, weight in steps])
        await step()
        await sequence.check()
    for _ in range(400):
        if not await world.sql("SELECT 1 FROM scheduler.runs_live LIMIT 1"):
            break
        await world.sql("UPDATE scheduler.runs_live SET not_before = NULL WHERE not_before IS NOT NULL")
        await limited.turns()
        await sequence.check()
        await sequence.end()
    assert await world.sql("SELECT id, job_name, state::text, deferred_on FROM scheduler.runs_live") == []
    world.loops["limits"]._work.__self__._clear_at = 0.0
    await limited.turn("limits")
    assert await world.sql("SELECT * FROM scheduler.limit_holds") == []
