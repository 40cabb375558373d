"""What /healthz of a coordinator says of leadership: an error while nobody leads, whatever the reason, and still ready."""

from dataclasses import replace
from types import SimpleNamespace

import psycopg
import pytest
from structlog.testing import capture_logs

from toban_coordinator.main.health import Health
from toban_coordinator.ports.leader import LeaderView
from toban_domain.epoch import MAX_COUNTER, MAX_GENERATION, Epoch
from toban_observability.error_rate import ErrorRate
from toban_observability.health import Check
from toban_runtime.clock import SystemClock
from toban_testing.fake_coordinator import FixedSettings
from toban_testing.waiting import until

LAST_EPOCH = Epoch(MAX_GENERATION, MAX_COUNTER).pack()


class Seen:
    """A leadership and PostgreSQL's clock as the test wants them."""

    def __init__(self) -> None:
        self.shown = LeaderView(epoch=1 << 51, address="a:1")
        self.leaderless = 0.0
        self.reason = ""
        self.me = SimpleNamespace(address="b:1")
        self.age_seconds: float | None = 0.1
        self.skew_seconds = 0.0

    def view(self) -> LeaderView:
        return self.shown

    def leaderless_seconds(self) -> float:
        return self.leaderless

    def obstacle(self) -> str:
        return self.reason

    def now(self):
        return SystemClock().wall()


def document(leadership, server_time=None):
    return Health(
        leadership=leadership,
        server_time=server_time or leadership,
        redis=SimpleNamespace(up=True),
        settings=FixedSettings(leader_stale_seconds=5),
        errors=ErrorRate(),
        certificate=lambda: Check("ok"),
    ).document()


@pytest.mark.parametrize(
    ("leaderless", "reason", "status", "value"),
    [
        (0.2, "", "ok", "a:1"),
        (4.9, "", "ok", "a:1"),
        (5.1, "", "error", "none for 5 s"),
        (61.0, "no epoch is left", "error", "none for 61 s: no epoch is left"),
    ],
)
def test_no_leader_for_longer_than_leader_stale_seconds(leaderless, reason, status, value):
    seen = Seen()
    seen.leaderless, seen.reason = leaderless, reason
    found = document(seen)
    assert found["checks"]["leader"] == {"status": status, "value": value}
    assert (found["status"] == "error") is (status == "error")
    assert found["ready"], "it answers calls and grants leases all the same"


@pytest.mark.parametrize(
    ("skew", "leading", "status"),
    [(1.9, True, "ok"), (-2.1, True, "error"), (2.1, False, "warning"), (0.0, False, "ok")],
)
def test_a_leader_whose_clock_is_off_fires_nothing_and_is_an_error(skew, leading, status):
    seen = Seen()
    seen.skew_seconds, seen.shown = skew, replace(seen.shown, leading=leading)
    found = document(seen)
    assert found["checks"]["clock_skew_seconds"] == {"status": status, "value": skew}
    assert found["ready"], "everything but firing goes on"


def test_without_postgresql_it_is_not_ready():
    seen = Seen()
    seen.age_seconds, seen.leaderless = 60.0, 60.0
    found = document(seen)
    assert (found["status"], found["ready"]) == ("error", False)


async def test_when_no_epoch_is_left_health_and_log_say_so_and_do_not_blame_postgresql(coordinator, pg_url, redis_url):
    async with await psycopg.AsyncConnection.connect(pg_url, autocommit=True) as connection:
        for table, more in (("leader", ", resigned_epoch = %s"), ("leader_beat", "")):
            await connection.execute(
                f"UPDATE scheduler.{table} SET epoch = %s{more}", [LAST_EPOCH] * (2 if more else 1)
            )
    with capture_logs() as lines:
        async with coordinator(pg_url, redis_url) as node:
            assert "TobanEpochNearLimit.md" in await until(node.leadership.obstacle)
            assert not node.leads
    [line] = [line for line in lines if line["log_level"] == "error"]
    assert line["event"] == "no epoch is left: no coordinator can lead"
    assert "remedy" in line
    assert not [line for line in lines if "PostgreSQL" in line["event"] or "query failed" in line["event"]]
