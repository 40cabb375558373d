"""What the overview says of the queue, and which alert rules would fire now. Names, severities and limits are those of the alert rules."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

# A take-over takes some seconds, so a leader that is silent for longer is none.
LEADERLESS_SECONDS = 30.0
_KINDS = {"PENDING": "executor", "DEFERRED": "limit", "WAITING_WORKER": "worker"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """Due runs of one state that no executor holds; `oldest` is an age, seconds."""

    state: str
    retry: bool
    runs: int
    oldest: float


@dataclass(frozen=True, slots=True)
class Queue:
    """What waits for one kind of thing: how many runs, and the age of the oldest, seconds."""

    runs: int = 0
    oldest: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertFacts:
    """What the rules compare. Ages and delays are seconds; `health` is the status of each check of /healthz of the coordinator that answers."""

    leaderless: bool
    beat_age: float
    overdue: float
    failed_schedules: int
    event_age: float
    open_breakers: int
    webhooks_down: int
    webhook_overdue: float
    executors_on: int
    executors_cut: int
    refused_epochs: int
    audit_problems: int
    standbys: Mapping[str, int]
    queues: Mapping[str, Queue]
    health: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class ActiveAlert:
    """A rule whose condition holds; `unit` is s or "" for a count."""

    name: str
    severity: str
    value: float
    unit: str = ""


@dataclass(frozen=True, slots=True)
class _Rule:
    name: str
    severity: str
    value: float
    above: float
    unit: str = ""


def queues(found: Iterable[Waiting]) -> dict[str, Queue]:
    """Kind → what waits for it: executor, retry, limit, worker; without those that nothing waits for."""
    sums: dict[str, Queue] = {}
    for one in found:
        kind = "retry" if one.retry and one.state == "PENDING" else _KINDS[one.state]
        before = sums.get(kind, Queue())
        sums[kind] = Queue(before.runs + one.runs, max(before.oldest, one.oldest))
    return sums


def active_alerts(facts: AlertFacts) -> Sequence[ActiveAlert]:
    """The rules whose condition holds now, critical ones first. They say nothing of how long it has held."""
    holding = [
        ActiveAlert(rule.name, rule.severity, rule.value, rule.unit)
        for rule in _rules(facts)
        if rule.value > rule.above
    ]
    return sorted(holding, key=lambda alert: (alert.severity != "critical", alert.name))


def _rules(facts: AlertFacts) -> Sequence[_Rule]:
    silent = max(facts.beat_age, 1.0) if facts.leaderless or facts.beat_age > LEADERLESS_SECONDS else 0.0
    aged = [queue.oldest for kind, queue in facts.queues.items() if kind in ("executor", "worker")]
    only_async = facts.standbys.get("async", 0) if not facts.standbys.get("sync", 0) else 0
    return (
        _Rule("TobanNoLeader", "critical", silent, 0, "s"),
        _Rule("TobanSlotsOverdue", "critical", facts.overdue, 30, "s"),
        _Rule("TobanScheduleFailed", "warning", facts.failed_schedules, 0),
        _Rule("TobanEventsWait", "warning", facts.event_age, 60, "s"),
        _Rule("TobanQueueOld", "warning", max(aged, default=0.0), 300, "s"),
        _Rule("TobanDeferredQueueLong", "warning", facts.queues.get("limit", Queue()).runs, 1000),
        _Rule("TobanBreakerOpen", "warning", facts.open_breakers, 0),
        _Rule("TobanWebhookDown", "warning", facts.webhooks_down, 0),
        _Rule("TobanWebhooksUnsent", "warning", facts.webhook_overdue, 300, "s"),
        _Rule("TobanNoExecutor", "critical", 0 if facts.executors_on or facts.leaderless else 1, 0),
        _Rule("TobanExecutorLost", "warning", facts.executors_cut, 0),
        _Rule("TobanEpochUnproven", "warning", facts.refused_epochs, 0),
        _Rule("TobanAuditChanged", "critical", facts.audit_problems, 0),
        _Rule("TobanStandbyAsync", "warning", only_async, 0),
        *(_Rule(name, "warning", _unwell(facts.health, check), 0) for check, name in _CHECKS.items()),
    )


_CHECKS = {
    "redis": "TobanRedisUnreachable",
    "certificate": "TobanCertificateExpiring",
    "errors_5_minutes": "TobanErrorsMany",
    "epoch": "TobanEpochNearLimit",
}


def _unwell(health: Mapping[str, str], check: str) -> int:
    return int(health.get(check, "ok") != "ok")


def check_states(document: Mapping[str, Any]) -> dict[str, str]:
    """The status of each check of a document of /healthz."""
    return {name: str(check["status"]) for name, check in document.get("checks", {}).items()}
