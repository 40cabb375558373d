"""The Grafana dashboard as code: rows of panels with their queries."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

WIDTH = 24
HEIGHT = 7
SOURCE = {"type": "prometheus", "uid": "${source}"}


@dataclass(frozen=True, slots=True)
class Panel:
    """A graph, or with `stat` a single number; `queries` are (expression, legend), `unit` is a Grafana unit."""

    title: str
    unit: str
    queries: tuple[tuple[str, str], ...]
    stat: bool = False
    width: int = 8
    about: str = ""


@dataclass(frozen=True, slots=True)
class Row:
    """Panels under one heading."""

    title: str
    panels: tuple[Panel, ...]


def graph(title: str, unit: str, *queries: tuple[str, str], about: str = "") -> Panel:
    """A time series panel."""
    return Panel(title, unit, queries, about=about)


def number(title: str, unit: str, query: str, about: str = "") -> Panel:
    """A stat panel."""
    return Panel(title, unit, ((query, ""),), stat=True, width=4, about=about)


def quantiles(metric: str, by: str = "") -> tuple[tuple[str, str], ...]:
    """p50 and p99 of a histogram."""
    group, legend = (f"le, {by}", f" {{{{{by}}}}}") if by else ("le", "")
    return tuple(
        (
            f"histogram_quantile({q}, sum by ({group}) (rate({metric}_bucket[$__rate_interval])))",
            f"p{int(q * 100)}{legend}",
        )
        for q in (0.5, 0.99)
    )


def rate(metric: str, by: str, *, only: str = "") -> tuple[str, str]:
    """Increments of a counter per second, by a label. `only` selects series; no match is shown as 0 instead of an empty panel."""
    found = f"sum by ({by}) (rate({metric}{only}[$__rate_interval]))"
    none = f" or 0 * sum by ({by}) (rate({metric}[$__rate_interval]))" if only else ""
    return f"{found}{none}", f"{{{{{by}}}}}"


ROWS = (
    Row(
        "Overview",
        (
            number("Leaders", "none", "sum(toban_is_leader)", "Exactly one."),
            number("Worst health", "none", "max(toban_health_state)", "0 ok, 1 degraded, 2 critical."),
            number("Executors accepting work", "none", 'sum(toban_executors{state="on"})'),
            number("Oldest due slot without a run", "s", "max(toban_schedules_overdue_seconds)"),
            number("Oldest pending run", "s", 'max(toban_runs_pending_oldest_seconds{reason!~"retry|deferred"})'),
            number("Failed schedules", "none", 'max(toban_schedules{status="failed"})'),
        ),
    ),
    Row(
        "Runs",
        (
            graph("Runs created per second", "ops", ("toban:runs_submitted:rate5m", "{{origin}}")),
            graph("Runs finished per second", "ops", ("toban:runs_finished:rate5m", "{{state}}")),
            graph("Live runs", "none", ("max by (state) (toban_runs_live)", "{{state}}")),
            graph("Pending runs by reason", "none", ("max by (reason) (toban_runs_pending)", "{{reason}}")),
            graph(
                "Age of the oldest pending run",
                "s",
                ("max by (reason) (toban_runs_pending_oldest_seconds)", "{{reason}}"),
            ),
            graph("Run duration", "s", *quantiles("toban_run_duration_seconds", "kind")),
            graph("Creation to start", "s", *quantiles("toban_run_wait_seconds")),
            graph("Scheduled time to start", "s", *quantiles("toban_run_start_lag_seconds", "origin")),
            graph("Skipped runs per second", "ops", rate("toban_runs_skipped_total", "reason")),
            graph("Longest time in state", "s", ("max by (state) (toban_runs_oldest_seconds)", "{{state}}")),
            graph(
                "Refused and undelivered starts per second",
                "ops",
                rate("toban_dispatch_refused_total", "refusal"),
                rate("toban_dispatch_undelivered_total", "kind"),
            ),
            graph("On-demand runs per second by path", "ops", rate("toban_express_total", "result")),
        ),
    ),
    Row(
        "Limits",
        (
            graph("Limits", "none", ("max by (state) (toban_limits)", "{{state}}")),
            graph(
                "Limits: taken of what is admitted",
                "none",
                ("max by (kind) (toban_limits_held)", "{{kind}}: taken"),
                ("max by (kind) (toban_limits_size)", "{{kind}}: admitted"),
            ),
            graph("Deferred runs", "none", ("max by (kind) (toban_limits_waiting)", "{{kind}}")),
            graph(
                "Deferred and resumed runs per second",
                "ops",
                ("sum(rate(toban_runs_deferred_total[$__rate_interval]))", "deferred"),
                ("sum(rate(toban_runs_resumed_total[$__rate_interval]))", "resumed"),
            ),
            graph(
                "Breakers and reduced limits",
                "none",
                ("max by (state) (toban_breakers)", "breaker {{state}}"),
                ("max(toban_limits_reduced)", "reduced"),
                ("max(toban_limits_idle)", "idle"),
            ),
            graph("Breaker moves per second", "ops", rate("toban_breaker_moves_total", "state")),
            graph("Longest time without a start", "s", ("max(toban_limits_blocked_seconds)", "blocked")),
        ),
    ),
    Row(
        "Schedules and events",
        (
            graph("Slot to run creation", "s", *quantiles("toban_schedule_row_lag_seconds")),
            graph("Slots without a run per second", "ops", rate("toban_schedule_slots_skipped_total", "reason")),
            graph("Missed slots per second", "ops", rate("toban_schedule_slots_missed_total", "outcome")),
            graph("Schedules", "none", ("max by (status) (toban_schedules)", "{{status}}")),
            graph(
                "Oldest due slot",
                "s",
                ("max(toban_schedules_overdue_seconds)", "leader"),
                ("max(toban_watchdog_overdue_seconds)", "watchdog"),
            ),
            graph("Fire failures per second", "ops", rate("toban_schedule_fire_failures_total", "outcome")),
            graph("Processed events per second", "ops", rate("toban_events_processed_total", "outcome")),
            graph("Unprocessed events", "none", ("max(toban_events_inbox)", "events")),
            graph("Event processing latency", "s", *quantiles("toban_event_lag_seconds")),
        ),
    ),
    Row(
        "Leadership",
        (
            graph("Leader", "none", ("toban_is_leader", "{{instance}}")),
            graph("Takeovers within one hour", "none", ("changes(toban:leader_epoch:max[1h])", "takeovers")),
            graph("Epoch", "none", ("max(toban_leader_epoch)", "epoch")),
            graph("Leader heartbeat commit latency", "s", *quantiles("toban_leader_beat_seconds")),
            graph("Leader lock latency", "s", *quantiles("toban_leader_lock_seconds", "call")),
            graph("Elector timer delay", "s", *quantiles("toban_elector_lateness_seconds")),
            graph(
                "Clock difference to PostgreSQL",
                "s",
                ("toban_clock_skew_seconds", "{{instance}}"),
                ("max(toban_executors_clock_skew_seconds)", "worst executor"),
            ),
            graph(
                "Loop turn duration, p99",
                "s",
                (
                    "histogram_quantile(0.99, sum by (le, loop) (rate(toban_loop_turn_seconds_bucket[$__rate_interval])))",
                    "{{loop}}",
                ),
            ),
            graph(
                "Failed loop turns per second", "ops", rate("toban_loop_turns_total", "loop", only='{result="error"}')
            ),
        ),
    ),
    Row(
        "Executors",
        (
            graph("Slots in use", "percentunit", ("toban_executor_slots_used / toban_executor_slots", "{{instance}}")),
            graph("Host load", "percentunit", ("toban_executor_load_ratio", "{{instance}}")),
            graph("Free disk", "bytes", ("toban_executor_disk_free_bytes", "{{instance}}")),
            graph("Executors by state", "none", ("max by (state) (toban_executors)", "{{state}}")),
            graph("Fences per second", "ops", rate("toban_fences_total", "kind")),
            graph("Remaining lease time", "s", ("toban_executor_lease_left_seconds", "{{instance}}")),
            graph("Grants per second", "ops", rate("toban_grants_total", "result")),
            graph("Unacknowledged reports", "none", ("toban_executor_reports_pending", "{{instance}}")),
            graph("Ended attempts per second", "ops", rate("toban_executor_outcomes_total", "kind")),
        ),
    ),
    Row(
        "RPCs and stores",
        (
            graph("RPCs per second", "ops", rate("toban_rpc_total", "method")),
            graph(
                "Failed RPCs",
                "percentunit",
                ("toban:rpc_errors:ratio5m or 0 * sum by (namespace, job) (rate(toban_rpc_total[5m]))", "{{job}}"),
            ),
            graph(
                "RPC duration, p99",
                "s",
                (
                    "histogram_quantile(0.99, sum by (le, method) (rate(toban_rpc_seconds_bucket[$__rate_interval])))",
                    "{{method}}",
                ),
            ),
            graph(
                "Connections in use",
                "none",
                ('sum by (instance, pool) (toban_pool_connections{state="used"})', "{{instance}} {{pool}}"),
            ),
            graph(
                "Callers waiting for a connection",
                "none",
                ("sum by (instance, pool) (toban_pool_waiting)", "{{instance}} {{pool}}"),
            ),
            graph("PostgreSQL standbys", "none", ("max by (mode) (toban_postgresql_standbys)", "{{mode}}")),
        ),
    ),
    Row(
        "Logs and archive",
        (
            graph("Output received", "Bps", ("sum(rate(toban_log_bytes_total[$__rate_interval]))", "text")),
            graph("Chunk commit latency", "s", *quantiles("toban_log_commit_seconds")),
            graph("Output buffered on executors", "bytes", ("toban_executor_log_bytes", "{{instance}}")),
            graph("Used log budget in PostgreSQL", "percentunit", ("max(toban_log_budget_ratio)", "used")),
            graph("Archive backlog", "d", ("max(toban_archive_backlog_partitions)", "days")),
            graph("Archive failures per second", "ops", rate("toban_archive_failures_total", "kind")),
        ),
    ),
    Row(
        "Processes",
        (
            graph("Health", "none", ("toban_health_state", "{{job}} {{instance}}")),
            graph(
                "CPU",
                "percentunit",
                ("rate(toban_process_cpu_seconds_total[$__rate_interval])", "{{job}} {{instance}}"),
            ),
            graph("Memory", "bytes", ("toban_process_resident_memory_bytes", "{{job}} {{instance}}")),
            graph(
                "Certificate expires in",
                "s",
                ("toban_tls_certificate_not_after_seconds - time()", "{{job}} {{instance}}"),
            ),
            graph(
                "Open files", "percentunit", ("toban_process_open_fds / toban_process_max_fds", "{{job}} {{instance}}")
            ),
            graph("Versions", "none", ("count by (service, version) (toban_build_info)", "{{service}} {{version}}")),
        ),
    ),
)


def expressions() -> list[str]:
    """Every query of the dashboard."""
    return [expression for row in ROWS for panel in row.panels for expression, _ in panel.queries]


def text() -> str:
    """The dashboard in Grafana's JSON format."""
    return json.dumps(_dashboard(), indent=2) + "\n"


