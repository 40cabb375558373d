"""Settings of the cluster: what each does, its value, and a form that changes it. Coordinators refuse what is unsafe together."""

from __future__ import annotations

import json
import re
from typing import Any

from flask import Blueprint, Response, request, url_for

from toban_admin_web.decide.api_models import Setting, Settings
from toban_admin_web.views.actions import Refused, confirmed, form, given_reason, require
from toban_admin_web.views.view_context import page, read, write
from toban_domain.access import Action
from toban_domain.errors import ErrorCode, TobanError

_NUMBER = re.compile(r"-?[0-9]{1,15}(\.[0-9]{1,9})?", re.ASCII)
_VERSION = re.compile(r"[0-9]{1,15}", re.ASCII)
views = Blueprint("settings", __name__)


@views.get("/settings")
def listed() -> Response:
    """All settings, in the order of docs/settings.md."""
    return page("settings", settings=_settings(), plain=_plain)


@views.get("/settings/<name>/change")
def ask_change(name: str) -> Response:
    """The form of a new value; `?value=` fills it in."""
    return _form(name)


@views.post("/settings/<name>/change")
def change(name: str) -> Response:
    """Stores the value when the setting still has the version that the form was made for."""

    newer = False

    def work() -> str:
        nonlocal newer
        fields = {"name": name, "value": _given_value(), "version": _given_version(), "reason": given_reason()}
        try:
            write("Operations.UpdateSetting", Setting, **fields)
        except TobanError as error:
            newer = error.code is ErrorCode.CONFLICT
            raise
        return url_for("settings.listed", done="setting_changed") + f"#{name}"

    def refused(status: int, **why: Any) -> Response:
        return _form(name, status, version=None if newer else request.form.get("version", ""), **why)

    return confirmed(work, refused)


def _form(name: str, status: int = 200, version: str | None = None, **why: Any) -> Response:
    """Shows the value of now beside the one that was filled in.

    A form that was refused keeps its version, so that it cannot overwrite a newer change when it is sent again. It has the version of now when that
    change is what it was refused for.
    """
    require(Action.OPERATE)
    setting = next((one for one in _settings() if one.name == name), None)
    if setting is None:
        raise TobanError(ErrorCode.NOT_FOUND, f"there is no setting {name!r}")
    value = request.form.get("value", request.args.get("value", _plain(setting.value)))
    known = setting.version if version is None else version
    return form("setting_change", status, setting=setting, value=value, version=known, plain=_plain, **why)


def _settings() -> list[Setting]:
    return read("Operations.ListSettings", Settings).settings


def _given_value() -> int | float:
    text = request.form.get("value", "").strip()
    if not _NUMBER.fullmatch(text):
        raise Refused("not_a_number")
    number: int | float = json.loads(text.lstrip("0") or "0") if text.isdigit() else float(text)
    return number


def _given_version() -> int:
    """Raises Refused without one: a form without a version would overwrite the change of another person."""
    text = request.form.get("version", "")
    if not _VERSION.fullmatch(text):
        raise Refused("no_version")
    return int(text)


def _plain(value: Any) -> str:
    """A number without an exponent or needless zeros."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return f"{value:.15g}" if is_number else str(value)
