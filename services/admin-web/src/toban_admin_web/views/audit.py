"""The audit: who started or changed what, and from where."""

from __future__ import annotations

from flask import Blueprint, Response, request

from toban_admin_web.decide.filters import AUDIT_FILTERS, parse_audit_filter
from toban_admin_web.decide.json_fields import indent
from toban_admin_web.views.view_context import page, reader

views = Blueprint("audit", __name__)


@views.get("/audit")
def listed() -> Response:
    """Actions, newest first. Coordinators refuse it to people without role admin for everything."""
    filters = parse_audit_filter(request.args)
    audit = reader().audit(filters)
    states = {
        entry.id: [indent(text) for text in (entry.before_json, entry.after_json) if text] for entry in audit.items
    }
    return page("audit", audit=audit, filters=filters, names=AUDIT_FILTERS, states=states)
