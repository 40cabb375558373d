"""Checks of PostgreSQL and Redis."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from toban_domain.finding import Finding, Status

OLDEST_SERVER = 150_000
# Shares of the connections that are in use.
CONNECTIONS_WARNING, CONNECTIONS_ERROR = 0.8, 0.95
OLDEST_REDIS = 7


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerFacts:
    """What PostgreSQL says of itself. `max_connections` without those that are kept for superusers."""

    version: str
    version_number: int
    fsync: bool
    full_page_writes: bool
    synchronous_commit: str
    read_only: bool
    max_connections: int
    connections: int
    encoding: str
    timezone: str
    emit_role: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class RedisFacts:
    """What Redis says of itself; `error` when it does not answer. `max_bytes` 0 = no limit. `epoch`: the latest that it knows, and
    `database_epoch` that of PostgreSQL (None = PostgreSQL does not answer).
    """

    version: str = ""
    policy: str = ""
    max_bytes: int = 0
    evicted_keys: int = 0
    epoch: int = 0
    database_epoch: int | None = None
    error: str = ""

    @property
    def is_ahead(self) -> bool:
        """Whether Redis knows a leader that PostgreSQL has never had."""
        return self.database_epoch is not None and self.epoch > self.database_epoch


@dataclass(frozen=True, slots=True, kw_only=True)
class MigrationFacts:
    """Labels of migrations by how they stand against this release."""

    applied: int
    pending: Sequence[str] = ()
    changed: Sequence[str] = ()
    newer: Sequence[str] = ()


def server(facts: ServerFacts) -> list[Finding]:
    """Version, writability, durability, encoding, connections."""
    return [
        _version(facts),
        _durability(facts),
        _connections(facts),
        _encoding(facts),
        _role(facts),
    ]


def unreachable(why: str) -> Finding:
    """PostgreSQL does not answer, so the rest cannot be known."""
    return Finding(
        name="postgresql",
        subject="PostgreSQL",
        value="no answer",
        status="error",
        message=f"the coordinator cannot read its database: {why}",
        remedy="see whether PostgreSQL runs and SCHEDULER_DATABASE_URL of the coordinator is right; without it nothing is dispatched",
    )


def migrations(facts: MigrationFacts) -> list[Finding]:
    """Whether the schema is the one that this release expects."""
    found = [
        _migration(
            ", ".join(facts.pending),
            "error",
            "is not applied, but this release needs it",
            "run `python -m toban_store.migrate up` with this release",
        ),
        _migration(
            ", ".join(facts.changed),
            "error",
            "is not what this release would apply: an applied file was changed, or it is another release's",
            "restore the file and put the change into a new migration",
        ),
        _migration(
            ", ".join(facts.newer),
            "warning",
            "is applied and unknown to this release, which is older than the schema",
            "upgrade this coordinator to the release that migrated the database",
        ),
    ]
    unwell = [item for item in found if item is not None]
    return unwell or [Finding(name="migrations", subject="schema", value=f"{facts.applied} applied")]


def _migration(labels: str, status: Status, message: str, remedy: str) -> Finding | None:
    if not labels:
        return None
    return Finding(name="migrations", subject="schema", value=labels, status=status, message=message, remedy=remedy)


def partitions(missing: Sequence[str]) -> Finding:
    """Day partitions of today and the next two days; `missing` names those that are not there."""
    if not missing:
        return Finding(name="partitions", subject="history", value="made ahead")
    return Finding(
        name="partitions",
        subject="history",
        value=", ".join(missing[:6]) + (" …" if len(missing) > 6 else ""),
        status="error",
        message="day partitions are missing: runs that end on those days could not be stored",
        remedy="the leader makes them: see that there is one. `SELECT scheduler.ensure_partitions(current_date, current_date + 7)` makes them",
    )


def redis(facts: RedisFacts) -> list[Finding]:
    """Whether Redis answers, and whether it may forget what it was told."""
    if facts.error:
        return [
            Finding(
                name="redis",
                subject="Redis",
                value="no answer",
                status="warning",
                message=f"the coordinator does not reach it ({facts.error}): hand-overs take 3 s instead of 1 s, flags of operators are not seen",
                remedy="start Redis, or correct SCHEDULER_REDIS_URL of the coordinators; no work is lost meanwhile",
            )
        ]
    return [_redis_version(facts), _redis_policy(facts), *_redis_shared(facts)]


def standbys(modes: Mapping[str, int]) -> Finding:
    """Whether a fail-over may lose commits; `modes` counts stand-bys: sync, async, unknown (this role may not see how they follow)."""
    count, synchronous = sum(modes.values()), modes.get("sync", 0)
    value = f"{count} stand-by{'s' if count != 1 else ''}, {synchronous} synchronous"
    if not count or synchronous:
        return Finding(name="replication", subject="PostgreSQL", value=value)
    if modes.get("unknown"):
        return Finding(
            name="replication",
            subject="PostgreSQL",
            value=f"{count} stand-by{'s' if count != 1 else ''}, none known to be synchronous",
            status="warning",
            message="the role of the coordinators may not see whether a stand-by is synchronous; without one a fail-over loses the last commits",
            remedy="GRANT pg_monitor TO that role, and look again",
        )
    return Finding(
        name="replication",
        subject="PostgreSQL",
        value=value,
        status="warning",
        message="every stand-by is asynchronous: a fail-over loses the last commits, and starts wait for a whole lease",
        remedy="set synchronous_standby_names",
    )


def _version(facts: ServerFacts) -> Finding:
    if facts.version_number < OLDEST_SERVER:
        return Finding(
            name="postgresql",
            subject="PostgreSQL",
            value=facts.version,
            status="error",
            message=f"PostgreSQL {facts.version} is too old",
            remedy="upgrade it to 15 or newer",
        )
    if facts.read_only:
        return Finding(
            name="postgresql",
            subject="PostgreSQL",
            value=facts.version,
            status="error",
            message="the coordinator is connected to a stand-by, which takes no writes",
            remedy="point SCHEDULER_DATABASE_URL at the primary (target_session_attrs=read-write chooses it)",
        )
    return Finding(name="postgresql", subject="PostgreSQL", value=facts.version)


def _durability(facts: ServerFacts) -> Finding:
    off = [
        name
        for name, on in (
            ("fsync", facts.fsync),
            ("full_page_writes", facts.full_page_writes),
            ("synchronous_commit", facts.synchronous_commit != "off"),
        )
        if not on
    ]
    if not off:
        value = f"fsync on, synchronous_commit {facts.synchronous_commit}"
        return Finding(name="durability", subject="PostgreSQL", value=value)
    return Finding(
        name="durability",
        subject="PostgreSQL",
        value=f"{', '.join(off)} off",
        status="error",
        message="a crash of the server may lose what was acknowledged: runs could start twice or be forgotten",
        remedy=f"set {' and '.join(f'{name} = on' for name in off)} in postgresql.conf, reload, and look at the options of SCHEDULER_DATABASE_URL",
    )


def _connections(facts: ServerFacts) -> Finding:
    share = facts.connections / max(1, facts.max_connections)
    value = f"{facts.connections} of {facts.max_connections} in use"
    if share < CONNECTIONS_WARNING:
        return Finding(name="connections", subject="PostgreSQL", value=value)
    return Finding(
        name="connections",
        subject="PostgreSQL",
        value=value,
        status="error" if share >= CONNECTIONS_ERROR else "warning",
        message="nearly all connections are in use: a coordinator that starts, or reconnects, may get none",
        remedy="raise max_connections, or see who holds them: SELECT application_name, count(*) FROM pg_stat_activity GROUP BY 1",
    )


def _encoding(facts: ServerFacts) -> Finding:
    if facts.encoding == "UTF8":
        return Finding(name="encoding", subject="database", value=f"UTF8, sessions in {facts.timezone}")
    return Finding(
        name="encoding",
        subject="database",
        value=facts.encoding,
        status="error",
        message="names and output that are not in this encoding cannot be stored",
        remedy="make a database with ENCODING 'UTF8' and restore into it",
    )


def _role(facts: ServerFacts) -> Finding:
    if facts.emit_role:
        return Finding(name="roles", subject="database", value="toban_emit")
    return Finding(
        name="roles",
        subject="database",
        value="toban_emit is missing",
        status="warning",
        message="applications cannot be given the right to emit events in SQL",
        remedy="`python -m toban_store.migrate roles` prints the SQL that makes it; then run `migrate up` (docs/database-roles.md)",
    )


def _redis_version(facts: RedisFacts) -> Finding:
    major = facts.version.partition(".")[0]
    if major.isdecimal() and int(major) < OLDEST_REDIS:
        return Finding(
            name="redis",
            subject="Redis",
            value=facts.version,
            status="error",
            message=f"Redis {facts.version} is too old",
            remedy=f"upgrade it to {OLDEST_REDIS}.0 or newer, or use Valkey",
        )
    return Finding(name="redis", subject="Redis", value=facts.version)


def _redis_policy(facts: RedisFacts) -> Finding:
    if facts.policy in ("", "noeviction"):
        return Finding(name="redis-eviction", subject="Redis", value=facts.policy or "not told")
    return Finding(
        name="redis-eviction",
        subject="Redis",
        value=f"{facts.policy}, {facts.evicted_keys} keys evicted",
        status="error" if facts.max_bytes or facts.evicted_keys else "warning",
        message="Redis may throw away the leader's lock and operators' flags when its memory is full",
        remedy="set maxmemory-policy noeviction; share this Redis with no cache",
    )


def _redis_shared(facts: RedisFacts) -> list[Finding]:
    if not facts.is_ahead:
        return []
    return [
        Finding(
            name="redis-shared",
            subject="Redis",
            value=f"epoch {facts.epoch}, PostgreSQL has {facts.database_epoch}",
            status="warning",
            message="Redis knows a leader that PostgreSQL has never had: another installation uses the same Redis database, or PostgreSQL "
            "was recreated",
            remedy="give each installation a Redis, or a database number of it, of its own: keys have no prefix; after PostgreSQL was "
            "recreated, delete the key scheduler:leader:epoch",
        )
    ]
