"""Test cases of each alert, firing and not firing, in promtool's notation: a sample every 15 seconds."""

from __future__ import annotations

from dataclasses import dataclass

# Length of every series: `1x100` is 1 for 25 minutes.
LONG = 1000

COORDINATOR = 'job="toban-coordinator", instance="a:9464"'
OTHER = 'job="toban-coordinator", instance="b:9464"'
EXECUTOR = 'job="toban-executor", instance="e:9464"'
ARCHIVER = 'job="toban-log-archiver", instance="l:9464"'

# Two installations in one Prometheus.
STAGING = f'{COORDINATOR}, namespace="staging"'
PRODUCTION = f'{OTHER}, namespace="production"'

Series = dict[str, str]


@dataclass(frozen=True, slots=True)
class Case:
    """Series (name and labels → values in promtool's notation) for which one alert fires, and for which it does not.

    `lead`: time until the expression becomes true, in addition to the alert's `for`; `where`: labels of the expected alert.
    An alert that always fires has no `quiet`.
    """

    fires: Series
    quiet: Series | None
    lead: str = "15s"
    where: str = ""


def steady(value: float) -> str:
    """Always `value`."""
    return f"{value}+0x{LONG}"


def jump(value: float) -> str:
    """0 for a minute, then `value`."""
    return f"0+0x4 {value}+0x{LONG}"


def check(name: str, state: int, job: str = COORDINATOR) -> Series:
    """One check of /healthz: 0 ok, 1 warning, 2 error."""
    return {f'toban_health_check_state{{{job}, check="{name}"}}': steady(state)}


def of(metric: str, value: float, labels: str = COORDINATOR) -> Series:
    """A constant series."""
    return {f"{metric}{{{labels}}}": steady(value)}


def ends(value: str) -> str:
    """A series that ends after a minute: as when service discovery removes the last process of a service."""
    return f"{value}+0x4"


def fresh(metric: str, value: float, labels: str, *, age: float) -> Series:
    """A process with the counter at `value` at its first scrape, `age` seconds after its start. promtool's time starts in 1970."""
    return of(metric, value, f"{COORDINATOR}, {labels}") | of("toban_process_start_time_seconds", -age)


