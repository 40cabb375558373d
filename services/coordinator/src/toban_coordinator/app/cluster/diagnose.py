"""Reads the facts and lets `decide.diagnose` judge them. Answers also when PostgreSQL or Redis is away."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from datetime import datetime
from typing import Any, TypeVar

from toban_coordinator.decide.cluster import diagnose as checks
from toban_coordinator.decide.cluster.diagnose import Finding
from toban_coordinator.ports.secrets import SecretKeys
from toban_coordinator.store.cluster import health_facts as store
from toban_coordinator.store.cluster import read_models
from toban_coordinator.store.secrets import secrets
from toban_domain.errors import TobanError
from toban_fencing.redis_client import RedisGone, RedisLink
from toban_fencing.redis_info import inspect
from toban_runtime.clock import Clock
from toban_store import role_check
from toban_store.pool import Pool
from toban_store.tx import Row, autocommit

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """Every finding of one coordinator. `server_time` is PostgreSQL's, or this machine's while that is away."""

    findings: Sequence[Finding]
    server_time: datetime
    version: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnose:
    """What one coordinator can say of the whole installation. `release` is its own version."""

    pool: Pool
    redis: RedisLink
    secret_keys: SecretKeys
    clock: Clock
    release: str

    async def run(self) -> Diagnosis:
        """Every check; one that cannot be made is a finding itself. Raises nothing."""
        found, server_time = await self._database()
        found += await self._redis()
        return Diagnosis(findings=found, server_time=server_time, version=self.release)

    async def _database(self) -> tuple[list[Finding], datetime]:
        found: list[Finding] = []
        try:
            async with autocommit(self.pool) as t:
                found += _migrations(await store.migrations(t))
                read = await store.read(t)
                sealed = await secrets.key_ids(t)
        except TobanError as error:
            return [checks.unreachable(error.message), *found], self.clock.wall()
        now: datetime = read.server["server_time"]
        missing = [f"{row['parent']} {row['day']:%Y-%m-%d}" for row in read.missing_partitions]
        found += checks.server(_facts(checks.ServerFacts, read.server))
        found.append(role_check.finding("database-role", read.role))
        found.append(checks.standbys(read.standbys))
        found.append(checks.partitions(missing))
        found += checks.leader(_facts(checks.LeaderFacts, read.leader))
        found.append(checks.epochs([_facts(checks.RefusedEpoch, row) for row in read.refused_epochs]))
        members = [_facts(checks.CoordinatorFacts, row) for row in read.coordinators]
        found += checks.coordinators(members, now=now, version=self.release)
        workers = [_facts(checks.ExecutorFacts, row) for row in read.executors]
        found += checks.executors(workers, now=now, version=self.release)
        found += checks.executor_groups([_facts(checks.GroupFacts, row) for row in read.executor_groups])
        found.append(checks.isolated_jobs(_facts(checks.IsolatedJobs, read.isolated_jobs)))
        found += checks.secret_keys(self.secret_keys.status(), sealed)
        found += checks.work(_facts(checks.WorkFacts, read.work))
        return found, now

    async def _redis(self) -> list[Finding]:
        try:
            info = await inspect(self.redis)
        except RedisGone as error:
            return checks.redis(checks.RedisFacts(error=error.message))
        return checks.redis(
            checks.RedisFacts(
                epoch=info.epoch,
                # Read after Redis: a leader writes to PostgreSQL first.
                database_epoch=await self._epoch(),
                version=info.version,
                policy=info.policy,
                max_bytes=info.max_bytes,
                evicted_keys=info.evicted_keys,
            )
        )

    async def _epoch(self) -> int | None:
        try:
            async with autocommit(self.pool) as t:
                return int((await read_models.leader(t))["epoch"])
        except TobanError:
            return None


def _migrations(states: Sequence[Any]) -> list[Finding]:
    labels = {
        kind: [item.label for item in states if item.state == kind]
        for kind in ("applied", "pending", "changed", "newer")
    }
    return checks.migrations(
        checks.MigrationFacts(
            applied=len(labels["applied"]),
            pending=labels["pending"],
            changed=labels["changed"],
            newer=labels["newer"],
        )
    )


def _facts(kind: type[T], row: Row) -> T:
    """The facts that this kind has, out of a row that may have more."""
    return kind(**{field.name: row[field.name] for field in fields(kind)})  # type: ignore[arg-type]
