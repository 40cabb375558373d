"""Jobs, runs, schedules and events as messages. Values that the `logs.redact` of a job names are masked."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from toban_coordinator.app.manifests import Applied
from toban_coordinator.app.runs.change_runs import Changes
from toban_coordinator.app.runs.job_reads import JobDetails, RunDetails
from toban_coordinator.app.runs.run_counts import RunCounts
from toban_coordinator.app.schedules.coming_load import ComingLoad
from toban_coordinator.decide.runs.step_states import StepState
from toban_coordinator.decide.schedules.coming_load import MINUTE
from toban_domain.redacted import masked_definition_text, masked_payload_text, masked_text
from toban_domain.schedule import RuleSpec
from toban_proto.v1 import coordinator_pb2 as pb
from toban_proto.v1.common_pb2 import ErrorLine
from toban_schedule import AnnotatedSlot, describe
from toban_store.tx import Row
from toban_transport.convert import fill
from toban_transport.convert import timestamp_to_pb as at


def run_to_pb(row: Row) -> pb.Run:
    """A run without its attempts and events."""
    return pb.Run(
        id=row["id"],
        job=row["job_name"],
        definition_version=row["definition_version"],
        schedule=row["schedule_name"],
        origin=row["origin"],
        slot=at(row["slot"]),
        scheduled_for=at(row["scheduled_for"]),
        state=row["state"],
        attempt=row["attempt"],
        max_attempts=row["max_attempts"],
        lost_count=row["lost_count"],
        token=row["token"] or 0,
        leader_epoch=row["leader_epoch"] or 0,
        worker_id=row["assigned_worker_id"] or 0,
        created_at=at(row["created_at"]),
        assigned_at=at(row["assigned_at"]),
        payload_json=masked_text(row["payload"], row["redact"]),
        log_ref=row["log_ref"],
        cancel_reason=row["cancel_reason"],
        created_by=row["created_by"],
        last_line=row["last_line"],
        version=row["version"],
        rerun_of=row["rerun_of"] or 0,
        idempotency_key=row["idempotency_key"] or "",
        cancel_requested_at=at(row["cancel_requested_at"]),
        progress_json=row["progress"] or "",
        result_json=row["result"] or "",
        phase=row["phase"],
        after_run=row["after_run"] or 0,
        chain_depth=row["chain_depth"],
        event_id=row["event_id"] or 0,
        trigger=row["trigger_name"],
        scope=row["scope"],
        scope_id=row["scope_id"],
        deferred_on=(row["deferred_on"] or "") if row["state"] == "DEFERRED" else "",
        continuation_state=row["continuation_state"],
        continuation_check_started_at=at(row["continuation_check_started_at"]),
        continuation_check_deadline_at=at(row["continuation_check_deadline_at"]),
        **_execution(row),
    )


def run_details_to_pb(run: RunDetails) -> pb.Run:
    """A run with its attempts and events, kept results among the latter."""
    message = run_to_pb(run.row)
    message.attempts.extend(attempt_to_pb(row, run.attempt_steps.get(row["token"], ())) for row in run.attempts)
    message.events.extend(event_to_pb(row) for row in run.events)
    message.events.extend(orphan_to_event(row) for row in run.orphan_results)
    message.waiting = run.waiting
    message.steps.extend(_step_to_pb(step) for step in run.steps)
    message.has_checkpoint = run.has_checkpoint
    message.failed_step = 0 if run.failed_step is None else run.failed_step + 1
    message.reruns.extend(row["rerun"] for row in run.events if row["rerun"] is not None)
    if run.claim is not None:
        message.external.CopyFrom(_claim_to_pb(run.claim))
    if run.orphaned_until is not None:
        message.orphaned_until.FromDatetime(run.orphaned_until)
    return message


def changes_to_pb(done: Changes) -> pb.ChangeRunsResponse:
    """What one part of a change of many runs did."""
    skipped = [
        pb.SkippedRuns(code=code.value, message=one.message, runs=one.count, run_ids=one.runs)
        for code, one in done.skipped.items()
    ]
    return fill(pb.ChangeRunsResponse, done, skipped=skipped, run_ids=done.made)


def _claim_to_pb(claim: Row) -> pb.ExternalClaim:
    return fill(pb.ExternalClaim, claim)


def _step_to_pb(step: StepState) -> pb.RunStep:
    message = pb.RunStep(number=step.number, id=step.id, name=step.name, state=step.state)
    if (started := step.started) is not None:
        message.MergeFrom(
            pb.RunStep(
                started_at=at(started.started_at),
                finished_at=at(started.finished_at),
                exit_code=started.exit_code,
                signal=started.signal,
                seq_from=started.seq_from,
                seq_to=started.seq_to,
            )
        )
    return message


def attempt_to_pb(row: Row, steps: Sequence[StepState]) -> pb.Attempt:
    """One dispatch of a run, with the steps that it has started."""
    return pb.Attempt(
        token=row["token"],
        attempt=row["attempt"],
        state=row["state"],
        worker_id=row["worker_id"] or 0,
        steps=[_step_to_pb(step) for step in steps],
        error_lines=[ErrorLine(seq=line["seq"], text=line["text"]) for line in row["error_lines"]],
        **_execution(row),
    )


def _execution(row: Row) -> dict[str, Any]:
    """The fields that a run has of its last attempt, and each attempt: where it was sent, its times and how it ended."""
    return {
        "executor": row["executor"] or "",
        "dispatched_at": at(row["dispatched_at"]),
        "started_at": at(row["started_at"]),
        "finished_at": at(row["finished_at"]),
        "exit_code": row["exit_code"],
        "signal": row["term_signal"],
        "error_summary": row["error_summary"],
        "reason": row["reason"],
    }


def event_to_pb(row: Row) -> pb.RunEvent:
    """One change of a run."""
    return fill(pb.RunEvent, row)


def orphan_to_event(row: Row) -> pb.RunEvent:
    """A result that was kept and not applied, shown among the events."""
    outcome = row["outcome"]
    text = f"attempt {row['token']} ended {outcome['kind']} after its run had gone on: kept, not applied"
    return pb.RunEvent(at=at(row["received_at"]), type="orphan_result", message=text)


def job_to_pb(row: Row) -> pb.Job:
    """A definition without its schedules and last run."""
    spec = masked_definition_text(row["spec"])
    return fill(pb.Job, row, spec_json=spec, schedules=None, last_run=None, next_run_at=None, recent_runs=None)


def job_version_to_pb(row: Row) -> pb.JobVersion:
    """A definition as it was at a version, without the values that it or the current one hides."""
    return fill(pb.JobVersion, row, spec_json=masked_definition_text(row["spec"], row["redact"]))


def job_details_to_pb(job: JobDetails) -> pb.Job:
    """A definition with its schedules, newest run and, of a list, history."""
    message = job_to_pb(job.row)
    message.schedules.extend(schedule_to_pb(row) for row in job.schedules)
    if job.last_run is not None:
        message.last_run.CopyFrom(run_to_pb(job.last_run))
    if job.next_run_at is not None:
        message.next_run_at.FromDatetime(job.next_run_at)
    message.recent_runs.extend(fill(pb.RunMark, row) for row in job.recent_runs)
    return message


def schedule_to_pb(row: Row) -> pb.Schedule:
    """A schedule with its rule in words."""
    spec = masked_payload_text(row["spec"], row["redact"])
    return fill(pb.Schedule, row, spec_json=spec, rule=_rule_of(row["spec"]))


def _rule_of(spec: str) -> str:
    """The rule in words, also where one row holds what this version cannot read: the others of its page are shown."""
    try:
        return describe(RuleSpec.from_json(json.loads(spec)))
    except (LookupError, TypeError, ValueError, AttributeError):
        return "cannot be read"


def inbox_event_to_pb(row: Row) -> pb.Event:
    """An event of the inbox or its history."""
    return fill(pb.Event, row, payload_json=masked_text(row["payload"], row["redact"]))


def trigger_to_pb(row: Row) -> pb.Trigger:
    """A trigger of events."""
    return fill(pb.Trigger, row, spec_json=masked_payload_text(row["spec"], row["redact"]))


def fire_to_pb(row: Row) -> pb.Fire:
    """A row of the fire ledger."""
    return fill(pb.Fire, row, at=row["created_at"])


def slots_to_pb(slots: Sequence[AnnotatedSlot]) -> list[pb.NextSlot]:
    """Slots to come, in local time."""
    return [
        pb.NextSlot(at=at(slot.at), local=slot.local.isoformat(timespec="seconds"), rule_note=slot.note)
        for slot in slots
    ]


def applied_to_pb(applied: Applied) -> pb.Applied:
    """What became of one manifest."""
    return fill(pb.Applied, applied, next_slots=slots_to_pb(applied.next_slots))


def run_counts_to_pb(counts: RunCounts) -> pb.RunCounts:
    """How many runs ran, by group and interval."""
    groups = [
        fill(
            pb.RunGroup,
            group,
            intervals=[pb.RunInterval(at=at(one), runs=runs) for one, runs in group.intervals.items()],
        )
        for group in counts.groups
    ]
    return pb.RunCounts(since=at(counts.span.since), until=at(counts.span.until), groups=groups)


def load_to_pb(load: ComingLoad) -> pb.ComingLoad:
    """The coming slots of each minute."""

    def at_minute(minute: int) -> datetime:
        return load.begin + minute * MINUTE

    return fill(
        pb.ComingLoad,
        load,
        minutes=[pb.LoadMinute(at=at(at_minute(minute)), slots=slots) for minute, slots in load.slots.items()],
        crowded=[
            fill(pb.CrowdedMinute, one, at=at_minute(one.minute), named=[fill(pb.LoadSchedule, n) for n in one.named])
            for one in load.crowded
        ],
    )
