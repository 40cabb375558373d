"""Every endpoint of the API."""

from __future__ import annotations

from toban_admin_web.views.api import (
    accounts,
    cluster,
    definitions,
    hooks,
    log_search,
    logs,
    runs,
    session,
    streams,
    work,
)

ENDPOINTS = (
    *session.ENDPOINTS,
    *definitions.ENDPOINTS,
    *runs.ENDPOINTS,
    *logs.ENDPOINTS,
    *log_search.ENDPOINTS,
    *streams.ENDPOINTS,
    *cluster.ENDPOINTS,
    *accounts.ENDPOINTS,
    *hooks.ENDPOINTS,
    *work.ENDPOINTS,
)
