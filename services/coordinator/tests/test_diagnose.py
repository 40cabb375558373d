"""Operations.Diagnose on a real PostgreSQL and Redis: faults that are planted there are found."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from datetime import UTC, datetime
from typing import Any

import psycopg
import pytest
import redis
from psycopg.conninfo import make_conninfo

from toban_coordinator.adapters.secret_keys import FileKeys
from toban_coordinator.app.cluster.diagnose import Diagnose
from toban_coordinator.server.cluster_to_proto import diagnosis_to_pb
from toban_coordinator.store.cluster import cluster_stats
from toban_coordinator.store.executors import executors
from toban_domain.version import VERSION
from toban_fencing.redis_client import RedisLink, open_client
from toban_fencing.redis_locks import EPOCH_KEY
from toban_runtime.clock import SystemClock
from toban_runtime.ids import IdSource
from toban_store.pool import open_pool
from toban_store.tx import autocommit
from toban_testing.kept_sessions import kept_pool

# The servers of the tests are not durable, and a fresh database has neither leader nor executors.
BARE = {"durability": "error", "leader": "error", "executor": "error"}


@pytest.fixture
async def doctor(coordinator_url: str, redis_url: str) -> AsyncIterator[Diagnose]:
    clock = SystemClock()
    pool = await kept_pool(coordinator_url, max_size=2)
    link = RedisLink(client=open_client(redis_url), clock=clock)
    yield Diagnose(pool=pool, redis=link, secret_keys=FileKeys(None), clock=clock, release=VERSION)
    await link.close()
    await pool.close()


@pytest.fixture
def sql(pg_url: str) -> Iterator[Callable[..., Any]]:
    with psycopg.connect(pg_url, autocommit=True) as connection:
        yield connection.execute


async def unwell(doctor: Diagnose) -> dict[str, str]:
    """Name → worst status of what is not ok."""
    answer = diagnosis_to_pb(await doctor.run())
    assert answer.version == VERSION
    assert answer.HasField("server_time")
    order = ("warning", "error")
    found: dict[str, str] = {}
    for check in answer.checks:
        if check.status != "ok":
            found[check.name] = max(check.status, found.get(check.name, "warning"), key=order.index)
    return found


COORDINATOR = """
INSERT INTO scheduler.coordinators (incarnation, worker_id, node_id, address, pid, version, clock_skew_seconds)
VALUES (gen_random_uuid(), {id}, 'n', 'a:{id}', 1, '{version}', {skew})
"""
EXECUTOR = """
INSERT INTO scheduler.executors (incarnation, worker_id, instance, node_id, boot_id, pid, grpc_host, grpc_port, key_hash, state, lease_ms, slots,
                                 version, clock_skew_seconds, disk_free_bytes, certificate_not_after, isolation)
VALUES (gen_random_uuid(), 9, 'i', 'n', 'b', 1, 'a', 9, '', 'on', 10000, 1, '{version}', 0.01, 99999999999, now() + interval '1 year', 'isolated')
"""


@pytest.fixture
def whole(sql: Callable[..., Any]) -> None:
    """Rows as those of a cluster that is well."""
    for worker_id in (1, 2):
        sql(COORDINATOR.format(id=worker_id, version=VERSION, skew=0.01))
    sql(EXECUTOR.format(version=VERSION))
    sql("UPDATE scheduler.leader SET epoch = 1, worker_id = 1, address = 'a:1'")
    # As far ahead as no test lasts.
    sql(
        "UPDATE scheduler.leader_beat SET beaten_at = now() + interval '1 minute', last_tick_at = now() + interval '1 minute'"
    )


@pytest.fixture
def replicate(pg_url: str) -> Iterator[Callable[..., None]]:
    """Opens a connection that PostgreSQL takes for a stand-by's, or with `slot` for that of a reader of changes."""
    opened: list[psycopg.pq.PGconn] = []

    def begin(slot: str = "") -> None:
        kind = "database" if slot else "true"
        link = psycopg.pq.PGconn.connect(make_conninfo(pg_url, replication=kind).encode())
        opened.append(link)
        if slot:
            link.exec_(f"CREATE_REPLICATION_SLOT {slot} TEMPORARY LOGICAL pgoutput".encode())
            options = "proto_version '1', publication_names 'none'"
            begun = link.exec_(f"START_REPLICATION SLOT {slot} LOGICAL 0/0 ({options})".encode())
        else:
            begun = link.exec_(b"START_REPLICATION PHYSICAL 0/1000000")
        assert begun.status == psycopg.pq.ExecStatus.COPY_BOTH, link.error_message

    yield begin
    for link in opened:
        link.finish()


