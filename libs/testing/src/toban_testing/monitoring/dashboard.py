"""The Grafana dashboard, as code: rows of panels, each a few queries."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

WIDTH = 24
HEIGHT = 7
SOURCE = {"type": "prometheus", "uid": "${source}"}


@dataclass(frozen=True, slots=True)
class Panel:
    """A graph, or with `stat` one number; `queries` are (expression, legend), `unit` is Grafana's."""

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
    """A panel with lines."""
    return Panel(title, unit, queries, about=about)


def number(title: str, unit: str, query: str, about: str = "") -> Panel:
    """A panel with one number."""
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
    """Events a second of a counter, by a label. `only` some of them: none is 0, and not an empty panel."""
    found = f"sum by ({by}) (rate({metric}{only}[$__rate_interval]))"
    none = f" or 0 * sum by ({by}) (rate({metric}[$__rate_interval]))" if only else ""
    return f"{found}{none}", f"{{{{{by}}}}}"


ROWS = (
    Row(
        "Is it well?",
        (
            number("Leaders", "none", "sum(toban_is_leader)", "Exactly one."),
            number("Health, the worst", "none", "max(toban_health_state)", "0 ok, 1 degraded, 2 critical."),
            number("Executors that take work", "none", 'sum(toban_executors{state="on"})'),
            number("Oldest due slot without a run", "s", "max(toban_schedules_overdue_seconds)"),
            number("Oldest run that waits", "s", 'max(toban_runs_pending_oldest_seconds{reason!~"retry|deferred"})'),
            number("Schedules that have failed", "none", 'max(toban_schedules{status="failed"})'),
        ),
    ),
    Row(
        "Runs",
        (
            graph("Runs made a second (submission rate)", "ops", ("toban:runs_submitted:rate5m", "{{origin}}")),
            graph("Runs ended a second", "ops", ("toban:runs_finished:rate5m", "{{state}}")),
            graph("Live runs", "none", ("max by (state) (toban_runs_live)", "{{state}}")),
            graph("Waiting runs by reason", "none", ("max by (reason) (toban_runs_pending)", "{{reason}}")),
            graph(
                "Age of the oldest waiting run",
                "s",
                ("max by (reason) (toban_runs_pending_oldest_seconds)", "{{reason}}"),
            ),
            graph("How long runs last", "s", *quantiles("toban_run_duration_seconds", "kind")),
            graph("Row to start", "s", *quantiles("toban_run_wait_seconds")),
            graph("Time of a run to its start", "s", *quantiles("toban_run_start_lag_seconds", "origin")),
            graph("Skipped runs a second", "ops", rate("toban_runs_skipped_total", "reason")),
            graph("First in its state for", "s", ("max by (state) (toban_runs_oldest_seconds)", "{{state}}")),
            graph(
                "Refused and undelivered starts a second",
                "ops",
                rate("toban_dispatch_refused_total", "refusal"),
                rate("toban_dispatch_undelivered_total", "kind"),
            ),
            graph("Short way of runs on demand a second", "ops", rate("toban_express_total", "result")),
        ),
    ),
    Row(
        "Schedules and events",
        (
            graph("Slot to row", "s", *quantiles("toban_schedule_row_lag_seconds")),
            graph("Slots without a run a second", "ops", rate("toban_schedule_slots_skipped_total", "reason")),
            graph("Missed slots a second", "ops", rate("toban_schedule_slots_missed_total", "outcome")),
            graph("Schedules", "none", ("max by (status) (toban_schedules)", "{{status}}")),
            graph(
                "Oldest due slot",
                "s",
                ("max(toban_schedules_overdue_seconds)", "leader"),
                ("max(toban_watchdog_overdue_seconds)", "outside watchdog"),
            ),
            graph(
                "Fires that could not be made a second", "ops", rate("toban_schedule_fire_failures_total", "outcome")
            ),
            graph("Events a second", "ops", rate("toban_events_processed_total", "outcome")),
            graph("Events that wait", "none", ("max(toban_events_inbox)", "events")),
            graph("Event to its end in the inbox", "s", *quantiles("toban_event_lag_seconds")),
        ),
    ),
    Row(
        "Leadership",
        (
            graph("Who leads", "none", ("toban_is_leader", "{{instance}}")),
            graph("Take-overs within an hour", "none", ("changes(toban:leader_epoch:max[1h])", "take-overs")),
            graph("Epoch", "none", ("max(toban_leader_epoch)", "epoch")),
            graph("Beat to commit", "s", *quantiles("toban_leader_beat_seconds")),
            graph("Calls about the lock", "s", *quantiles("toban_leader_lock_seconds", "call")),
            graph("Lateness of the elector's timer", "s", *quantiles("toban_elector_lateness_seconds")),
            graph(
                "Clock off PostgreSQL's",
                "s",
                ("toban_clock_skew_seconds", "{{instance}}"),
                ("max(toban_executors_clock_skew_seconds)", "worst executor"),
            ),
            graph(
                "Turns of loops, p99",
                "s",
                (
                    "histogram_quantile(0.99, sum by (le, loop) (rate(toban_loop_turn_seconds_bucket[$__rate_interval])))",
                    "{{loop}}",
                ),
            ),
            graph("Failed turns a second", "ops", rate("toban_loop_turns_total", "loop", only='{result="error"}')),
        ),
    ),
    Row(
        "Executors",
        (
            graph("Used slots", "percentunit", ("toban_executor_slots_used / toban_executor_slots", "{{instance}}")),
            graph("Load of the machine", "percentunit", ("toban_executor_load_ratio", "{{instance}}")),
            graph("Free disk", "bytes", ("toban_executor_disk_free_bytes", "{{instance}}")),
            graph("Executors by state", "none", ("max by (state) (toban_executors)", "{{state}}")),
            graph("Fences a second", "ops", rate("toban_fences_total", "kind")),
            graph("Lease left", "s", ("toban_executor_lease_left_seconds", "{{instance}}")),
            graph("Grants a second", "ops", rate("toban_grants_total", "result")),
            graph("Reports that wait", "none", ("toban_executor_reports_pending", "{{instance}}")),
            graph("Ends of attempts a second", "ops", rate("toban_executor_outcomes_total", "kind")),
        ),
    ),
    Row(
        "Calls and stores",
        (
            graph("Calls a second", "ops", rate("toban_rpc_total", "method")),
            graph(
                "Share of failed calls",
                "percentunit",
                ("toban:rpc_errors:ratio5m or 0 * sum by (namespace, job) (rate(toban_rpc_total[5m]))", "{{job}}"),
            ),
            graph(
                "Duration of calls, p99",
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
                "Callers that wait for a connection",
                "none",
                ("sum by (instance, pool) (toban_pool_waiting)", "{{instance}} {{pool}}"),
            ),
            graph("Stand-bys of PostgreSQL", "none", ("max by (mode) (toban_postgresql_standbys)", "{{mode}}")),
        ),
    ),
    Row(
        "Logs and archive",
        (
            graph("Text taken in", "Bps", ("sum(rate(toban_log_bytes_total[$__rate_interval]))", "text")),
            graph("Commit of chunks", "s", *quantiles("toban_log_commit_seconds")),
            graph("Waits on executors' disks", "bytes", ("toban_executor_log_bytes", "{{instance}}")),
            graph("Output in PostgreSQL, part of the budget", "percentunit", ("max(toban_log_budget_ratio)", "used")),
            graph("Archive: backlog", "d", ("max(toban_archive_backlog_partitions)", "days")),
            graph("Archive: failures a second", "ops", rate("toban_archive_failures_total", "kind")),
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
                "Certificate ends in", "s", ("toban_tls_certificate_not_after_seconds - time()", "{{job}} {{instance}}")
            ),
            graph(
                "Open files", "percentunit", ("toban_process_open_fds / toban_process_max_fds", "{{job}} {{instance}}")
            ),
            graph("Releases", "none", ("count by (service, version) (toban_build_info)", "{{service}} {{version}}")),
        ),
    ),
)


def expressions() -> list[str]:
    """Every query of the dashboard."""
    return [expression for row in ROWS for panel in row.panels for expression, _ in panel.queries]


def text() -> str:
    """The dashboard as Grafana reads it."""
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
        # Seconds may be below zero: of a clock, of a certificate that has ended.
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
