"""Rules: what people and groups may do, and a question about one person that a coordinator answers with the rule that decides."""

from __future__ import annotations

from typing import Any

from flask import Blueprint, Response, request, url_for

from toban_admin_web.decide.access_forms import SCOPES, deciding_rule, parse_labels
from toban_admin_web.decide.answer import Done
from toban_admin_web.decide.api_models import Created, Verdict
from toban_admin_web.views.actions import Refused, confirmed, form, given_reason
from toban_admin_web.views.people import directory
from toban_admin_web.views.view_context import page, read, write
from toban_domain.access import Action, Effect, Role
from toban_domain.errors import ErrorCode, TobanError

ASKED = ("user", "action", "job", "scope", "scope_id")
"""The query of the question."""
FIELDS = ("kind", "name", "effect", "role", "job", "labels", "scope", "scope_id")
"""The form of a new rule."""
KINDS = ("user", "group")
# Errors of the question that are shown beside it.
_SHOWN = frozenset({ErrorCode.NOT_FOUND, ErrorCode.INVALID_ARGUMENT})

views = Blueprint("rules", __name__)


@views.get("/rules")
def listed() -> Response:
    """All rules; with `?user=` and `action=` whether that person may do it."""
    directory.require_accounts()
    asked = {name: request.args.get(name, "").strip()[:300] for name in ASKED}
    verdict, problem = _answer(asked)
    return page(
        "rules",
        rules=directory.rules(),
        asked=asked,
        verdict=verdict,
        problem=problem,
        decides=deciding_rule(verdict.reason) if verdict else None,
        users=directory.user_names(),
        jobs=directory.job_names(),
        actions=tuple(Action),
        scopes=SCOPES,
    )


@views.get("/new/rule")
def ask_add() -> Response:
    """The form of a new rule; `?kind=user&name=ada` fills in whose it is."""
    return _add_form()


@views.post("/new/rule")
def add() -> Response:
    """Makes a rule; it counts at once."""

    def work() -> str:
        made = write("Accounts.AddRule", Created, rule=_given_rule(), reason=given_reason())
        return url_for("rules.listed", done="rule_added") + f"#rule-{made.id}"

    return confirmed(work, _add_form)


@views.get("/rules/<id:rule_id>/remove")
def ask_remove(rule_id: int) -> Response:
    """Asks whether a rule is to go."""
    return _remove_form(rule_id)


@views.post("/rules/<id:rule_id>/remove")
def remove(rule_id: int) -> Response:
    """Removes a rule."""

    def work() -> str:
        write("Accounts.RemoveRule", Done, id=rule_id, reason=given_reason())
        return url_for("rules.listed", done="rule_removed")

    return confirmed(work, lambda status, **why: _remove_form(rule_id, status, **why))


def _answer(asked: dict[str, str]) -> tuple[Verdict | None, str]:
    """The verdict, or why there is none; neither without a question."""
    if not (asked["user"] and asked["action"]):
        return None, ""
    try:
        return read("Accounts.May", Verdict, **asked), ""
    except TobanError as error:
        if error.code not in _SHOWN:
            raise
        return None, error.message


def _given_rule() -> dict[str, Any]:
    """The rule in the form. Raises Refused."""
    given = {name: request.form.get(name, "").strip() for name in FIELDS}
    if given["kind"] not in KINDS or not given["name"]:
        raise Refused("no_owner")
    if given["role"] not in set(Role) or given["effect"] not in set(Effect):
        raise Refused("unknown_role")
    try:
        labels = parse_labels(given["labels"])
    except ValueError:
        raise Refused("wrong_labels") from None
    selector = {"job": given["job"], "labels": labels, "scope": given["scope"], "scope_id": given["scope_id"]}
    return {given["kind"]: given["name"], "effect": given["effect"], "role": given["role"], "selector": selector}


def _add_form(status: int = 200, **why: Any) -> Response:
    directory.require_accounts()
    given = request.form if request.method == "POST" else request.args
    return form(
        "rule_add",
        status,
        given={name: given.get(name, "") for name in FIELDS},
        names=sorted({*directory.user_names(), *(one.name for one in directory.groups())}),
        jobs=directory.job_names(),
        kinds=KINDS,
        effects=tuple(Effect),
        roles=tuple(Role),
        scopes=SCOPES,
        **why,
    )


def _remove_form(rule_id: int, status: int = 200, **why: Any) -> Response:
    directory.require_accounts()
    rule = next((one for one in directory.rules() if one.id == rule_id), None)
    if rule is None:
        raise TobanError(ErrorCode.NOT_FOUND, f"there is no rule {rule_id}")
    return form("rule_remove", status, rule=rule, **why)