async def test_a_stand_by_that_no_commit_waits_for(doctor: Diagnose, whole: None, replicate: Any) -> None:
    """A reader of changes is no stand-by: nobody fails over to it."""
    replicate(slot="changes")
    assert await unwell(doctor) == {"durability": "error"}
    replicate()
    assert await unwell(doctor) == {"durability": "error", "replication": "warning"}


async def test_a_role_that_may_not_see_stand_bys(doctor: Diagnose, sql: Any, whole: None, replicate: Any) -> None:
    replicate()
    sql("CREATE ROLE plain")
    try:
        async with autocommit(doctor.pool) as t:
            await t.execute("SET ROLE plain")
            assert await cluster_stats.standbys(t) == {"unknown": 1}
            await t.execute("RESET ROLE")
    finally:
        sql("DROP ROLE plain")


@pytest.mark.pg_versions
async def test_a_whole_cluster_is_well_but_for_the_test_server(doctor: Diagnose, whole: None) -> None:
    assert await unwell(doctor) == {"durability": "error"}


async def test_an_empty_cluster(doctor: Diagnose) -> None:
    assert await unwell(doctor) == BARE


@pytest.mark.parametrize(
    ("statement", "name", "status"),
    [
        ("DELETE FROM public.toban_migrations WHERE version = 2", "migrations", "error"),
        ("UPDATE public.toban_migrations SET checksum = 'other' WHERE version = 1", "migrations", "error"),
        ("INSERT INTO public.toban_migrations VALUES ('scheduler', 9999, 'future', 'x')", "migrations", "warning"),
        (
            "DO $$ BEGIN EXECUTE 'DROP TABLE scheduler.job_events_' || to_char(now() AT TIME ZONE 'UTC' + interval '1 day', 'YYYYMMDD'); END $$",
            "partitions",
            "error",
        ),
        ("REVOKE INSERT ON scheduler.runs_history FROM toban_coordinator", "database-role", "error"),
        ("GRANT USAGE ON SCHEMA logs TO toban_coordinator", "database-role", "warning"),
        ("UPDATE scheduler.leader_beat SET beaten_at = now() - interval '1 minute'", "leader", "error"),
        ("UPDATE scheduler.leader_beat SET last_tick_at = now() - interval '1 minute'", "leader", "error"),
        ("UPDATE scheduler.leader SET settled_timeline = 99", "leader", "warning"),
        ("UPDATE scheduler.coordinators SET clock_skew_seconds = 5 WHERE worker_id = 2", "clock", "error"),
        (
            "UPDATE scheduler.coordinators SET last_seen_at = now() - interval '1 minute' WHERE worker_id = 2",
            "coordinator",
            "error",
        ),
        ("UPDATE scheduler.coordinators SET version = '0.0.1' WHERE worker_id = 2", "version", "warning"),
        ("UPDATE scheduler.executors SET clock_skew_seconds = -5", "clock", "warning"),
        ("UPDATE scheduler.executors SET disk_free_bytes = 1000", "disk", "error"),
        ("UPDATE scheduler.executors SET last_heartbeat_at = now() - interval '1 minute'", "executor", "error"),
        ("UPDATE scheduler.executors SET state = 'off', off_at = now(), off_reason = 'x'", "executor", "error"),
        ("UPDATE scheduler.executors SET state = 'draining'", "executor", "error"),
        ("UPDATE scheduler.executors SET isolation = 'shared'", "isolation", "warning"),
        ("UPDATE scheduler.executors SET certificate_not_after = now() + interval '3 days'", "certificate", "warning"),
        ("UPDATE scheduler.coordinators SET certificate_not_after = now() - interval '3 days'", "certificate", "error"),
        (
            "SELECT scheduler.emit_event('a'); UPDATE scheduler.events SET created_at = now() - interval '5 minutes'",
            "events",
            "warning",
        ),
    ],
)
async def test_a_fault_is_found(
    doctor: Diagnose, whole: None, sql: Any, statement: str, name: str, status: str
) -> None:
    sql(statement)
    assert await unwell(doctor) == {"durability": "error", name: status}


async def test_jobs_that_demand_a_class_that_no_executor_has(doctor: Diagnose, whole: None, sql: Any) -> None:
    sql(
        "INSERT INTO scheduler.job_definitions (name, enabled, spec, spec_hash) VALUES"
        """ ('asks', true, '{"isolation": "isolated"}', ''), ('off', false, '{"isolation": "isolated"}', ''), ('any', true, '{}', '')"""
    )
    assert await unwell(doctor) == {"durability": "error"}
    sql("UPDATE scheduler.executors SET isolation = 'shared'")
    assert await unwell(doctor) == {"durability": "error", "isolation": "error"}
    [found] = [one for one in (await doctor.run()).findings if one.subject == "jobs"]
    assert found.message.endswith(": asks")


