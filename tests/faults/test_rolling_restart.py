"""A rolling restart of every service under 20 runs a second: nothing lost, nothing doubled, every line there (I8, I11, I15)."""

from pathlib import Path

import pytest

from toban_stack.stack import Stack
from toban_testing.admin_client import AdminClient
from toban_testing.rolling_load import (
    SCHEDULES,
    begin_ticks,
    check_logs,
    check_once,
    check_slots,
    end_ticks,
    restart,
    wait_for_ticks,
)
from toban_testing.site_client import signed_in
from toban_testing.stack_fixtures import admin_of, running_stack, sql

pytestmark = pytest.mark.e2e
ROLES = ("coordinator", "executor", "log-archiver", "admin-web")


def whole(admin: AdminClient, executors: int) -> bool:
    """One leads, two coordinators are there, and every executor has grants."""
    cluster = admin.cluster()
    on = [one for one in cluster.executors if one.state == "on"]
    here = [one for one in cluster.coordinators if one.status == "ok"]
    return bool(cluster.leader_address) and len(on) == executors and len(here) == 2


def site_answers(stack: Stack) -> bool:
    """The site shows its first page to a person."""
    return "Toban" in signed_in(stack).get("/")


def test_every_service_restarts_under_load(tmp_path: Path) -> None:
    record = tmp_path / "record"
    with (
        running_stack(tmp_path / "home", log_archivers=2, admin_webs=1) as stack,
        admin_of(stack) as admin,
    ):
        begin_ticks(admin, record)
        names = [name for name, one in stack.processes().items() if one.role in ROLES]
        assert len(names) == 7
        codes = {}
        for name in names:
            codes[name] = restart(stack, name)
            admin.until(lambda: whole(admin, 2), seconds=30, of=f"the cluster is whole after {name}")
            wait_for_ticks(admin, record, 3 * SCHEDULES, seconds=30)
        assert codes == dict.fromkeys(names, 0), "each ends in order"
        assert site_answers(stack)

        runs = end_ticks(stack, admin)
        check_slots(runs)
        check_once(runs, record)
        check_logs(admin, [run["id"] for run in runs])
        stopped = sql(stack, "SELECT 1 FROM scheduler.coordinators WHERE status = 'stopped'")
        assert len(stopped) == 2, "each coordinator that was stopped said so"
