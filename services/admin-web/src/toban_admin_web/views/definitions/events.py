"""Events with what they started, a form for a test event, and the triggers that events start."""

from __future__ import annotations

from typing import Any

from flask import Blueprint, Response, request, url_for

from toban_admin_web.decide.api_models import EmittedEvent, EventPage, RunPage, TriggerPage
from toban_admin_web.decide.event_flow import MAX_PAYLOAD, cause_of, json_object, last_by_trigger, own_key
from toban_admin_web.decide.filters import MAX_TEXT
from toban_admin_web.decide.json_fields import indent
from toban_admin_web.views import actions
from toban_admin_web.views.actions import Refused, confirmed, form, form_key, require
from toban_admin_web.views.view_context import page, read, write
from toban_domain.access import Action
from toban_domain.errors import ErrorCode, TobanError

# On one page.
EVENTS = 50
TRIGGERS = 100
# Newest runs among which the last one of each trigger is looked for.
LAST_RUNS = 100
RUNS_OF_ONE = 20

views = Blueprint("events", __name__)


@views.get("/events")
def listed() -> Response:
    """Events, newest first, of any type or of one. `?emitted=` marks the one that a form has emitted."""
    event_type, cursor = _given("type"), request.args.get("cursor", "")
    waiting = request.args.get("waiting", "") == "1"
    fields = {"event_type": event_type, "unprocessed": waiting, "page": {"limit": EVENTS, "cursor": cursor}}
    query = {name: value for name, value in (("type", event_type), ("waiting", "1" if waiting else "")) if value}
    return page(
        "events",
        events=read("JobReader.ListEvents", EventPage, **fields),
        query=query,
        cursor=cursor,
        emitted=request.args.get("emitted", "")[:20],
        payload_text=indent,
        own_key=own_key,
    )


@views.get("/events/emit")
def ask_emit() -> Response:
    """The form of a test event; `?type=` fills in its type."""
    return _emit_form()


@views.post("/events/emit")
def emit() -> Response:
    """Stores the event; the list shows what it starts. A form that is sent twice emits one event."""

    def work() -> str:
        event_type, key = request.form.get("type", "").strip(), request.form.get("dedupe", "").strip()
        fields = {"event_type": event_type, "payload": _payload(), "dedupe_key": key or actions.given_key()}
        done = write("JobControl.EmitEvent", EmittedEvent, **fields)
        result = "event_duplicate" if done.duplicate and key else "event_emitted"
        return url_for("events.listed", type=event_type, emitted=done.event_id, done=result)

    return confirmed(work, _emit_form)


@views.get("/triggers")
def triggers() -> Response:
    """Triggers by name, each with the last run that it started, when that is among the newest ones."""
    event_type, cursor = _given("type"), request.args.get("cursor", "")
    fields = {"event_type": event_type, "page": {"limit": TRIGGERS, "cursor": cursor}}
    found = read("JobReader.ListTriggers", TriggerPage, **fields)
    runs = (
        read("JobReader.ListRuns", RunPage, brief=True, origin="event", page={"limit": LAST_RUNS}).runs
        if found.triggers
        else []
    )
    return page(
        "triggers",
        triggers=found,
        causes={one.name: cause_of(one.event_type, one.spec) for one in found.triggers},
        last=last_by_trigger(runs),
        looked=LAST_RUNS,
        event_type=event_type,
        cursor=cursor,
    )


@views.get("/triggers/<name>")
def trigger(name: str) -> Response:
    """One trigger with its definition and the last runs that it started."""
    found = read("JobReader.ListTriggers", TriggerPage, name=name).triggers
    one = next((one for one in found if one.name == name), None)
    if one is None:
        raise TobanError(ErrorCode.TRIGGER_NOT_FOUND, f"there is no trigger {name!r}")
    runs = read("JobReader.ListRuns", RunPage, brief=True, job=one.job, origin="event", page={"limit": LAST_RUNS}).runs
    return page(
        "trigger",
        trigger=one,
        cause=cause_of(one.event_type, one.spec),
        runs=[run for run in runs if run.trigger == one.name][:RUNS_OF_ONE],
        definition=indent(one.spec),
    )


def _given(name: str) -> str:
    return request.args.get(name, "").strip()[:MAX_TEXT]


def _payload() -> dict[str, Any]:
    """The payload in the form. Raises Refused."""
    text = request.form.get("payload", "")
    try:
        return json_object(text[: MAX_PAYLOAD + 1])
    except (ValueError, RecursionError):
        raise Refused("event_payload") from None


def _emit_form(status: int = 200, **why: Any) -> Response:
    require(Action.RUN)
    sent = request.form if request.method == "POST" else request.args
    values = {name: sent.get(name, "") for name in ("type", "payload", "dedupe")}
    return form("event_emit", status, given=values, key=form_key(), most=MAX_PAYLOAD, **why)
