"""Redis emptied, and Redis stopped for 30 s, under load: no run lost or doubled, the epoch never goes back (I1, I13)."""

import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import redis

from toban_fencing.worker_registry import SEQUENCE_KEY
from toban_runtime.clock import SystemClock
from toban_stack.stack import Stack
from toban_testing.admin_client import AdminClient
from toban_testing.run_recorder import by_run, recorder_job
from toban_testing.stack_fixtures import admin_of, flush_redis, running_stack, sql

pytestmark = pytest.mark.e2e
OUTAGE_SECONDS = 30


def load_until(
    admin: AdminClient, record: Path, done: Callable[[], bool], *, seconds: float = 60.0
) -> tuple[list[int], list[int]]:
    """Start runs a few at a time until `done`; returns their ids and every epoch seen on the way."""
    ids: list[int] = []
    epochs: list[int] = []

    def step() -> bool:
        ids.extend(admin.start("without-redis", count=3))
        epochs.append(admin.cluster().epoch)
        return done()

    admin.until(step, seconds=seconds, of="the fault has passed")
    return ids, epochs


def check(admin: AdminClient, record: Path, ids: list[int], epochs: list[int]) -> None:
    for run_id in ids:
        run = admin.until_ended(run_id)
        assert (run.state, run.attempt, run.lost_count) == ("SUCCEEDED", 1, 0)
    record_of = by_run(record)
    assert all([mark.what for mark in record_of[run_id]] == ["start", "end"] for run_id in ids)
    assert epochs == sorted(epochs), "the epoch never goes back"


def prepared(stack: Stack, admin: AdminClient, record: Path) -> int:
    record.mkdir()
    admin.apply(recorder_job("without-redis", record, seconds=0.1))
    for run_id in admin.start("without-redis", count=5):
        admin.until_ended(run_id)
    return admin.cluster().epoch


@pytest.mark.seed(23, 125)
def test_redis_emptied_under_load(stack: Stack, admin: AdminClient, tmp_path: Path, at_most: Any) -> None:
    record = tmp_path / "record"
    epoch = prepared(stack, admin, record)
    turns = 0

    def emptied_thrice() -> bool:
        nonlocal turns
        turns += 1
        if turns % 10 == 5:
            flush_redis(stack)
        return turns > 40

    ids, epochs = load_until(admin, record, emptied_thrice)
    check(admin, record, ids, [epoch, *epochs])
    # On a busy machine the leader may lose its term meanwhile, as `epochs` says.
    assert len({epoch, *epochs, admin.cluster().epoch}) <= 1 + at_most(0), "an empty Redis deposes nobody"
    flush_redis(stack)
    newest = sql(stack, "SELECT max(worker_id) AS id FROM scheduler.executors")[0]["id"]
    with redis.Redis.from_url(stack.endpoints().redis_url) as client:
        admin.until(lambda: int(client.get(SEQUENCE_KEY) or 0) >= newest, of="the mirror of ids returns")


@pytest.mark.long
@pytest.mark.seed(23, 179)
def test_redis_stopped_for_thirty_seconds_under_load(tmp_path: Path) -> None:
    """On a stack of its own: a stopped Redis stops what other tests do."""
    record = tmp_path / "record"
    with running_stack(tmp_path / "home") as stack, admin_of(stack) as admin:
        epoch = prepared(stack, admin, record)
        stack.kill("redis", signal.SIGKILL)
        clock = SystemClock().monotonic
        end = clock() + OUTAGE_SECONDS
        ids, epochs = load_until(admin, record, lambda: clock() >= end, seconds=OUTAGE_SECONDS + 30)
        stack.start("redis")
        returned = clock() + 5
        more, later = load_until(admin, record, lambda: clock() >= returned)
        check(admin, record, ids + more, [epoch, *epochs, *later])
