"""Hooks, whose messages of other systems become events: what each makes, and what administrators do about it.

The pages are outside of /hooks/, which a proxy may pass to strangers.
"""

from __future__ import annotations

import re
from typing import Any

from flask import Blueprint, Response, request, url_for

from toban_admin_web.decide.answer import Done
from toban_admin_web.decide.api_models import ChangedHook, EventPage, Hook, Hooks, HookTest
from toban_admin_web.decide.event_flow import MAX_PAYLOAD, json_object, own_key
from toban_admin_web.decide.flow_forms import (
    HOOK_ACTIONS,
    KINDS,
    event_types,
    hook_actions,
    lines_of,
    pairs_of,
    pairs_text,
)
from toban_admin_web.decide.json_fields import indent
from toban_admin_web.views.actions import Refused, confirmed, form, given_reason, require
from toban_admin_web.views.people.session_gate import see_other
from toban_admin_web.views.view_context import page, read, write
from toban_domain.access import Action
from toban_domain.errors import ErrorCode, TobanError

# Newest events among which those of one hook are looked for.
LOOKED = 100
SHOWN = 20
DEFAULT_RATE = 600
GIVEN: dict[str, dict[str, Any]] = {
    "rotate": {"new_secret": True},
    "drop": {"drop_old_secret": True},
    "disable": {"enabled": False},
    "enable": {"enabled": True},
}
DONE = {
    "rotate": "hook_changed",
    "drop": "hook_dropped",
    "disable": "hook_disabled",
    "enable": "hook_enabled",
    "remove": "hook_removed",
}
_VERBS = ", ".join(HOOK_ACTIONS)
_WHOLE = re.compile(r"[0-9]{1,9}", re.ASCII)

views = Blueprint("incoming", __name__)


@views.get("/hooks")
def short() -> Response:
    """The list has another address."""
    return see_other(url_for("incoming.listed"))


@views.get("/incoming")
def listed() -> Response:
    """All hooks."""
    return page("hooks", hooks=read("Hooks.ListHooks", Hooks).hooks, event_types=event_types)


@views.get("/incoming/<name>")
def show(name: str) -> Response:
    """One hook with the events that it made lately."""
    one = _found(name)
    types = event_types(one.mapping.event_type, one.mapping.events)
    fields = {"event_type": types[0] if len(types) == 1 else "", "page": {"limit": LOOKED}}
    events = read("JobReader.ListEvents", EventPage, **fields).events
    return page(
        "hook",
        hook=one,
        types=types,
        events=[event for event in events if event.created_by == f"hook {one.name}"][:SHOWN],
        looked=LOOKED,
        offered=hook_actions(enabled=one.enabled, secrets=one.secrets),
        payload_text=indent,
        own_key=own_key,
        emitted="",
    )


@views.get("/new/hook")
def ask_new() -> Response:
    """The form of a new hook."""
    return _set_form(None)


@views.post("/new/hook")
def new() -> Response:
    """Makes a hook; its secret is on this page only."""
    name = request.form.get("name", "").strip()

    def check() -> None:
        if any(one.name == name for one in read("Hooks.ListHooks", Hooks).hooks):
            raise Refused("name_taken")

    fields = {"name": name, "kind": request.form.get("kind", "")}
    return _set(fields, check, "hook_made", lambda status, **why: _set_form(None, status, **why))


@views.get("/incoming/<name>/change")
def ask_change(name: str) -> Response:
    """The form of the events that a hook makes."""
    return _set_form(name)


@views.post("/incoming/<name>/change")
def change(name: str) -> Response:
    """Changes a hook that is as it was when the form was made."""

    def check() -> None:
        if str(_found(name).version) != request.form.get("version", ""):
            raise Refused("changed_meanwhile")

    return _set({"name": name}, check, "hook_changed", lambda status, **why: _set_form(name, status, **why))


@views.get("/incoming/<name>/test")
def ask_test(name: str) -> Response:
    """The form of a sample message."""
    return _test_form(name)


