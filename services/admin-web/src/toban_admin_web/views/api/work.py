"""Work of external workers: a long poll for steps, and what the worker says about them."""

from __future__ import annotations

from typing import Any

from flask import Response

from toban_admin_web.decide.api_models import (
    ClaimedSteps,
)
from toban_admin_web.views.api.endpoint import Call, Endpoint
from toban_admin_web.views.stream_response import stream_response


def _claim(call: Call) -> Response:
    """It occupies a stream slot while it waits, so that pages keep threads for themselves."""

    def body() -> Any:
        return iter([call.ask(ClaimedSteps, call.fields()).model_dump_json().encode()])

    return stream_response(body, "application/json")


ENDPOINTS = (Endpoint.of("POST /external-work/claims", handle=_claim),)
