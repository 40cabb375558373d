"""Work of external workers: a long poll for steps, and what the worker says about them."""

from __future__ import annotations

from typing import Any

from flask import Response
from pydantic import BaseModel, Field

from toban_admin_web.decide.api_models import (
    ClaimedSteps,
    EndedStep,
    ExtendedClaims,
    NotedProgress,
    StepAnswers,
)
from toban_admin_web.views.api.endpoint import MAX_ID, MAX_NAME, Call, Endpoint, Input
from toban_admin_web.views.stream_response import stream_response

# Less than the time of a call that writes, which the answer needs too.
MAX_WAIT_SECONDS = 25
MAX_CLAIMS, MAX_KEYS, MAX_STEPS = 100, 1000, 500


class Key(BaseModel):
    """A claim, as the answer to it had it."""

    model_config = Input.model_config
    run_id: int = Field(ge=1, le=MAX_ID)
    token: str = Field(pattern=r"^[0-9]{1,18}$|^[0-8][0-9]{18}$")

    def pair(self) -> dict[str, int]:
        """With the token as a number."""
        return {"run_id": self.run_id, "token": int(self.token)}


class Done(BaseModel):
    """A step and its result."""

    model_config = Input.model_config
    key: Key
    result: Any = Field(None, description="JSON of at most 32 KiB; null = none.")


class Work(Input):
    """What every request has."""

    worker: str = Field(
        min_length=1, max_length=MAX_NAME, description="A name of this worker process, the same in each request."
    )


class NewClaim(Work):
    """Which steps, and how many."""

    worker_type: str = Field(min_length=1, max_length=MAX_NAME)
    limit: int = Field(1, ge=1, le=MAX_CLAIMS)
    wait_seconds: float = Field(0, ge=0, le=MAX_WAIT_SECONDS, description="How long to wait for the first step.")


class Beat(Work):
    """Claims to extend."""

    keys: list[Key] = Field(max_length=MAX_KEYS)

    def fields(self) -> dict[str, Any]:
        """With tokens as numbers."""
        return {"worker": self.worker, "keys": [key.pair() for key in self.keys]}


class OfStep(Work):
    """About one claim."""

    key: Key

    def fields(self) -> dict[str, Any]:
        """With the token as a number."""
        return {**self.model_dump(exclude_none=True), "key": self.key.pair()}


class Progress(OfStep):
    """How far a step is."""

    percentage: int = Field(-1, ge=-1, le=100, description="-1 = as before.")
    summary: str = Field("", max_length=1000)


class Completed(Work):
    """Steps that are done."""

    steps: list[Done] = Field(min_length=1, max_length=MAX_STEPS)

    def fields(self) -> dict[str, Any]:
        """With tokens as numbers."""
        return {"worker": self.worker, "steps": [{"key": one.key.pair(), "result": one.result} for one in self.steps]}


class Failed(OfStep):
    """Why a step failed."""

    error: str = Field("", max_length=10_000)
    retryable: bool = Field(True, description="false: the run fails, also when it has retries left.")


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
