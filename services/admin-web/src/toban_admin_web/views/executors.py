"""Executors, with those that are gone when asked."""

from __future__ import annotations

from flask import Blueprint, Response, request

from toban_admin_web.views.site import page, reader

views = Blueprint("executors", __name__)


@views.get("/executors")
def show() -> Response:
    """All executors that are there."""
    gone = request.args.get("gone") == "1"
    return page("executors", executors=reader().executors(include_off=gone), gone=gone)
