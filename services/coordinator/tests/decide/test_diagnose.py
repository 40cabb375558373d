"""Each fault gives its finding, and nothing else changes; without a fault all is ok."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toban_coordinator.decide.cluster import diagnose as d
from toban_coordinator.decide.cluster.diagnose import Finding
from toban_coordinator.decide.cluster.diagnose.fleet import COORDINATOR_SKEW, DISK_BYTES, EXECUTOR_SKEW

NOW = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
LONG = NOW + timedelta(days=400)

SERVER = d.ServerFacts(
    version="18.1",
    version_number=180_001,
    fsync=True,
    full_page_writes=True,
    synchronous_commit="on",
    read_only=False,
    max_connections=97,
    connections=20,
    encoding="UTF8",
    timezone="UTC",
    emit_role=True,
)
LEADER = d.LeaderFacts(epoch=7, worker_id=1, address="a:1", resigned=False, settled=True, beat_age=0.2, tick_age=0.5)
COORDINATOR = d.CoordinatorFacts(
    worker_id=1,
    node_id="n1",
    address="a:1",
    version="1.0",
    role="leader",
    age=0.5,
    clock_skew_seconds=0.01,
    certificate_not_after=LONG,
)
EXECUTOR = d.ExecutorFacts(
    worker_id=5,
    node_id="n1",
    address="a:5",
    version="1.0",
    state="on",
    age=0.5,
    lease_seconds=10.0,
    off_reason="",
    drain_reason="",
    clock_skew_seconds=-0.01,
    disk_free_bytes=50 << 30,
    certificate_not_after=LONG,
    quarantined_outcomes=0,
    quarantined_chunks=0,
    unreachable=False,
    isolation="isolated",
    isolation_details=["a uid for each slot", "no namespaces of its own", "4096 processes by rlimits"],
    labels={},
)
OTHER = replace(COORDINATOR, worker_id=2, address="a:2", role="standby")
WORK = d.WorkFacts(events=3, oldest_event_age=0.5, failed_schedules=0, failed_names="")
REDIS = d.RedisFacts(version="7.2.5", policy="noeviction")


def unwell(findings: list[Finding]) -> list[tuple[str, str]]:
    for finding in findings:
        assert finding.name and finding.subject and finding.value
        # What is wrong says so, and the remedy; what is well says neither.
        assert (finding.status == "ok") == (finding.message == "") == (finding.remedy == "")
        assert "\n" not in finding.message + finding.remedy
    return [(finding.name, finding.status) for finding in findings if finding.status != "ok"]


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({}, []),
        ({"version_number": 140_009, "version": "14.9"}, [("postgresql", "error")]),
        ({"read_only": True}, [("postgresql", "error")]),
        ({"fsync": False}, [("durability", "error")]),
        ({"full_page_writes": False}, [("durability", "error")]),
        ({"synchronous_commit": "off"}, [("durability", "error")]),
        ({"synchronous_commit": "remote_apply"}, []),
        ({"connections": 80}, [("connections", "warning")]),
        ({"connections": 97}, [("connections", "error")]),
        ({"encoding": "SQL_ASCII"}, [("encoding", "error")]),
        ({"emit_role": False}, [("roles", "warning")]),
    ],
)
def test_postgresql(change: dict[str, Any], expected: list[tuple[str, str]]) -> None:
    assert unwell(d.server(replace(SERVER, **change))) == expected


@pytest.mark.parametrize(
    ("modes", "says"),
    [
        ({}, ""),
        ({"sync": 1, "async": 2}, ""),
        ({"async": 2}, "every stand-by is asynchronous"),
        ({"unknown": 1}, "may not see whether"),
        ({"sync": 1, "unknown": 1}, ""),
    ],
)
def test_stand_bys(modes: dict[str, int], says: str) -> None:
    found = d.standbys(modes)
    assert (found.status == "ok") == (not says) and says in found.message


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({}, []),
        ({"pending": ["scheduler/0002_x"]}, [("migrations", "error")]),
        ({"changed": ["scheduler/0001_x"]}, [("migrations", "error")]),
        ({"newer": ["scheduler/0003"]}, [("migrations", "warning")]),
        ({"pending": ["a"], "newer": ["b"]}, [("migrations", "error"), ("migrations", "warning")]),
    ],
)
def test_migrations(change: dict[str, Any], expected: list[tuple[str, str]]) -> None:
    assert unwell(d.migrations(d.MigrationFacts(applied=3, **change))) == expected


def test_partitions() -> None:
    assert unwell([d.partitions([])]) == []
    assert unwell([d.partitions(["job_events 2026-11-22"] * 9)]) == [("partitions", "error")]


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        (REDIS, []),
        (d.RedisFacts(error="refused"), [("redis", "warning")]),
        (replace(REDIS, version="6.2"), [("redis", "error")]),
        (replace(REDIS, epoch=7, database_epoch=7), []),
        (replace(REDIS, epoch=7, database_epoch=6), [("redis-shared", "warning")]),
        (replace(REDIS, epoch=7), []),
        (replace(REDIS, policy="allkeys-lru"), [("redis-eviction", "warning")]),
        (replace(REDIS, policy="allkeys-lru", max_bytes=1000), [("redis-eviction", "error")]),
        (replace(REDIS, policy="volatile-ttl", evicted_keys=1), [("redis-eviction", "error")]),
    ],
)
def test_redis(facts: d.RedisFacts, expected: list[tuple[str, str]]) -> None:
    assert unwell(d.redis(facts)) == expected


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({}, []),
        ({"epoch": 0, "worker_id": 0, "address": ""}, [("leader", "error")]),
        ({"resigned": True}, [("leader", "error")]),
        ({"beat_age": 30.0}, [("leader", "error")]),
        ({"tick_age": 30.0}, [("leader", "error")]),
        ({"tick_age": None}, []),
        ({"settled": False}, [("leader", "warning")]),
    ],
)
def test_leader(change: dict[str, Any], expected: list[tuple[str, str]]) -> None:
    assert unwell(d.leader(replace(LEADER, **change))) == expected


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({}, []),
        ({"age": 60.0}, [("coordinator", "error"), ("coordinator", "warning")]),
        ({"clock_skew_seconds": 1.5}, [("clock", "warning")]),
        ({"clock_skew_seconds": -5.0}, [("clock", "error")]),
        ({"clock_skew_seconds": None}, []),
        ({"version": "0.9"}, [("version", "warning")]),
        ({"certificate_not_after": NOW - timedelta(1)}, [("certificate", "error")]),
        ({"certificate_not_after": NOW + timedelta(10)}, []),
        ({"certificate_not_after": NOW + timedelta(2)}, [("certificate", "warning")]),
        ({"certificate_not_after": None}, []),
    ],
)
def test_coordinators(change: dict[str, Any], expected: list[tuple[str, str]]) -> None:
    items = [COORDINATOR, replace(OTHER, **change)]
    assert unwell(d.coordinators(items, now=NOW, version="1.0")) == expected


def test_one_coordinator_is_too_few() -> None:
    assert unwell(d.coordinators([COORDINATOR], now=NOW, version="1.0")) == [("coordinator", "warning")]


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({}, []),
        ({"age": 7.0}, [("executor", "error")]),
        ({"state": "off", "off_reason": "no grant for 10.51 s"}, [("executor", "warning")]),
        ({"state": "draining", "drain_reason": "new disk"}, [("executor", "warning")]),
        ({"state": "detached"}, [("executor", "warning")]),
        ({"state": "cut"}, [("executor", "warning")]),
        ({"clock_skew_seconds": 5.0}, [("clock", "warning")]),
        ({"clock_skew_seconds": 3600.0}, [("clock", "error")]),
        ({"disk_free_bytes": 1 << 30}, [("disk", "warning")]),
        ({"disk_free_bytes": 1 << 20}, [("disk", "error")]),
        ({"disk_free_bytes": None}, []),
        ({"version": ""}, [("version", "warning")]),
        ({"certificate_not_after": NOW}, [("certificate", "error")]),
        ({"quarantined_outcomes": 1}, [("quarantine", "warning")]),
        ({"quarantined_chunks": 7}, [("quarantine", "warning")]),
        ({"isolation": "shared", "isolation_details": []}, [("isolation", "warning")]),
        ({"isolation": "shared", "isolation_details": ["chosen by SCHEDULER_ISOLATION"]}, []),
        ({"isolation": "shared", "isolation_details": [], "labels": {"toban.dev/steps": "container"}}, []),
        ({"isolation_details": ["512 MiB of memory, 2 CPUs by cgroup v2"]}, []),
        ({"isolation_details": ["512 MiB of memory, 9 processes by rlimits"]}, [("isolation", "warning")]),
        ({"isolation_details": ["9 processes, 2 CPUs by rlimits"]}, [("isolation", "warning")]),
        ({"unreachable": True, "state": "draining"}, [("executor", "warning"), ("processes", "error")]),
    ],
)
def test_executors(change: dict[str, Any], expected: list[tuple[str, str]]) -> None:
    items = [EXECUTOR, replace(EXECUTOR, worker_id=6, **change)]
    assert unwell(d.executors(items, now=NOW, version="1.0")) == expected


def test_limits_that_are_not_held_are_named() -> None:
    item = replace(EXECUTOR, isolation_details=["512 MiB of memory, 9 processes, 1.5 CPUs by rlimits"])
    [found] = [one for one in d.executors([item], now=NOW, version="1.0") if one.name == "isolation"]
    assert found.message.endswith("512 MiB of memory is for each process; 1.5 CPUs has no effect")


def test_jobs_that_no_executor_may_run_are_named() -> None:
    assert unwell([d.isolated_jobs(d.IsolatedJobs(jobs=0, names=""))]) == []
    found = d.isolated_jobs(d.IsolatedJobs(jobs=2, names="a, b"))
    assert unwell([found]) == [("isolation", "error")] and found.message.endswith("a, b")


@pytest.mark.parametrize("items", [[], [replace(EXECUTOR, state="draining")], [replace(EXECUTOR, age=9.0)]])
def test_an_executor_has_to_take_work(items: list[d.ExecutorFacts]) -> None:
    assert ("executor", "error") in unwell(d.executors(items, now=NOW, version="1.0"))


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({}, []),
        ({"oldest_event_age": 120.0}, [("events", "warning")]),
        ({"failed_schedules": 2, "failed_names": "a: x; b: y"}, [("schedules", "error")]),
    ],
)
def test_work(change: dict[str, Any], expected: list[tuple[str, str]]) -> None:
    assert unwell(d.work(replace(WORK, **change))) == expected


@given(skew=st.floats(-1e6, 1e6), disk=st.integers(0, 1 << 45), days=st.integers(-1000, 1000))
def test_findings_grow_worse_with_what_they_measure(skew: float, disk: int, days: int) -> None:
    end = NOW + timedelta(days=days)
    item = replace(EXECUTOR, clock_skew_seconds=skew, disk_free_bytes=disk, certificate_not_after=end)
    found = dict(unwell(d.executors([item], now=NOW, version="1.0")))
    ladder = ("ok", "warning", "error")
    assert ladder.index(found.get("clock", "ok")) == sum(abs(skew) > limit for limit in EXECUTOR_SKEW)
    assert ladder.index(found.get("disk", "ok")) == sum(disk < limit for limit in DISK_BYTES)
    assert ladder.index(found.get("certificate", "ok")) == (days <= 3) + (days <= 0)
    member = replace(COORDINATOR, clock_skew_seconds=skew)
    clock = dict(unwell(d.coordinators([member, OTHER], now=NOW, version="1.0"))).get("clock", "ok")
    assert ladder.index(clock) == sum(abs(skew) > limit for limit in COORDINATOR_SKEW)
