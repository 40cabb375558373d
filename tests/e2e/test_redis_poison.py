"""A foreign value in Redis' leader lock, once or again and again as of another installation: schedules fire on, and terms do not end."""

from collections.abc import Callable
from pathlib import Path

import pytest
import redis

from toban_domain.epoch import Epoch
from toban_stack.stack import Stack
from toban_testing.admin_client import AdminClient
from toban_testing.run_recorder import by_run, interval_schedule, recorder_job
from toban_testing.stack_fixtures import admin_of, running_stack, sql

pytestmark = [pytest.mark.e2e, pytest.mark.long]
LOCK = "scheduler:leader:lock"
POISON = f"{9 * 10**18}:999"


def terms(stack: Stack) -> int:
    """The counter of the present epoch."""
    return Epoch.unpack(sql(stack, "SELECT epoch FROM scheduler.leader")[0]["epoch"]).counter


def fire_on(admin: AdminClient, record: Path, slots: int, step: Callable[[], object]) -> None:
    goal = len(by_run(record)) + slots

    def fired() -> bool:
        step()
        return len(by_run(record)) >= goal

    admin.until(fired, of=f"{slots} more slots ran")


@pytest.mark.seed(39)
def test_a_poisoned_leader_lock_stops_nothing(tmp_path: Path) -> None:
    record = tmp_path / "record"
    record.mkdir()
    with running_stack(tmp_path / "home") as stack, admin_of(stack) as admin:
        admin.apply(recorder_job("tick", record, seconds=0.05), interval_schedule("tick", "tick", seconds=1))
        fire_on(admin, record, 2, lambda: None)
        before = terms(stack)
        with redis.Redis.from_url(stack.endpoints().redis_url, decode_responses=True) as client:
            client.set(LOCK, POISON)
            fire_on(admin, record, 5, lambda: None)
            assert client.get(LOCK) != POISON, "the leader has overwritten it"
            assert 0 < client.pttl(LOCK) <= 2000
            # Another installation that renews its own lock. One slow answer of PostgreSQL may end a term; without the rule one ends each second.
            fire_on(admin, record, 10, lambda: client.set(LOCK, POISON, px=2000))
        assert terms(stack) - before <= 2
        runs = sql(stack, "SELECT state, attempt FROM scheduler.job_runs WHERE finished_at IS NOT NULL")
        assert {(run["state"], run["attempt"]) for run in runs} == {("SUCCEEDED", 1)}
