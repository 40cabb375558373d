"""Every endpoint of the API: those written by hand, and one for each further method whose request and response are those of its route."""

from __future__ import annotations

from toban_admin_web.decide.api_methods import METHODS
from toban_admin_web.decide.api_rules import ROUTE_RULES
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
from toban_admin_web.views.api.endpoint import Endpoint

_BY_HAND = (
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

_OTHERS = ROUTE_RULES.keys() - {one.route for one in _BY_HAND}
ENDPOINTS = (
    *_BY_HAND,
    *(Endpoint.of(one) for one in sorted(_OTHERS) if ROUTE_RULES[one].whole and ROUTE_RULES[one].method in METHODS),
)
