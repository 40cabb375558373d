"""The list of executors."""

from __future__ import annotations

from flask import Blueprint, Response, request

from toban_admin_web.decide.api_models import Cluster, Executors
from toban_admin_web.views.view_context import page, read

views = Blueprint("executors", __name__)


@views.get("/executors")
def show() -> Response:
    """Registered executors; `?gone=1` adds those that are off."""
    include_off = request.args.get("gone") == "1"
    return page(
        "executors",
        executors=read("JobReader.ListExecutors", Executors, include_off=include_off).executors,
        include_off=include_off,
        # Of the leader that the operator sees: a form of this page counts for no later one.
        epoch=read("JobReader.GetCluster", Cluster).epoch,
    )