async def test_a_coordinator_that_came_back_is_not_missed(doctor: Diagnose, whole: None, sql: Any) -> None:
    sql(
        "UPDATE scheduler.coordinators SET last_seen_at = now() - interval '1 minute', started_at = now() - interval '1 hour'"
    )
    for worker_id in (11, 12):
        sql(COORDINATOR.format(id=worker_id, version=VERSION, skew=0).replace("'a:1", "'a:", 1))
    assert await unwell(doctor) == {"durability": "error"}


async def test_a_schema_that_lacks_a_migration_is_told(doctor: Diagnose, sql: Any) -> None:
    sql("DELETE FROM public.toban_migrations WHERE version = 2")
    sql("DROP TABLE scheduler.events")
    found = await unwell(doctor)
    assert found["migrations"] == "error"
    assert found["postgresql"] == "error"


async def test_redis_that_evicts(doctor: Diagnose, whole: None, redis_url: str) -> None:
    with redis.Redis.from_url(redis_url) as client:
        client.config_set("maxmemory-policy", "allkeys-lru")
        try:
            assert await unwell(doctor) == {"durability": "error", "redis-eviction": "warning"}
            client.config_set("maxmemory", 1 << 30)
            assert await unwell(doctor) == {"durability": "error", "redis-eviction": "error"}
        finally:
            client.config_set("maxmemory-policy", "noeviction")
            client.config_set("maxmemory", 0)


async def test_a_redis_that_another_installation_uses(doctor: Diagnose, whole: None, redis_url: str, sql: Any) -> None:
    with redis.Redis.from_url(redis_url) as client:
        client.set(EPOCH_KEY, "12")
        sql("UPDATE scheduler.leader SET epoch = 12")
        assert "redis-shared" not in await unwell(doctor)
        sql("UPDATE scheduler.leader SET epoch = 11")
        assert (await unwell(doctor))["redis-shared"] == "warning"


@pytest.mark.usefixtures("production_bounds")
async def test_servers_that_are_away(free_port: int) -> None:
    clock = SystemClock()
    pool = await open_pool(
        f"postgresql://127.0.0.1:{free_port}/x", application_name="toban-test", min_size=0, max_size=1
    )
    link = RedisLink(client=open_client(f"redis://127.0.0.1:{free_port}/0"), clock=clock)
    try:
        found = await unwell(Diagnose(pool=pool, redis=link, secret_keys=FileKeys(None), clock=clock, release=VERSION))
        assert found == {"postgresql": "error", "redis": "warning"}
    finally:
        await link.close()
        await pool.close()


async def test_what_an_executor_says_stays_until_it_says_something_else(doctor: Diagnose, sql: Any) -> None:
    incarnation = IdSource().uuid()
    new = executors.Registration(
        incarnation=incarnation, instance="i", node_id="n", boot_id="b", pid=1, grpc_host="h", grpc_port=1, slots=1
    )
    await executors.register(doctor.pool, new, key_hash=b"h", lease_ms=10_000)
    end = datetime(2040, 1, 2, tzinfo=UTC)
    said = executors.Beat(
        incarnation=incarnation, echo=0, clock_skew_seconds=-5.0, disk_free_bytes=7, certificate_not_after=end
    )
    for beat in (said, executors.Beat(incarnation=incarnation, echo=1)):
        assert (await executors.grant(doctor.pool, [beat]))[incarnation].granted
        row = sql(
            "SELECT clock_skew_seconds, disk_free_bytes, certificate_not_after FROM scheduler.executors"
        ).fetchone()
        assert row == (-5.0, 7, end)


async def test_an_executor_says_what_it_keeps_in_quarantine_and_cannot_reach(doctor: Diagnose, sql: Any) -> None:
    new = executors.Registration(
        incarnation=IdSource().uuid(),
        instance="i",
        node_id="n",
        boot_id="b",
        pid=1,
        grpc_host="h",
        grpc_port=1,
        slots=1,
    )
    await executors.register(doctor.pool, new, key_hash=b"h", lease_ms=10_000)
    wrong = executors.Beat(incarnation=new.incarnation, echo=0, quarantined_chunks=3, unreachable=True)
    await executors.grant(doctor.pool, [wrong])
    found = await unwell(doctor)
    assert (found.get("quarantine"), found.get("processes")) == ("warning", "error")
    await executors.grant(doctor.pool, [executors.Beat(incarnation=new.incarnation, echo=1)])
    assert not {"quarantine", "processes"} & (await unwell(doctor)).keys()
