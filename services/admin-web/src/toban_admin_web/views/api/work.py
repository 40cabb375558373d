"""Work of external workers: a long poll for steps, and what the worker says about them."""

from __future__ import annotations

from typing import Any

from flask import Response

from toban_admin_web.decide.api_inputs import Beat, Completed, Failed, NewClaim, OfStep, Progress
from toban_admin_web.decide.api_models import (
    ClaimedSteps,
    EndedStep,
    ExtendedClaims,
    NotedProgress,
    StepAnswers,
)
from toban_admin_web.views.api.endpoint import Call, Endpoint
from toban_admin_web.views.stream_response import stream_response


def _claim(call: Call) -> Response:
    """It occupies a stream slot while it waits, so that pages keep threads for themselves."""

    def body() -> Any:
        return iter([call.ask(ClaimedSteps, call.fields()).model_dump_json().encode()])

    return stream_response(body, "application/json")


ENDPOINTS = (
    Endpoint(
        route="POST /external-work/claims",
        summary="Claims steps of type external, as soon as there are some.",
        body=NewClaim,
        answer=ClaimedSteps,
        handle=_claim,
    ),
    Endpoint(route="POST /external-work/heartbeats", summary="Extends claims.", body=Beat, answer=ExtendedClaims),
    Endpoint(
        route="POST /external-work/progress", summary="Shows how far a step is.", body=Progress, answer=NotedProgress
    ),
    Endpoint(
        route="POST /external-work/complete",
        summary="Ends steps with their results.",
        body=Completed,
        answer=StepAnswers,
    ),
    Endpoint(route="POST /external-work/fail", summary="Ends a step with an error.", body=Failed, answer=EndedStep),
    Endpoint(
        route="POST /external-work/acknowledge-cancel",
        summary="The worker has stopped working on a canceled step.",
        body=OfStep,
        answer=EndedStep,
    ),
)