@views.post("/incoming/<name>/test")
def test(name: str) -> Response:
    """Which event the sample would become; nothing is emitted."""
    require(Action.OPERATE)
    try:
        payload = json_object(request.form.get("payload", "")[: MAX_PAYLOAD + 1])
    except (ValueError, RecursionError):
        return _test_form(name, 400, problem="event_payload")
    fields = {"name": name, "payload": payload, "value": request.form.get("value", "").strip()}
    found: list[HookTest] = []

    def work() -> str:
        found.append(write("Hooks.TestHook", HookTest, **fields))
        return ""

    response = confirmed(work, lambda status, **why: _test_form(name, status, **why))
    return _test_form(name, found=found[0]) if found else response


@views.get(f"/incoming/<name>/<any({_VERBS}):verb>")
def ask(name: str, verb: str) -> Response:
    """The form of an action."""
    return _form(name, verb)


@views.post(f"/incoming/<name>/<any({_VERBS}):verb>")
def act(name: str, verb: str) -> Response:
    """Does it. A new secret is on this page only."""
    secret = ""

    def work() -> str:
        nonlocal secret
        fields = {"name": name, "reason": given_reason()}
        if verb == "remove":
            write("Hooks.RemoveHook", Done, **fields)
            return url_for("incoming.listed", done=DONE[verb])
        secret = write("Hooks.SetHook", ChangedHook, **fields, **GIVEN[verb]).secret
        return url_for("incoming.show", name=name, done=DONE[verb])

    response = confirmed(work, lambda status, **why: _form(name, verb, status, **why))
    return _secret(name, secret) if secret else response


def _set(fields: dict[str, Any], check: Any, done: str, show_again: Any) -> Response:
    """Stores what the form has, after `check`."""
    secret = ""

    def work() -> str:
        nonlocal secret
        reason = given_reason()
        try:
            events = pairs_of(request.form.get("events", ""), alone=True)
        except ValueError:
            raise Refused("wrong_events") from None
        rate = request.form.get("rate", "").strip()
        if not _WHOLE.fullmatch(rate):
            raise Refused("invalid_number")
        check()
        mapping: dict[str, Any] = {name: request.form.get(name, "").strip() for name in ("event_type", "type_from")}
        mapping |= {"events": events, "fields": lines_of(request.form.get("fields", ""))}
        given = {**fields, "mapping": mapping, "rate_per_minute": int(rate), "reason": reason}
        secret = write("Hooks.SetHook", ChangedHook, **given).secret
        return url_for("incoming.show", name=fields["name"], done=done)

    response = confirmed(work, show_again)
    return _secret(fields["name"], secret) if secret else response


def _secret(name: str, secret: str) -> Response:
    back = url_for("incoming.show", name=name)
    return form("flow_secret", name=name, secret=secret, back_url=back, for_hook=True)


def _set_form(name: str | None, status: int = 200, **why: Any) -> Response:
    require(Action.OPERATE)
    one, sent = _found(name) if name is not None else None, request.form
    mapping = one.mapping if one else None
    given = {
        "name": sent.get("name", ""),
        "kind": sent.get("kind", KINDS[0]),
        "event_type": sent.get("event_type", mapping.event_type if mapping else ""),
        "type_from": sent.get("type_from", mapping.type_from if mapping else ""),
        "events": sent.get("events", pairs_text(mapping.events, alone=True) if mapping else ""),
        "fields": sent.get("fields", "\n".join(mapping.fields) if mapping else ""),
        "rate": sent.get("rate", one.rate_per_minute if one else DEFAULT_RATE),
        "version": sent.get("version", one.version if one else ""),
    }
    if why.get("problem") == "changed_meanwhile" and one:
        given["version"] = one.version
    return form("hook_set", status, hook=one, given=given, kinds=KINDS, **why)


def _test_form(name: str, status: int = 200, found: HookTest | None = None, **why: Any) -> Response:
    require(Action.OPERATE)
    given = {one: request.form.get(one, "") for one in ("payload", "value")}
    return form(
        "hook_test", status, hook=_found(name), given=given, found=found, payload_text=indent, most=MAX_PAYLOAD, **why
    )


def _form(name: str, verb: str, status: int = 200, **why: Any) -> Response:
    require(Action.OPERATE)
    return form("hook_action", status, hook=_found(name), verb=verb, **why)


def _found(name: str) -> Hook:
    for one in read("Hooks.ListHooks", Hooks, name=name).hooks:
        if one.name == name:
            return one
    raise TobanError(ErrorCode.NOT_FOUND, f"there is no hook {name!r}")
