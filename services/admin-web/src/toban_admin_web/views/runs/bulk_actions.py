"""Cancel or repeat all runs that the filters of the list name: first the count, then part after part with the progress."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from flask import Blueprint, Response, request

from toban_admin_web.decide.api_models import ChangedRuns
from toban_admin_web.decide.bulk import Progress, filter_fields, parse_progress
from toban_admin_web.decide.filters import RunFilter, parse_filter, parse_ids
from toban_admin_web.decide.problems import status_of
from toban_admin_web.decide.status_styles import STATE_GROUPS
from toban_admin_web.views.actions import Refused, form, given_key, given_reason, new_key, require
from toban_admin_web.views.view_context import context, write
from toban_domain.access import Action
from toban_domain.errors import ErrorCode, TobanError

METHODS = {"cancel": "JobControl.CancelRuns", "rerun": "JobControl.RerunRuns"}
NEEDS = {"cancel": Action.CANCEL, "rerun": Action.RUN}
# One request changes or counts parts for this long, seconds; then the page shows how far it is.
PART_SECONDS = 2.5

views = Blueprint("bulk_actions", __name__)


@views.get("/runs/cancel")
def ask_cancel() -> Response:
    """How many runs would be cancelled."""
    return _ask("cancel")


@views.post("/runs/cancel")
def cancel() -> Response:
    """Cancels the next part of them."""
    return _go_on("cancel", {})


@views.get("/runs/rerun")
def ask_rerun() -> Response:
    """How many runs would be repeated."""
    return _ask("rerun")


@views.post("/runs/rerun")
def rerun() -> Response:
    """Repeats the next part of them, each once in this operation."""
    return _go_on("rerun", {"latest_definition": bool(request.form.get("latest"))})


def _ask(verb: str) -> Response:
    require(NEEDS[verb])
    filters, now = _filters(), context().clock.wall()
    if _unmarked(filters):
        return _page(verb, filters, "unmarked", Progress(until=now, key=new_key()), 400)
    counted, error = _parts(verb, filters, Progress(until=now, key=new_key()), {"dry_run": True})
    if error is not None:
        raise error
    progress = Progress(until=now, key=counted.key, total=counted.matched, complete=not counted.cursor)
    return _page(verb, filters, "ask", progress)


def _go_on(verb: str, extra: dict[str, Any]) -> Response:
    require(NEEDS[verb])
    filters = _filters()
    progress = parse_progress(request.form, now=context().clock.wall(), key=given_key())
    if _unmarked(filters):
        return _page(verb, filters, "unmarked", progress, 400)
    try:
        fields = {**extra, "reason": given_reason(), **({"operation": progress.key} if verb == "rerun" else {})}
    except Refused as refusal:
        return _page(verb, filters, "ask", progress, 400, problem=refusal.problem)
    progress, error = _parts(verb, filters, progress, fields)
    if error is not None:
        # What was done stays done: the form goes on where the change stopped.
        stage = "stopped" if progress.matched else "ask"
        return _page(verb, filters, stage, progress, status_of(error), problem="refused", message=error.message)
    return _page(verb, filters, "running" if progress.cursor else "finished", progress)


def _parts(
    verb: str, filters: RunFilter, progress: Progress, fields: dict[str, Any]
) -> tuple[Progress, TobanError | None]:
    """Part after part until all are done, the time of one request is used up, or one is refused."""
    clock = context().clock
    ends_at = clock.monotonic() + PART_SECONDS
    while True:
        chosen = filter_fields(filters, progress)
        try:
            progress = progress.after(write(METHODS[verb], ChangedRuns, **fields, filter=chosen))
        except TobanError as error:
            if error.code in (ErrorCode.UNAUTHENTICATED, ErrorCode.PERMISSION_DENIED):
                raise
            return progress, error
        if not progress.cursor or clock.monotonic() > ends_at:
            return progress, None


def _unmarked(filters: RunFilter) -> bool:
    """Whether the form of marked runs was sent without a mark: without any filter this would be about all runs."""
    return "marked" in request.args and not filters.ids


def _filters() -> RunFilter:
    """Of the address; runs that were marked in the list are its only filter."""
    marked = parse_ids(request.args.getlist("run"))
    if marked or "marked" in request.args:
        return RunFilter(ids=marked)
    found = parse_filter(request.args)
    return RunFilter(ids=found.ids) if found.ids else replace(found, cursor="")


def _page(verb: str, filters: RunFilter, stage: str, progress: Progress, status: int = 200, **values: Any) -> Response:
    latest = bool(request.form.get("latest"))
    shown = {"verb": verb, "filters": filters, "stage": stage, "progress": progress, "latest": latest}
    return form("bulk_action", status, **shown, groups=list(STATE_GROUPS), **values)
