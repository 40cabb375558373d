"""The page about the API: every operation with its parameters, and a form that sends a request."""

from __future__ import annotations

from functools import cache

from flask import Blueprint, Response

from toban_admin_web.decide.api_docs import Operation, operations_by_tag
from toban_admin_web.decide.api_rules import DOCS, PREFIX
from toban_admin_web.views.api.openapi import document
from toban_admin_web.views.view_context import page

views = Blueprint("api_docs", __name__)


@views.get(DOCS)
def show() -> Response:
    """Requests of the form are those of the session, or of a token that is typed in."""
    return page("api_docs", tags=_operations(), prefix=PREFIX)


@cache
def _operations() -> dict[str, list[Operation]]:
    from toban_admin_web.views.api.all_endpoints import ENDPOINTS

    return operations_by_tag(document(ENDPOINTS))