def _dashboard() -> dict[str, Any]:
    panels: list[dict[str, Any]] = []
    y = 0
    for row in ROWS:
        panels.append(
            {
                "id": len(panels) + 1,
                "type": "row",
                "title": row.title,
                "collapsed": False,
                "gridPos": _place(0, y, WIDTH, 1),
            }
        )
        x, y = 0, y + 1
        for panel in row.panels:
            if x + panel.width > WIDTH:
                x, y = 0, y + HEIGHT
            panels.append(_panel(len(panels) + 1, panel, x, y))
            x += panel.width
        y += HEIGHT
    source = {"name": "source", "label": "Data source", "type": "datasource", "query": "prometheus", "current": {}}
    return {
        "uid": "toban",
        "title": "Toban",
        "tags": ["toban"],
        "schemaVersion": 39,
        "editable": True,
        "graphTooltip": 1,
        "refresh": "30s",
        "time": {"from": "now-3h", "to": "now"},
        "templating": {"list": [source]},
        "panels": panels,
    }


def _place(x: int, y: int, width: int, height: int) -> dict[str, int]:
    return {"x": x, "y": y, "w": width, "h": height}


def _panel(number_: int, panel: Panel, x: int, y: int) -> dict[str, Any]:
    made: dict[str, Any] = {
        "id": number_,
        "type": "stat" if panel.stat else "timeseries",
        "title": panel.title,
        "datasource": SOURCE,
        "gridPos": _place(x, y, panel.width, HEIGHT),
        # Seconds may be negative: a clock difference, an expired certificate.
        "fieldConfig": {"defaults": {"unit": panel.unit, **({} if panel.unit == "s" else {"min": 0})}, "overrides": []},
        "options": {"reduceOptions": {"calcs": ["lastNotNull"]}}
        if panel.stat
        else {"legend": {"displayMode": "list", "placement": "bottom"}},
        "targets": [
            {
                "refId": chr(ord("A") + index),
                "datasource": SOURCE,
                "expr": expression,
                "legendFormat": legend or "__auto",
            }
            for index, (expression, legend) in enumerate(panel.queries)
        ],
    }
    if panel.about:
        made["description"] = panel.about
    return made
