"""One run, for people."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

from toban_cli.exit_status import format_exit
from toban_cli.formatting import NOTHING, duration, given_key, local, moment, to_time, took
from toban_cli.report import echo
from toban_cli.sanitize import clean
from toban_cli.tables import facts, table
from toban_domain.outcome import failure_text
from toban_domain.state_times import state_spans

_BAR = 20


def show_run(run: Any, now: datetime, *, wide: bool = False, log: str = "") -> None:
    """Prints a run with its attempts and events; `wide` with more of each, `log` is where its output is stored."""
    tries = f"{run.attempt} of {run.max_attempts}" + (f", executor lost {run.lost_count}×" if run.lost_count else "")
    cancel = local(run.cancel_requested_at, now) if to_time(run.cancel_requested_at) else ""
    facts(
        [
            ("Run", str(run.id)),
            ("Job", f"{run.job} (version {run.definition_version})"),
            ("State", run.state),
            ("Why", _why(run)),
            ("Waits", run.waiting),
            ("Continuation", _continuation(run, now)),
            ("Progress", format_progress(run, bar=True)),
            ("Step", run.phase),
            ("Expected end", _eta(run, now)),
            ("Origin", origin(run)),
            ("Repeated by", ", ".join(f"run {number}" for number in run.reruns)),
            ("Scope", scope_of(run) if scope_of(run) != "system" else ""),
            ("Due", local(run.scheduled_for, now)),
            ("Started", local(run.started_at, now) if to_time(run.started_at) else ""),
            ("Finished", local(run.finished_at, now) if to_time(run.finished_at) else ""),
            ("Took", took(run.started_at, run.finished_at, now) if to_time(run.started_at) else ""),
            ("Exit", format_exit(run) if run.HasField("exit_code") or run.HasField("signal") else ""),
            ("Attempt", tries),
            ("Executor", run.executor),
            ("Fence", str(run.token) if run.token else ""),
            ("Payload", run.payload_json if run.payload_json != "{}" else ""),
            ("Result", run.result_json),
            ("Checkpoint", "kept for the next attempt" if run.has_checkpoint else ""),
            ("Cancel requested", f"{cancel} {run.cancel_reason}".strip()),
            ("Key", given_key(run.idempotency_key)),
            ("By", run.created_by),
            ("Last line", "" if _error_lines(run) else run.last_line),
            ("Log", log),
            *(_more_facts(run, now) if wide else []),
        ]
    )
    _last_lines(run)
    _steps(run, now)
    _earlier_steps(run, now)
    _attempts(run, now, wide=wide)
    _events(run, now)


def _why(run: Any) -> str:
    """What explains the failure, and the exit code or signal beside it."""
    why = failure_text(run.reason, run.error_summary, run.last_line)
    return why if why == run.error_summary or not run.error_summary else f"{why} ({run.error_summary})"


def _error_lines(run: Any) -> list[Any]:
    """The last lines of the last attempt, when it failed."""
    return list(run.attempts[-1].error_lines) if run.attempts else []


def _last_lines(run: Any) -> None:
    if lines := _error_lines(run):
        echo(f"\nLast lines of attempt {run.attempts[-1].attempt} (all: toban run logs {run.id})")
        width = len(str(lines[-1].seq))
        for line in lines:
            echo(f"  {line.seq:>{width}}  {clean(line.text)}")


def scope_of(run: Any) -> str:
    """For which tenant a run is: `account:17`."""
    return ":".join(part for part in (run.scope, run.scope_id) if part)


def _continuation(run: Any, now: datetime) -> str:
    """Shown while its executor has just asked whether the run may continue."""
    if run.continuation_state != "CONFIRMING":
        return ""
    return f"confirmed at {local(run.continuation_check_started_at, now)}: the executor had no answer to its heartbeats, or is detached"


def origin(run: Any) -> str:
    """What made the run: its schedule, its trigger and event, the run that it repeats, or a person."""
    parts = [run.origin, run.schedule or run.trigger]
    if run.event_id and not run.after_run:
        parts.append(f"(event {run.event_id})")
    if run.after_run:
        parts.append(f"(end of run {run.after_run})")
    if run.rerun_of:
        parts.append(f"of run {run.rerun_of}")
    return " ".join(part for part in parts if part)


def _progress(run: Any) -> dict[str, Any]:
    progress = json.loads(run.progress_json or "{}")
    return progress if isinstance(progress, dict) else {}


def _eta(run: Any, now: datetime) -> str:
    """When the job expects to end, while it runs."""
    if to_time(run.finished_at):
        return ""
    try:
        seconds = (datetime.fromisoformat(_progress(run)["eta"]) - now).total_seconds()
    except (ValueError, KeyError, TypeError):
        return ""
    return f"in {duration(seconds)}" if seconds > 0 else "overdue"


def format_progress(run: Any, *, bar: bool = False) -> str:
    """The progress that the job last reported: "40 % loading"; `bar` draws it for a page of one run."""
    try:
        progress = _progress(run)
    except ValueError:
        return str(run.progress_json)
    share, summary = progress.get("percentage"), str(progress.get("summary") or "")
    steps = progress.get("steps")
    if bar and isinstance(steps, dict):
        summary = f"({steps.get('done')} of {steps.get('total')}) {summary}".strip()
    if not isinstance(share, int | float):
        return summary
    done = round(_BAR * min(max(share, 0), 100) / 100)
    drawn = f"[{'#' * done}{'.' * (_BAR - done)}] " if bar else ""
    return f"{drawn}{share:g} % {summary}".strip()


def _more_facts(run: Any, now: datetime) -> list[tuple[str, str]]:
    return [
        ("Slot", local(run.slot, now) if to_time(run.slot) else ""),
        ("Created", local(run.created_at, now)),
        ("Assigned", local(run.assigned_at, now)),
        ("Dispatched", local(run.dispatched_at, now)),
        ("Worker", str(run.worker_id or "")),
        ("Epoch", str(run.leader_epoch or "")),
        ("Row version", str(run.version)),
        ("Chain", f"{run.chain_depth} runs before it" if run.chain_depth else ""),
    ]


def _steps(run: Any, now: datetime) -> None:
    if not run.steps:
        return
    echo("\nSteps")
    table(_STEP_HEADERS, [_step_row(step, step.finished_at, now) for step in run.steps], loose=["NAME"])


def _earlier_steps(run: Any, now: datetime) -> None:
    """Those that attempts before the last one have started."""
    rows = [
        [str(item.attempt), *_step_row(step, step.finished_at if to_time(step.finished_at) else item.finished_at, now)]
        for item in run.attempts[:-1]
        for step in item.steps
    ]
    if rows:
        echo("\nSteps of earlier attempts")
        table(["TRY", *_STEP_HEADERS], rows, loose=["NAME"])


_STEP_HEADERS = ["STEP", "NAME", "STATE", "TOOK", "EXIT", "LINES"]


def _step_row(step: Any, finished_at: Any, now: datetime) -> list[str]:
    return [
        str(step.number),
        step.name or step.id,
        step.state,
        took(step.started_at, finished_at, now) if to_time(step.started_at) else NOTHING,
        format_exit(step) if step.HasField("exit_code") or step.HasField("signal") else NOTHING,
        f"{step.seq_from}-{step.seq_to}" if step.seq_to >= step.seq_from > 0 else NOTHING,
    ]


def _attempts(run: Any, now: datetime, *, wide: bool) -> None:
    if not run.attempts:
        return
    echo("\nAttempts")
    rows = [
        [
            str(item.attempt),
            item.state,
            item.executor or NOTHING,
            took(item.started_at, item.finished_at, now),
            format_exit(item),
            item.error_summary or item.reason,
            *([str(item.token), local(item.started_at, now), local(item.finished_at, now)] if wide else []),
        ]
        for item in run.attempts
    ]
    headers = ["TRY", "STATE", "EXECUTOR", "TOOK", "EXIT", "WHY", *(["FENCE", "STARTED", "FINISHED"] if wide else [])]
    table(headers, rows, loose=["EXECUTOR", "WHY"])


def _events(run: Any, now: datetime) -> None:
    if not run.events:
        return
    echo("\nEvents")
    begun = [to_time(attempt.started_at) for attempt in run.attempts]
    spans = state_spans(((to_time(event.at), event.to_state) for event in run.events), run.state, begun)
    lasted = {span.event: duration(span.lasted(now).total_seconds()) for span in spans}
    rows = [
        [moment(event.at, now), event.type, _transition(event), lasted.get(place, ""), event.actor, event.message]
        for place, event in enumerate(run.events)
    ]
    table(["AT", "EVENT", "STATE", "LASTED", "BY", "MESSAGE"], rows, loose=["MESSAGE", "BY"])


def _transition(event: Any) -> str:
    if event.from_state and event.to_state and event.from_state != event.to_state:
        return f"{event.from_state} → {event.to_state}"
    return event.to_state or event.from_state or "-"
