"""Actions on one run: cancel, kill, declare lost, rerun, note."""

from __future__ import annotations

from typing import Any

from flask import Blueprint, Response, request, url_for

from toban_admin_web.decide.answer import Done
from toban_admin_web.decide.api_models import ChangedRun, Job, Run, StartedRun
from toban_admin_web.decide.json_fields import as_object
from toban_admin_web.decide.payload_form import changed, fill, payload_fields
from toban_admin_web.decide.run_actions import ENDPOINTS
from toban_admin_web.views.actions import Refused, confirmed, form, form_key, given_key, given_reason, require
from toban_admin_web.views.view_context import read, write
from toban_domain.access import MAX_REASON
from toban_domain.errors import ErrorCode, TobanError

views = Blueprint("run_actions", __name__)


@views.get("/runs/<id:run_id>/cancel")
def ask_cancel(run_id: int) -> Response:
    """Asks whether to cancel the run."""
    return _ask("cancel", run_id)


@views.post("/runs/<id:run_id>/cancel")
def cancel(run_id: int) -> Response:
    """The run ends as its definition says: first it is asked to stop."""
    return _cancel(run_id, "cancel", "", "canceled")


@views.get("/runs/<id:run_id>/kill")
def ask_kill(run_id: int) -> Response:
    """Asks whether to kill the run."""
    return _ask("kill", run_id)


@views.post("/runs/<id:run_id>/kill")
def kill(run_id: int) -> Response:
    """The run ends at once, whatever its step does."""
    return _cancel(run_id, "kill", "kill", "killed")


@views.get("/runs/<id:run_id>/declare-lost")
def ask_declare_lost(run_id: int) -> Response:
    """Asks whether to end the wait for the executor of an orphaned run."""
    return _ask("declare_lost", run_id)


@views.post("/runs/<id:run_id>/declare-lost")
def declare_lost(run_id: int) -> Response:
    """The wait for its executor ends."""

    def work() -> str:
        write("JobControl.DeclareRunLost", ChangedRun, id=run_id, reason=given_reason())
        return url_for("runs.show", run_id=run_id, done="declared_lost")

    return confirmed(work, lambda status, **why: _ask("declare_lost", run_id, status, **why))


@views.get("/runs/<id:run_id>/note")
def ask_note(run_id: int) -> Response:
    """Asks for a remark."""
    return _ask("note", run_id)


@views.post("/runs/<id:run_id>/note")
def note(run_id: int) -> Response:
    """A remark among the events of the run."""

    def work() -> str:
        text = given_reason()
        write("JobControl.NoteRun", Done, id=run_id, text=text)
        return url_for("runs.show", run_id=run_id, done="noted", _anchor="events-title")

    return confirmed(work, lambda status, **why: _ask("note", run_id, status, **why))


@views.get("/runs/<id:run_id>/rerun")
def ask_rerun(run_id: int) -> Response:
    """The run again, whole or from its failed step, as it was or with another payload."""
    return _rerun_form(run_id)


@views.post("/runs/<id:run_id>/rerun")
def rerun(run_id: int) -> Response:
    """A new run like this one."""
    return confirmed(lambda: _rerun(run_id), lambda status, **why: _rerun_form(run_id, status, **why))


def _ask(action: str, run_id: int, status: int = 200, **why: Any) -> Response:
    require(ENDPOINTS[action])
    return form("run_action", status, run=_run(run_id), action=action, max_reason=MAX_REASON, **why)


def _cancel(run_id: int, action: str, mode: str, done: str) -> Response:
    def work() -> str:
        write("JobControl.CancelRun", ChangedRun, id=run_id, reason=given_reason(), mode=mode)
        return url_for("runs.show", run_id=run_id, done=done)

    return confirmed(work, lambda status, **why: _ask(action, run_id, status, **why))


def _rerun_form(run_id: int, status: int = 200, **why: Any) -> Response:
    require(ENDPOINTS["rerun"])
    run = _run(run_id)
    job = _job(run)
    base = as_object(run.payload)
    fields = payload_fields(_schema(job), base)
    if request.method == "POST":
        fields = fill(fields, request.form, base).fields
    latest = bool(request.form.get("latest"))
    failed = next((step for step in run.steps if step.number == run.failed_step), None)
    return form(
        "run_rerun",
        status,
        run=run,
        job=job,
        fields=fields,
        latest=latest,
        failed=failed,
        from_failed=failed is not None and "from_failed_step" in request.values,
        key=form_key(),
        **why,
    )


def _rerun(run_id: int) -> str:
    key, reason = given_key(), given_reason(required=False)
    changes: dict[str, Any] = {"from_failed_step": bool(request.form.get("from_failed_step"))}
    if not request.form.get("as_it_was"):
        changes |= {**_other_payload(_run(run_id)), "latest_definition": bool(request.form.get("latest"))}
    started = write("JobControl.RerunRun", StartedRun, id=run_id, idempotency_key=key, reason=reason, **changes)
    return url_for("runs.show", run_id=started.run_id, done="rerun")


def _other_payload(run: Run) -> dict[str, Any]:
    """What is sent of the form: the values that were changed, or the whole payload where keys were taken out. Raises Refused."""
    base = as_object(run.payload)
    filled = fill(payload_fields(_schema(_job(run)), base), request.form, base)
    if not filled.valid:
        raise Refused("invalid_payload")
    different, taken_out = changed(filled.payload, base)
    if taken_out:
        return {"payload": dict(filled.payload), "replace_payload": True}
    return {"payload": different} if different else {}


def _run(run_id: int) -> Run:
    return read("JobReader.GetRun", Run, id=run_id)


def _job(run: Run) -> Job | None:
    """The job as it is now; None when it was deleted."""
    try:
        return read("JobReader.GetJob", Job, name=run.job)
    except TobanError as error:
        if error.code not in (ErrorCode.JOB_NOT_FOUND, ErrorCode.NOT_FOUND):
            raise
        return None


def _schema(job: Job | None) -> Any:
    return as_object(job.spec).get("payload_schema") if job else None
