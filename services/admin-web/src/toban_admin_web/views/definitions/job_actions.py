"""Actions on a job and its schedules: run now, disable, enable, pause, resume, delete."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from flask import Blueprint, Response, request, url_for

from toban_admin_web.decide.api_models import DeletedJob, Job, NextSlots, Schedule, StartedRuns
from toban_admin_web.decide.filters import moment
from toban_admin_web.decide.json_fields import as_object
from toban_admin_web.decide.payload_form import changed, fill, payload_fields
from toban_admin_web.views.actions import Refused, confirmed, form, form_key, given_key, given_reason, require
from toban_admin_web.views.view_context import read, write
from toban_domain.access import Action
from toban_domain.errors import TobanError

MAX_PRIORITY = (1 << 31) - 1
# Either one: its parameter of DeleteJob has the same name.
DELETE_OPTIONS = ("with_schedules", "with_triggers", "cancel_runs")

views = Blueprint("job_actions", __name__)


@views.get("/jobs/<name>/run")
def ask_run(name: str) -> Response:
    """The form for a run of the job."""
    return _run_form(name)


@views.post("/jobs/<name>/run")
def run(name: str) -> Response:
    """A run of the job, now or at a time; one for each form, however often it is sent."""
    return confirmed(lambda: _run(name), lambda status, **why: _run_form(name, status, **why))


@views.get("/jobs/<name>/delete")
def ask_delete(name: str) -> Response:
    """Asks whether to delete the job."""
    return _delete_form(name)


@views.post("/jobs/<name>/delete")
def delete(name: str) -> Response:
    """The job is deleted; its runs stay readable."""

    def work() -> str:
        options = {one: bool(request.form.get(one)) for one in DELETE_OPTIONS}
        write("JobControl.DeleteJob", DeletedJob, name=name, reason=given_reason(), **options)
        return url_for("jobs.listed", done="job_deleted")

    return confirmed(work, lambda status, **why: _delete_form(name, status, **why))


@views.get("/jobs/<name>/disable")
def ask_disable(name: str) -> Response:
    """Asks whether to disable the job."""
    return _switch_form("disable", name)


@views.post("/jobs/<name>/disable")
def disable(name: str) -> Response:
    """It starts nothing from now on."""

    def work() -> str:
        reason, until = given_reason(), _given_time("until")
        idle = until is not None and _fires_only_from(until, read("JobReader.GetJob", Job, name=name))
        write("JobControl.DisableJob", Job, name=name, reason=reason, until=until)
        return url_for("jobs.show", name=name, done="job_disabled_idle" if idle else "job_disabled")

    return confirmed(work, lambda status, **why: _switch_form("disable", name, status, **why))


@views.get("/jobs/<name>/enable")
def ask_enable(name: str) -> Response:
    """Asks whether to enable the job."""
    return _switch_form("enable", name)


@views.post("/jobs/<name>/enable")
def enable(name: str) -> Response:
    """It starts runs again, unless it was disabled again since the form was shown."""

    def work() -> str:
        job = write("JobControl.EnableJob", Job, name=name, reason=given_reason(), disabled_at=_seen())
        return url_for("jobs.show", name=name, done="job_enabled" if job.enabled else "job_stays_disabled")

    return confirmed(work, lambda status, **why: _switch_form("enable", name, status, **why))


@views.get("/schedules/<name>/pause")
def ask_pause(name: str) -> Response:
    """Asks whether to pause the schedule."""
    return _schedule_form("pause", name)


@views.post("/schedules/<name>/pause")
def pause(name: str) -> Response:
    """No runs of it from now on."""

    def work() -> str:
        reason, until = given_reason(), _given_time("until")
        idle = until is not None and _has_no_slot_before(until, name)
        schedule = write("JobControl.PauseSchedule", Schedule, name=name, reason=reason, until=until)
        return _after_change(schedule, "paused_idle" if idle else "paused")

    return confirmed(work, lambda status, **why: _schedule_form("pause", name, status, **why))


@views.get("/schedules/<name>/resume")
def ask_resume(name: str) -> Response:
    """Asks whether the schedule goes on."""
    return _schedule_form("resume", name)


@views.post("/schedules/<name>/resume")
def resume(name: str) -> Response:
    """Runs of it again, from the next slot on."""

    def work() -> str:
        return _after_change(write("JobControl.ResumeSchedule", Schedule, name=name, reason=given_reason()), "resumed")

    return confirmed(work, lambda status, **why: _schedule_form("resume", name, status, **why))


def _after_change(schedule: Schedule, done: str) -> str:
    if request.form.get("back", "") == "job":
        return url_for("jobs.show", name=schedule.job, done=done, of=schedule.name)
    return url_for("schedules.show", name=schedule.name, done=done)


def _fires_only_from(until: datetime, job: Job) -> bool:
    """Whether the schedules of a job that starts runs have slots, but none before a time."""
    coming = [one.next_run_at for one in job.schedules if one.next_run_at is not None]
    return job.enabled and bool(coming) and min(coming) >= until


def _has_no_slot_before(until: datetime, name: str) -> bool:
    """Whether the schedule has slots, but none before a time. It is for a notice only: no answer, as of a rule that cannot be read, is no."""
    try:
        coming = read("JobReader.NextSlots", NextSlots, name=name, count=1).slots
    except TobanError:
        return False
    return any(slot.at and slot.at >= until for slot in coming)


def _schedule_form(verb: str, name: str, status: int = 200, **why: Any) -> Response:
    require(Action.EDIT)
    back = "job" if (request.args.get("back") or request.form.get("back")) == "job" else ""
    return form(
        "schedule_action",
        status,
        verb=verb,
        schedule=read("JobReader.GetSchedule", Schedule, name=name),
        back=back,
        until=request.form.get("until", ""),
        **why,
    )


def _switch_form(verb: str, name: str, status: int = 200, **why: Any) -> Response:
    require(Action.EDIT)
    job = read("JobReader.GetJob", Job, name=name)
    seen = job.disabled_at.isoformat() if job.disabled_at else ""
    return form("job_switch", status, verb=verb, job=job, seen=seen, until=request.form.get("until", ""), **why)


def _seen() -> Any:
    """When the job was disabled that the form showed. Raises Refused for another text."""
    try:
        found = datetime.fromisoformat(request.form.get("seen", ""))
    except ValueError:
        raise Refused("not_disabled") from None
    if found.tzinfo is None:
        raise Refused("not_disabled")
    return found


def _delete_form(name: str, status: int = 200, **why: Any) -> Response:
    require(Action.EDIT)
    chosen = {one for one in DELETE_OPTIONS if request.form.get(one)}
    return form(
        "job_delete", status, job=read("JobReader.GetJob", Job, name=name), options=DELETE_OPTIONS, chosen=chosen, **why
    )


def _run_form(name: str, status: int = 200, **why: Any) -> Response:
    require(Action.RUN)
    job = read("JobReader.GetJob", Job, name=name)
    schema, base = _schema_and_defaults(job.spec)
    fields = payload_fields(schema, base)
    if request.method == "POST":
        fields = fill(fields, request.form, base).fields
    given = {one: request.form.get(one, "") for one in ("at", "priority")}
    return form("job_run", status, job=job, fields=fields, given=given, key=form_key(), **why)


def _run(name: str) -> str:
    schema, base = _schema_and_defaults(read("JobReader.GetJob", Job, name=name).spec)
    filled = fill(payload_fields(schema, base), request.form, base)
    if not filled.valid:
        raise Refused("invalid_payload")
    # The payload is merged over the default payload of the job: only what differs from it is sent.
    different, _ = changed(filled.payload, base)
    run = {
        "job": name,
        "payload": different,
        "idempotency_key": given_key(),
        "scheduled_for": _given_time("at"),
        "priority": _given_priority(),
    }
    answer = write("JobControl.StartRuns", StartedRuns, runs=[run], reason="")
    return url_for("runs.show", run_id=answer.runs[0].run_id, done="started")


def _schema_and_defaults(stored: Any) -> tuple[Any, dict[str, Any]]:
    spec = as_object(stored)
    defaults = spec.get("default_payload")
    return spec.get("payload_schema"), defaults if isinstance(defaults, dict) else {}


def _given_time(field: str) -> Any:
    text = request.form.get(field, "").strip()
    found = moment(text)
    if text and found is None:
        raise Refused("invalid_time")
    return found


def _given_priority() -> int:
    text = request.form.get("priority", "").strip()
    try:
        priority = int(text or "0")
    except ValueError:
        raise Refused("invalid_priority") from None
    if abs(priority) > MAX_PRIORITY:
        raise Refused("invalid_priority")
    return priority
