"""Which alerts the overview names, against the alert rules themselves; and what the queue waits for."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from toban_coordinator.decide.cluster.overview import (
    AlertFacts,
    Queue,
    Waiting,
    _rules,
    active_alerts,
    check_states,
    queues,
)

RULES = Path(__file__).parents[4] / "deploy/prometheus/toban.rules.yml"
WELL = AlertFacts(
    leaderless=False,
    beat_age=0.3,
    overdue=0.0,
    failed_schedules=0,
    event_age=0.0,
    open_breakers=0,
    webhooks_down=0,
    webhook_overdue=0.0,
    executors_on=1,
    executors_cut=0,
    refused_epochs=0,
    audit_problems=0,
    standbys={},
    queues={},
    health={"redis": "ok"},
)
CASES: list[tuple[dict[str, Any], str, float]] = [
    ({"leaderless": True, "executors_on": 0}, "TobanNoLeader", 1.0),
    ({"beat_age": 31.0}, "TobanNoLeader", 31.0),
    ({"overdue": 30.5}, "TobanSlotsOverdue", 30.5),
    ({"failed_schedules": 2}, "TobanScheduleFailed", 2),
    ({"event_age": 61.0}, "TobanEventsWait", 61.0),
    ({"queues": {"executor": Queue(3, 301.0)}}, "TobanQueueOld", 301.0),
    ({"queues": {"worker": Queue(1, 400.0)}}, "TobanQueueOld", 400.0),
    ({"queues": {"limit": Queue(1001, 5.0)}}, "TobanDeferredQueueLong", 1001),
    ({"open_breakers": 1}, "TobanBreakerOpen", 1),
    ({"webhooks_down": 1}, "TobanWebhookDown", 1),
    ({"webhook_overdue": 301.0}, "TobanWebhooksUnsent", 301.0),
    ({"executors_on": 0}, "TobanNoExecutor", 1),
    ({"executors_cut": 1}, "TobanExecutorLost", 1),
    ({"refused_epochs": 1}, "TobanEpochUnproven", 1),
    ({"audit_problems": 1}, "TobanAuditChanged", 1),
    ({"standbys": {"async": 1}}, "TobanStandbyAsync", 1),
    ({"health": {"redis": "warning"}}, "TobanRedisUnreachable", 1),
    ({"health": {"certificate": "error"}}, "TobanCertificateExpiring", 1),
    ({"health": {"errors_5_minutes": "warning"}}, "TobanErrorsMany", 1),
    ({"health": {"epoch": "warning"}}, "TobanEpochNearLimit", 1),
]


@pytest.mark.parametrize(("given", "name", "value"), CASES)
def test_an_alert_whose_condition_holds(given: dict[str, Any], name: str, value: float) -> None:
    [alert] = active_alerts(replace(WELL, **given))
    assert (alert.name, alert.value) == (name, value)


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"beat_age": 29.0, "overdue": 30.0, "event_age": 60.0},
        # A limit holds them, or they wait for their next attempt: both are wanted.
        {"queues": {"limit": Queue(1000, 9999.0), "retry": Queue(5, 9999.0), "executor": Queue(5, 300.0)}},
        {"standbys": {"async": 1, "sync": 1}},
    ],
)
def test_no_alert(given: dict[str, Any]) -> None:
    assert active_alerts(replace(WELL, **given)) == []


def test_critical_alerts_come_first() -> None:
    found = active_alerts(replace(WELL, open_breakers=1, overdue=99.0, executors_on=0))
    assert [one.severity for one in found] == ["critical", "critical", "warning"]


def test_names_severities_and_limits_are_those_of_the_alert_rules() -> None:
    rules = {
        rule["alert"]: rule
        for group in yaml.safe_load(RULES.read_text(encoding="utf-8"))["groups"]
        for rule in group["rules"]
        if "alert" in rule
    }
    for ours in _rules(WELL):
        assert ours.severity == rules[ours.name]["labels"]["severity"], ours.name
        assert not ours.above or f"> {ours.above:g}" in rules[ours.name]["expr"], ours.name
    assert {name for _, name, _ in CASES} == {ours.name for ours in _rules(WELL)}


def test_what_the_queue_waits_for() -> None:
    found = queues(
        [
            Waiting(state="PENDING", retry=False, runs=2, oldest=5.0),
            Waiting(state="PENDING", retry=False, runs=1, oldest=9.0),
            Waiting(state="PENDING", retry=True, runs=4, oldest=1.0),
            Waiting(state="DEFERRED", retry=False, runs=7, oldest=60.0),
            Waiting(state="WAITING_WORKER", retry=False, runs=1, oldest=2.0),
        ]
    )
    assert found == {
        "executor": Queue(3, 9.0),
        "retry": Queue(4, 1.0),
        "limit": Queue(7, 60.0),
        "worker": Queue(1, 2.0),
    }


def test_the_states_of_checks() -> None:
    assert check_states({"status": "ok", "checks": {"redis": {"status": "ok", "value": True}}}) == {"redis": "ok"}
    assert check_states({"status": "ok"}) == {}
