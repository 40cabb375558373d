"""The rules and routes by Prometheus' own tools: each alert fires when it should, not before its time, and not otherwise.

`make alerts-test`; without promtool and amtool (Debian: prometheus, prometheus-alertmanager) it is skipped.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from toban_testing.monitoring import rules

ROOT = Path(__file__).resolve().parents[2]
PROMETHEUS = ROOT / "deploy" / "prometheus"
ALERTMANAGER = ROOT / "deploy" / "alertmanager" / "alertmanager.yml"
ALERTS = {alert.name: alert for alert in rules.alerts(ROOT)}
INTERVAL = 15
# Of every series: `1x100` is 1 for 25 minutes.
LONG = 1000

COORDINATOR = 'job="toban-coordinator", instance="a:9464"'
OTHER = 'job="toban-coordinator", instance="b:9464"'
EXECUTOR = 'job="toban-executor", instance="e:9464"'
ARCHIVER = 'job="toban-log-archiver", instance="l:9464"'

Series = dict[str, str]


@dataclass(frozen=True, slots=True)
class Case:
    """Series (name and labels → values in promtool's notation) that make one alert fire, and such that do not.

    `lead` is how long the expression needs to become true, beside the alert's `for`.
    """

    fires: Series
    quiet: Series
    lead: str = "15s"


def steady(value: float) -> str:
    return f"{value}+0x{LONG}"


def jump(value: float) -> str:
    """0 for a minute, then `value`."""
    return f"0+0x4 {value}+0x{LONG}"


def check(name: str, state: int, job: str = COORDINATOR) -> Series:
    return {f'toban_health_check_state{{{job}, check="{name}"}}': steady(state)}


def of(metric: str, value: float, labels: str = COORDINATOR) -> Series:
    return {f"{metric}{{{labels}}}": steady(value)}


CASES = {
    "TobanNoLeader": Case(
        of("toban_is_leader", 0) | of("toban_is_leader", 0, OTHER),
        of("toban_is_leader", 0) | of("toban_is_leader", 1, OTHER),
    ),
    "TobanTwoLeaders": Case(of("toban_is_leader", 1) | of("toban_is_leader", 1, OTHER), of("toban_is_leader", 1)),
    "TobanLeaderFlapping": Case(
        {f"toban_takeovers_total{{{COORDINATOR}}}": f"0+1x{LONG}"},
        {f"toban_takeovers_total{{{COORDINATOR}}}": jump(2)},
        lead="5m",
    ),
    "TobanEpochNearLimit": Case(of("toban_epoch_near_limit", 1), of("toban_epoch_near_limit", 0)),
    "TobanSlotsOverdue": Case(
        of("toban_watchdog_alarm", 1) | of("toban_schedules_overdue_seconds", 0, OTHER),
        of("toban_watchdog_alarm", 0) | of("toban_schedules_overdue_seconds", 20, OTHER),
    ),
    "TobanWatchdogSilent": Case(
        of("toban_is_leader", 1) | of("toban_is_leader", 0, OTHER) | of("toban_watchdog_looks_total", 7, OTHER),
        of("toban_is_leader", 1)
        | of("toban_is_leader", 0, OTHER)
        | {f"toban_watchdog_looks_total{{{OTHER}}}": f"0+3x{LONG}"},
        lead="1m",
    ),
    "TobanSlotsMissed": Case(
        {f'toban_schedule_slots_missed_total{{{COORDINATOR}, outcome="run"}}': jump(3)},
        of("toban_schedule_slots_missed_total", 3, f'{COORDINATOR}, outcome="run"'),
        lead="2m",
    ),
    "TobanFirePassTooLong": Case(
        of("toban_loop_turn_age_seconds", 301, f'{COORDINATOR}, loop="fire"'),
        of("toban_loop_turn_age_seconds", 299, f'{COORDINATOR}, loop="fire"')
        | of("toban_loop_turn_age_seconds", 900, f'{COORDINATOR}, loop="archive"'),
    ),
    "TobanScheduleFailed": Case(
        of("toban_schedules", 1, f'{COORDINATOR}, status="failed"'),
        of("toban_schedules", 0, f'{COORDINATOR}, status="failed"')
        | of("toban_schedules", 9, f'{COORDINATOR}, status="active"'),
    ),
    "TobanEventsWait": Case(of("toban_events_inbox_oldest_seconds", 61), of("toban_events_inbox_oldest_seconds", 59)),
    "TobanQueueOld": Case(
        of("toban_runs_pending_oldest_seconds", 301, f'{COORDINATOR}, reason="no_executor"'),
        of("toban_runs_pending_oldest_seconds", 299, f'{COORDINATOR}, reason="slots"')
        | of("toban_runs_pending_oldest_seconds", 900, f'{COORDINATOR}, reason="retry"'),
    ),
    "TobanDeferredQueueLong": Case(
        of("toban_runs_live", 1001, f'{COORDINATOR}, state="DEFERRED"'),
        of("toban_runs_live", 1000, f'{COORDINATOR}, state="DEFERRED"')
        | of("toban_runs_live", 5000, f'{COORDINATOR}, state="RUNNING"'),
    ),
    "TobanRunsStuck": Case(
        of("toban_runs_oldest_seconds", 61, f'{COORDINATOR}, state="ORPHANED"') | of("toban_runs_overtime_seconds", 0),
        of("toban_runs_oldest_seconds", 61, f'{COORDINATOR}, state="ASSIGNED"')
        | of("toban_runs_oldest_seconds", 90000, f'{COORDINATOR}, state="RUNNING"')
        | of("toban_runs_overtime_seconds", 20),
    ),
    "TobanExecutorLost": Case(
        {f'toban_fences_total{{{COORDINATOR}, kind="lease"}}': jump(1)},
        of("toban_fences_total", 1, f'{COORDINATOR}, kind="lease"')
        | {
            f'toban_fences_total{{{COORDINATOR}, kind="stopped"}}': jump(1),
            f'toban_executors{{{COORDINATOR}, state="cut"}}': steady(0),
        },
        lead="2m",
    ),
    "TobanNoExecutor": Case(
        of("toban_is_leader", 1) | of("toban_executors", 0, f'{COORDINATOR}, state="on"'),
        of("toban_is_leader", 1) | of("toban_executors", 1, f'{COORDINATOR}, state="on"'),
    ),
    "TobanExecutorDiskLow": Case(
        of("toban_executor_disk_free_bytes", 1e9, EXECUTOR), of("toban_executor_disk_free_bytes", 1e11, EXECUTOR)
    ),
    "TobanPostgresUnreachable": Case(check("postgresql", 2), check("postgresql", 0) | check("redis", 2, OTHER)),
    "TobanRedisUnreachable": Case(check("redis", 1), check("redis", 0)),
    "TobanStandbyAsync": Case(
        of("toban_postgresql_standbys", 1, f'{COORDINATOR}, mode="async"')
        | of("toban_postgresql_standbys", 0, f'{COORDINATOR}, mode="sync"'),
        of("toban_postgresql_standbys", 1, f'{COORDINATOR}, mode="async"')
        | of("toban_postgresql_standbys", 1, f'{COORDINATOR}, mode="sync"'),
    ),
    "TobanPoolExhausted": Case(
        {f'toban_pool_errors_total{{{COORDINATOR}, pool="grants", kind="wait"}}': f"0+1x{LONG}"},
        of("toban_pool_errors_total", 9, f'{COORDINATOR}, pool="grants", kind="wait"'),
        lead="1m",
    ),
    "TobanLogBudget": Case(of("toban_log_budget_ratio", 0.81, ARCHIVER), of("toban_log_budget_ratio", 0.79, ARCHIVER)),
    "TobanExecutorLogsFull": Case(
        of("toban_executor_log_bytes", 81, EXECUTOR)
        | of("toban_executor_log_budget_bytes", 100, EXECUTOR)
        | of("toban_executor_log_full", 0, EXECUTOR),
        of("toban_executor_log_bytes", 79, EXECUTOR)
        | of("toban_executor_log_budget_bytes", 100, EXECUTOR)
        | of("toban_executor_log_full", 0, EXECUTOR),
    ),
    "TobanArchiveFailing": Case(
        {f'toban_archive_failures_total{{{ARCHIVER}, kind="unavailable"}}': f"0+1x{LONG}"},
        # One outage of a minute.
        {f'toban_archive_failures_total{{{ARCHIVER}, kind="unavailable"}}': jump(2)},
        lead="1m",
    ),
    "TobanArchiveBehind": Case(
        of("toban_archive_backlog_partitions", 3, ARCHIVER), of("toban_archive_backlog_partitions", 2, ARCHIVER)
    ),
    "TobanTargetDown": Case(
        of("up", 0, EXECUTOR), of("up", 1, EXECUTOR) | of("up", 0, 'job="node", instance="n:9100"')
    ),
    "TobanHealthCritical": Case(of("toban_health_state", 2, EXECUTOR), of("toban_health_state", 1, EXECUTOR)),
    "TobanErrorsMany": Case(check("errors_5_minutes", 1), check("errors_5_minutes", 0)),
    "TobanLoopFailing": Case(
        of("toban_loop_failures_in_row", 3, f'{COORDINATOR}, loop="reap"'),
        of("toban_loop_failures_in_row", 2, f'{COORDINATOR}, loop="reap"'),
    ),
    "TobanCertificateExpiring": Case(check("certificate", 1, EXECUTOR), check("certificate", 0, EXECUTOR)),
    "TobanCertificateEnds": Case(
        of("toban_tls_certificate_not_after_seconds", 43200, EXECUTOR),
        of("toban_tls_certificate_not_after_seconds", 90000, EXECUTOR),
    ),
    "TobanClockSkew": Case(
        of("toban_clock_skew_seconds", -1.2) | of("toban_executors_clock_skew_seconds", 0.1, OTHER),
        of("toban_clock_skew_seconds", 0.9) | of("toban_executors_clock_skew_seconds", 1.9, OTHER),
    ),
}


def tool(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        pytest.skip(f"no {name} here: apt-get install prometheus prometheus-alertmanager")
    return found


def run(*command: str, cwd: Path = ROOT) -> str:
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False, timeout=100)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_there_is_a_case_for_each_alert() -> None:
    assert set(CASES) == set(ALERTS)


def test_rules_and_configuration_are_valid() -> None:
    promtool = tool("promtool")
    assert "SUCCESS" in run(promtool, "check", "config", "prometheus.yml", cwd=PROMETHEUS)
    assert "SUCCESS" in run(tool("amtool"), "check-config", str(ALERTMANAGER))


def test_each_alert_fires_when_it_should_and_only_then(tmp_path: Path) -> None:
    """One file for promtool: of each case a test that fires, one a step before its time, and one that stays quiet."""
    tests = []
    for name, case in CASES.items():
        lasting, lead = rules.seconds(ALERTS[name].lasting), rules.seconds(case.lead)
        tests.append(_test(name, case.fires, {lasting + lead + 2 * INTERVAL: True, max(0, lasting - INTERVAL): False}))
        tests.append(_test(name, case.quiet, {lasting + lead + 2 * INTERVAL: False}))
    suite = {
        "rule_files": [str(path) for path in rules.documents(ROOT)],
        "evaluation_interval": f"{INTERVAL}s",
        "tests": tests,
    }
    path = tmp_path / "alerts.test.yml"
    path.write_text(json.dumps(suite))
    assert "SUCCESS" in run(tool("promtool"), "test", "rules", str(path))


def _test(name: str, series: Series, at: dict[int, bool]) -> dict[str, Any]:
    return {
        "name": name,
        "interval": f"{INTERVAL}s",
        "input_series": [{"series": key, "values": values} for key, values in series.items()],
        "promql_expr_test": [
            {
                "expr": f'(count(ALERTS{{alertname="{name}", alertstate="firing"}}) > bool 0) or vector(0)',
                "eval_time": f"{seconds}s",
                "exp_samples": [{"labels": "{}", "value": int(fires)}],
            }
            for seconds, fires in at.items()
        ],
    }


@pytest.mark.parametrize(("severity", "receiver"), [("critical", "page"), ("warning", "ticket"), ("none", "look")])
def test_an_alert_goes_to_the_receiver_of_its_severity(severity: str, receiver: str) -> None:
    labels = ["alertname=TobanNoLeader", f"severity={severity}"]
    told = run(tool("amtool"), "config", "routes", "test", f"--config.file={ALERTMANAGER}", *labels)
    assert told.split() == [receiver]


def test_what_is_inhibited_are_alerts_that_exist() -> None:
    import re

    import yaml

    config = yaml.safe_load(ALERTMANAGER.read_text(encoding="utf-8"))
    named: set[str] = set()
    for rule in config["inhibit_rules"]:
        for matcher in (*rule["source_matchers"], *rule["target_matchers"]):
            label, value = re.fullmatch(r'(\w+) =~? "(.+)"', matcher).groups()
            if label == "alertname":
                found = {name for name in ALERTS if re.fullmatch(value, name)}
                prefix, _, choices = value.rstrip(")").partition("(")
                assert len(found) == (len(choices.split("|")) if choices else 1), (matcher, prefix)
                named |= found
    assert "TobanNoLeader" in named