CASES = {
    "TobanNoLeader": Case(
        of("toban_is_leader", 0) | of("toban_is_leader", 0, OTHER),
        of("toban_is_leader", 0) | of("toban_is_leader", 1, OTHER),
    ),
    "TobanTwoLeaders": Case(of("toban_is_leader", 1) | of("toban_is_leader", 1, OTHER), of("toban_is_leader", 1)),
    "TobanLeaderFlapping": Case(
        of("toban_takeovers_total", 1) | {f"toban_leader_epoch{{{COORDINATOR}}}": f"100+1x{LONG}"},
        {f"toban_leader_epoch{{{COORDINATOR}}}": "0x4 100x4 0 101x9 102x1000"} | of("toban_leader_epoch", 0, OTHER),
        lead="5m",
    ),
    "TobanLeaderLockForeign": Case(
        {f"toban_leader_lock_conflicts_total{{{COORDINATOR}}}": jump(1)},
        of("toban_leader_lock_conflicts_total", 1),
        lead="2m",
    ),
    "TobanEpochNearLimit": Case(of("toban_epoch_near_limit", 1), of("toban_epoch_near_limit", 0)),
    "TobanEpochUnproven": Case(
        {f'toban_epochs_refused_total{{{COORDINATOR}, reason="forged"}}': jump(3)},
        of("toban_epochs_refused_total", 3, f'{COORDINATOR}, reason="forged"'),
        lead="2m",
    ),
    "TobanRegistrationRefused": Case(
        {f'toban_registrations_refused_total{{{COORDINATOR}, reason="label"}}': jump(3)},
        of("toban_registrations_refused_total", 3, f'{COORDINATOR}, reason="label"'),
        lead="2m",
    ),
    "TobanCommitsLost": Case(
        {f"toban_lost_commits_total{{{COORDINATOR}}}": jump(1)},
        of("toban_lost_commits_total", 1),
        lead="2m",
    ),
    "TobanAuditChanged": Case(of("toban_audit_problems", 1), of("toban_audit_problems", 0)),
    "TobanAuditNotChained": Case(of("toban_audit_unchained_seconds", 150), of("toban_audit_unchained_seconds", 60)),
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
    "TobanBreakerOpen": Case(
        of("toban_breakers", 1, f'{COORDINATOR}, state="open"'),
        of("toban_breakers", 0, f'{COORDINATOR}, state="open"')
        | of("toban_breakers", 3, f'{COORDINATOR}, state="half_open"'),
    ),
    "TobanWebhookDown": Case(
        of("toban_webhooks", 1, f'{COORDINATOR}, state="down"'),
        of("toban_webhooks", 0, f'{COORDINATOR}, state="down"')
        | of("toban_webhooks", 3, f'{COORDINATOR}, state="failing"'),
    ),
    "TobanWebhooksUnsent": Case(of("toban_webhook_overdue_seconds", 301), of("toban_webhook_overdue_seconds", 300)),
    "TobanExecutorMisplaced": Case(of("toban_executors_misplaced", 1), of("toban_executors_misplaced", 0)),
    "TobanLimitsIdle": Case(of("toban_limits_idle", 1), of("toban_limits_idle", 0)),
    "TobanLimitBlocked": Case(of("toban_limits_blocked_seconds", 3601), of("toban_limits_blocked_seconds", 3600)),
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
            f'toban_attestations_total{{{COORDINATOR}, source="successor"}}': jump(1),
        },
        lead="2m",
    ),
    "TobanNoExecutor": Case(
        of("toban_is_leader", 1) | of("toban_executors", 0, f'{COORDINATOR}, state="on"'),
        of("toban_is_leader", 1) | of("toban_executors", 1, f'{COORDINATOR}, state="on"'),
    ),
    "TobanJobsFrozen": Case(
        of("toban_executor_frozen_jobs", 3, EXECUTOR), of("toban_executor_frozen_jobs", 0, EXECUTOR)
    ),
    "TobanRunsResumed": Case(
        {f"toban_executor_resumes_total{{{EXECUTOR}}}": jump(2)},
        of("toban_executor_resumes_total", 2, EXECUTOR),
        lead="2m",
    ),
    "TobanExecutorDiskLow": Case(
        of("toban_executor_disk_free_bytes", 1e9, EXECUTOR) | of("toban_executor_disk_size_bytes", 1e11, EXECUTOR),
        of("toban_executor_disk_free_bytes", 3e9, EXECUTOR) | of("toban_executor_disk_size_bytes", 1e11, EXECUTOR),
    ),
    "TobanProcessesUnreachable": Case(
        of("toban_executor_processes_unreachable", 1, EXECUTOR), of("toban_executor_processes_unreachable", 0, EXECUTOR)
    ),
    "TobanPostgresUnreachable": Case(check("postgresql", 2), check("postgresql", 0) | check("redis", 2, OTHER)),
    "TobanPostgresGone": Case(
        check("postgresql", 2) | check("postgresql", 2, OTHER) | check("postgresql", 0, ARCHIVER),
        check("postgresql", 2) | check("postgresql", 0, OTHER) | check("postgresql", 2, ARCHIVER),
    ),
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
    "TobanPostgresSessionsHang": Case(
        {f'toban_pool_sessions_hung_total{{{COORDINATOR}, pool="election"}}': f"0+1x{LONG}"},
        # A proxy whose backend died: every session once.
        {f'toban_pool_sessions_hung_total{{{COORDINATOR}, pool="election"}}': jump(20)},
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
    "TobanExecutorQuarantine": Case(
        of("toban_executor_quarantined", 1, f'{EXECUTOR}, kind="outcome"'),
        of("toban_executor_quarantined", 0, f'{EXECUTOR}, kind="outcome"')
        | of("toban_executor_quarantined", 0, f'{EXECUTOR}, kind="chunk"'),
        where='kind="outcome"',
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
    "TobanHeartbeat": Case({}, None),
    "TobanServiceGone": Case(
        {
            **of("up", 1),
            **of("up", 1, EXECUTOR),
            **of("up", 1, ARCHIVER),
            'up{job="toban-admin-web", instance="w:9464"}': ends("1"),
        },
        of("up", 1) | of("up", 0, OTHER) | of("up", 1, EXECUTOR) | of("up", 1, ARCHIVER),
        lead="6m",
        where='job="toban-admin-web"',
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
        of("toban_tls_certificate_not_after_seconds", 43200, EXECUTOR) | check("certificate", 1, EXECUTOR),
        of("toban_tls_certificate_not_after_seconds", 90000, EXECUTOR)
        | of("toban_tls_authority_not_after_seconds", 90000, EXECUTOR)
        | check("certificate", 1, EXECUTOR),
    ),
    "TobanClockOff": Case(
        of("toban_clock_skew_seconds", -2.5) | of("toban_is_leader", 1) | of("toban_clock_skew_seconds", 0.1, OTHER),
        of("toban_clock_skew_seconds", -2.5)
        | of("toban_is_leader", 0)
        | of("toban_clock_skew_seconds", 1.9, OTHER)
        | of("toban_is_leader", 1, OTHER),
    ),
    "TobanClockSkew": Case(
        of("toban_clock_skew_seconds", -1.2) | of("toban_executors_clock_skew_seconds", 0.1, OTHER),
        of("toban_clock_skew_seconds", 0.9) | of("toban_executors_clock_skew_seconds", 1.9, OTHER),
    ),
}


# Additional cases of alerts: name → what is special → case.
MORE = {
    "TobanNoLeader": {
        "one installation does not hide another": Case(
            of("toban_is_leader", 0, STAGING) | of("toban_is_leader", 1, PRODUCTION),
            of("toban_is_leader", 1, STAGING) | of("toban_is_leader", 1, PRODUCTION),
            where='namespace="staging"',
        ),
        "all coordinators of one installation have disappeared": Case(
            {f"toban_is_leader{{{STAGING}}}": ends("1")} | of("toban_is_leader", 1, PRODUCTION),
            of("toban_is_leader", 1, STAGING) | of("toban_is_leader", 1, PRODUCTION),
            lead="6m",
            where='namespace="staging"',
        ),
        "there has never been a coordinator": Case(of("up", 0), of("up", 0) | of("toban_is_leader", 1)),
    },
    "TobanTwoLeaders": {
        "one in each installation": Case(
            of("toban_is_leader", 1, STAGING) | of("toban_is_leader", 1, STAGING.replace("a:9464", "c:9464")),
            of("toban_is_leader", 1, STAGING) | of("toban_is_leader", 1, PRODUCTION),
            where='namespace="staging"',
        ),
        "a leader's machine was removed, with a scrape interval of 30 s": Case(
            of("toban_is_leader", 1) | of("toban_is_leader", 1, OTHER),
            {
                f"toban_is_leader{{{COORDINATOR}}}": "1 _ 1 _x4 stale",
                f"toban_is_leader{{{OTHER}}}": f"0 _ 1x{LONG}",
            },
        ),
    },
    "TobanPoolExhausted": {
        "PostgreSQL was unreachable for a minute": Case(
            {f'toban_pool_errors_total{{{COORDINATOR}, pool="grants", kind="wait"}}': f"0+1x{LONG}"},
            {f'toban_pool_errors_total{{{COORDINATOR}, pool="grants", kind="wait"}}': f"0x4 5 9 14 18x{LONG}"},
            lead="1m",
        ),
    },
    "TobanNoExecutor": {
        "one installation does not hide another": Case(
            of("toban_is_leader", 1, STAGING)
            | of("toban_is_leader", 1, PRODUCTION)
            | of("toban_executors", 3, f'{PRODUCTION}, state="on"'),
            of("toban_is_leader", 1, PRODUCTION) | of("toban_executors", 3, f'{PRODUCTION}, state="on"'),
            where='namespace="staging"',
        ),
    },
    "TobanWatchdogSilent": {
        "no sub-leader has ever checked": Case(
            of("toban_is_leader", 1) | of("toban_is_leader", 0, OTHER), of("toban_is_leader", 1)
        ),
    },
    "TobanPostgresGone": {
        "one installation does not hide another": Case(
            check("postgresql", 2, STAGING) | check("postgresql", 0, PRODUCTION),
            check("postgresql", 0, STAGING) | check("postgresql", 0, PRODUCTION),
            where='namespace="staging"',
        ),
    },
    "TobanSlotsMissed": {
        "by a coordinator that started after an outage of all coordinators": Case(
            fresh("toban_schedule_slots_missed_total", 40, 'outcome="run"', age=30),
            fresh("toban_schedule_slots_missed_total", 40, 'outcome="run"', age=900),
        ),
    },
    "TobanExecutorLost": {
        "found by the witness that its guards started": Case(
            {f'toban_attestations_total{{{COORDINATOR}, source="witness"}}': jump(1)},
            of("toban_attestations_total", 1, f'{COORDINATOR}, source="witness"'),
            lead="2m",
        ),
        "found by a coordinator that started after an outage of all coordinators": Case(
            fresh("toban_fences_total", 2, 'kind="lease"', age=30),
            fresh("toban_fences_total", 2, 'kind="lease"', age=600),
        ),
    },
    "TobanLeaderFlapping": {
        "a single coordinator that crashes in each term": Case(
            of("toban_takeovers_total", 1)
            | {f"toban_leader_epoch{{{COORDINATOR}}}": "0x3 1x3 0x3 2x3 0x3 3x3 0x3 4x3 0x3 5x999"},
            # A restarted coordinator exposes 0 before it has read the epoch.
            {f"toban_leader_epoch{{{COORDINATOR}}}": "7x3 0x3 7x3 0x3 7x3 0x3 7x3 0x3 7x999"},
            lead="10m",
        ),
    },
    "TobanServiceGone": {
        "the only installation never had the service": Case(
            of("up", 1) | of("up", 1, EXECUTOR),
            of("up", 1) | of("up", 1, EXECUTOR) | of("up", 1, ARCHIVER),
            where='job="toban-log-archiver"',
        ),
        "no instance can be scraped": Case(
            of("up", 1) | of("up", 0, EXECUTOR) | of("up", 1, ARCHIVER),
            of("up", 1) | of("up", 1, EXECUTOR) | of("up", 1, ARCHIVER),
            where='job="toban-executor"',
        ),
    },
    "TobanExecutorDiskLow": {
        "a small volume": Case(
            of("toban_executor_disk_free_bytes", 2e8, EXECUTOR) | of("toban_executor_disk_size_bytes", 1e9, EXECUTOR),
            of("toban_executor_disk_free_bytes", 9e8, EXECUTOR) | of("toban_executor_disk_size_bytes", 1e9, EXECUTOR),
        ),
    },
    "TobanCertificateEnds": {
        "the CA certificate expires": Case(
            of("toban_tls_certificate_not_after_seconds", 90000, EXECUTOR)
            | of("toban_tls_authority_not_after_seconds", 43200, EXECUTOR)
            | check("certificate", 1, EXECUTOR),
            of("toban_tls_certificate_not_after_seconds", 90000, EXECUTOR),
        ),
        "a certificate valid for a day has expired; earlier ones were renewed in time": Case(
            of("toban_tls_certificate_not_after_seconds", 0, EXECUTOR) | check("certificate", 2, EXECUTOR),
            of("toban_tls_certificate_not_after_seconds", 28800, EXECUTOR) | check("certificate", 0, EXECUTOR),
        ),
    },
}
