"""Outgoing webhooks: targets with their health and deliveries, and what administrators do about them."""

from __future__ import annotations

from typing import Any

from flask import Blueprint, Response, request, url_for

from toban_admin_web.decide.answer import Done
from toban_admin_web.decide.api_models import (
    ChangedWebhook,
    DeliveryPage,
    Redelivered,
    Webhook,
    WebhookDelivery,
    Webhooks,
)
from toban_admin_web.decide.flow_forms import (
    DELIVERY_STATES,
    FORMS,
    WEBHOOK_ACTIONS,
    filter_of,
    pairs_text,
    webhook_actions,
)
from toban_admin_web.views.actions import Refused, confirmed, form, given_reason, require
from toban_admin_web.views.view_context import page, read, write
from toban_domain.access import Action
from toban_domain.errors import ErrorCode, TobanError
from toban_domain.run import FAILURES
from toban_domain.run_end import RUN_END_STATES

DELIVERIES = 50
REASON_OPTIONAL = ("test", "redeliver")
DONE = {
    "test": "webhook_tested",
    "redeliver": "redelivered",
    "disable": "webhook_disabled",
    "enable": "webhook_enabled",
    "secret": "webhook_changed",
    "remove": "webhook_removed",
}
_VERBS = ", ".join(WEBHOOK_ACTIONS)

views = Blueprint("webhooks", __name__)


@views.get("/webhooks")
def listed() -> Response:
    """All targets."""
    return page("webhooks", webhooks=read("Webhooks.ListWebhooks", Webhooks).webhooks)


@views.get("/webhooks/<name>")
def show(name: str) -> Response:
    """One target with its deliveries, newest first, of any state or of one."""
    one, cursor = _found(name), request.args.get("cursor", "")
    state = request.args.get("state", "")
    state = state if state in DELIVERY_STATES else ""
    fields = {"webhook": name, "state": state, "page": {"limit": DELIVERIES, "cursor": cursor}}
    return page(
        "webhook",
        webhook=one,
        deliveries=read("Webhooks.ListDeliveries", DeliveryPage, **fields),
        offered=webhook_actions(enabled=one.enabled, form=one.form),
        states=DELIVERY_STATES,
        state=state,
        cursor=cursor,
    )


@views.get("/new/webhook")
def ask_new() -> Response:
    """The form of a new target."""
    return _set_form(None)


@views.post("/new/webhook")
def new() -> Response:
    """Makes a target; its secret is on this page only."""
    name = request.form.get("name", "").strip()

    def check() -> None:
        if any(one.name == name for one in read("Webhooks.ListWebhooks", Webhooks).webhooks):
            raise Refused("name_taken")

    return _set(name, check, "webhook_made", lambda status, **why: _set_form(None, status, **why))


@views.get("/webhooks/<name>/change")
def ask_change(name: str) -> Response:
    """The form of a target. Its URL is not shown."""
    return _set_form(name)


@views.post("/webhooks/<name>/change")
def change(name: str) -> Response:
    """Changes a target that is as it was when the form was made."""

    def check() -> None:
        if str(_found(name).version) != request.form.get("version", ""):
            raise Refused("changed_meanwhile")

    return _set(name, check, "webhook_changed", lambda status, **why: _set_form(name, status, **why))


@views.get(f"/webhooks/<name>/<any({_VERBS}):verb>")
def ask(name: str, verb: str) -> Response:
    """The form of an action. `?id=` is one delivery to send again."""
    return _form(name, verb)


@views.post(f"/webhooks/<name>/<any({_VERBS}):verb>")
def act(name: str, verb: str) -> Response:
    """Does it. A new secret is on this page only."""
    secret = ""

    def work() -> str:
        nonlocal secret
        fields = {"name": name, "reason": given_reason(required=verb not in REASON_OPTIONAL)}
        if verb == "remove":
            write("Webhooks.RemoveWebhook", Done, **fields)
            return url_for("webhooks.listed", done=DONE[verb])
        if verb == "test":
            write("Webhooks.TestWebhook", WebhookDelivery, **fields)
        elif verb == "redeliver":
            again = {"webhook": name, "ids": _ids(), "reason": fields["reason"]}
            if not write("Webhooks.Redeliver", Redelivered, **again).redelivered:
                return url_for("webhooks.show", name=name, done="redelivered_none")
        else:
            given = {"new_secret": True} if verb == "secret" else {"enabled": verb == "enable"}
            secret = write("Webhooks.SetWebhook", ChangedWebhook, **fields, **given).secret
        return url_for("webhooks.show", name=name, done=DONE[verb])

    response = confirmed(work, lambda status, **why: _form(name, verb, status, **why))
    return _secret(name, secret) if secret else response


def _set(name: str, check: Any, done: str, show_again: Any) -> Response:
    """Stores what the form has, after `check`."""
    secret = ""

    def work() -> str:
        nonlocal secret
        reason = given_reason()
        try:
            which = filter_of(
                request.form.getlist("state"), request.form.get("jobs", ""), request.form.get("labels", "")
            )
        except ValueError:
            raise Refused("wrong_labels") from None
        check()
        fields = {"name": name, "url": request.form.get("url", "").strip(), "form": request.form.get("form", "")}
        secret = write("Webhooks.SetWebhook", ChangedWebhook, **fields, filter=which, reason=reason).secret
        return url_for("webhooks.show", name=name, done=done)

    response = confirmed(work, show_again)
    return _secret(name, secret) if secret else response


def _secret(name: str, secret: str) -> Response:
    back = url_for("webhooks.show", name=name)
    return form("flow_secret", name=name, secret=secret, back_url=back, for_hook=False)


def _set_form(name: str | None, status: int = 200, **why: Any) -> Response:
    require(Action.OPERATE)
    one, sent = _found(name) if name is not None else None, request.form
    chosen: Any = sent.getlist("state") if sent else one.states if one else FAILURES
    given = {
        "name": sent.get("name", ""),
        "url": sent.get("url", ""),
        "form": sent.get("form", one.form if one else FORMS[0]),
        "jobs": sent.get("jobs", "\n".join(one.jobs) if one else ""),
        "labels": sent.get("labels", pairs_text(one.labels) if one else ""),
        "version": sent.get("version", one.version if one else ""),
    }
    if why.get("problem") == "changed_meanwhile" and one:
        given["version"] = one.version
    return form("webhook_set", status, webhook=one, given=given, chosen=chosen, ends=RUN_END_STATES, forms=FORMS, **why)


def _form(name: str, verb: str, status: int = 200, **why: Any) -> Response:
    require(Action.OPERATE)
    needed = verb not in REASON_OPTIONAL
    return form("webhook_action", status, webhook=_found(name), verb=verb, needed=needed, ids=_ids(), **why)


def _found(name: str) -> Webhook:
    for one in read("Webhooks.ListWebhooks", Webhooks).webhooks:
        if one.name == name:
            return one
    raise TobanError(ErrorCode.NOT_FOUND, f"there is no webhook {name!r}")


def _ids() -> list[int]:
    """The delivery in the query; without one every failed one. Raises NOT_FOUND."""
    text = request.args.get("id")
    if text is None:
        return []
    if not (text.isascii() and text.isdigit() and len(text) < 19):
        raise TobanError(ErrorCode.NOT_FOUND, f"there is no delivery {text[:40]!r}")
    return [int(text)]
