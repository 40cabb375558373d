"""The audit: who started or changed what, and from where."""

from __future__ import annotations

from flask import Blueprint, Response, request

from toban_admin_web.decide.api_models import AuditPage
from toban_admin_web.decide.filters import AUDIT_FILTERS, parse_audit_filter
from toban_admin_web.decide.json_fields import indent
from toban_admin_web.views.view_context import page, read

views = Blueprint("audit", __name__)


@views.get("/audit")
def listed() -> Response:
    """Actions, newest first. Coordinators refuse it to people without role admin for everything."""
    filters = parse_audit_filter(request.args)
    audit = read("Operations.ListAudit", AuditPage, **filters.fields())
    states = {
        entry.id: [indent(state) for state in (entry.before, entry.after) if state is not None]
        for entry in audit.entries
    }
    return page("audit", audit=audit, filters=filters, names=AUDIT_FILTERS, states=states)
