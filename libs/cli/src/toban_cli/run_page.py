"""One run, for people."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from toban_cli.human import local, to_time, took
from toban_cli.report import say
from toban_cli.results import exit_words
from toban_cli.tables import facts, table


def show_run(run: Any, now: datetime) -> None:
    """Prints a run with its attempts and events."""
    tries = f"{run.attempt} of {run.max_attempts}" + (f", executor lost {run.lost_count}×" if run.lost_count else "")
    cancel = local(run.cancel_requested_at, now) if to_time(run.cancel_requested_at) else ""
    facts(
        [
            ("Run", str(run.id)),
            ("Job", f"{run.job} (version {run.definition_version})"),
            ("State", run.state),
            ("Why", run.error_summary or run.reason),
            ("Origin", f"{run.origin} {run.schedule}".strip()),
            ("Due", local(run.scheduled_for, now)),
            ("Started", local(run.started_at, now) if to_time(run.started_at) else ""),
            ("Finished", local(run.finished_at, now) if to_time(run.finished_at) else ""),
            ("Took", took(run.started_at, run.finished_at, now) if to_time(run.started_at) else ""),
            ("Exit", exit_words(run) if run.HasField("exit_code") or run.HasField("signal") else ""),
            ("Attempt", tries),
            ("Executor", run.executor),
            ("Fence", str(run.token) if run.token else ""),
            ("Payload", run.payload_json if run.payload_json != "{}" else ""),
            ("Cancel asked", f"{cancel} {run.cancel_reason}".strip()),
            ("Key", run.idempotency_key),
            ("By", run.created_by),
            ("Last line", run.last_line),
        ]
    )
    if run.attempts:
        say("\nAttempts")
        rows = [
            [
                str(item.attempt),
                item.state,
                item.executor or "-",
                took(item.started_at, item.finished_at, now),
                exit_words(item),
                item.error_summary or item.reason,
            ]
            for item in run.attempts
        ]
        table(["TRY", "STATE", "EXECUTOR", "TOOK", "EXIT", "WHY"], rows, loose=["EXECUTOR", "WHY"])
    if run.events:
        say("\nEvents")
        rows = [[local(event.at, now), event.type, _move(event), event.actor, event.message] for event in run.events]
        table(["AT", "EVENT", "STATE", "BY", "MESSAGE"], rows, loose=["MESSAGE", "BY"])


def _move(event: Any) -> str:
    if event.from_state and event.to_state and event.from_state != event.to_state:
        return f"{event.from_state} → {event.to_state}"
    return event.to_state or event.from_state or "-"
