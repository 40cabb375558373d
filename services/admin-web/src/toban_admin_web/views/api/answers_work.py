"""Work of external workers, in answers of the API."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from pydantic import Field

from toban_admin_web.views.api.answers import Answer, BigNumber


class AttemptKey(Answer):
    """A claim: the run, and the fencing token of the claim."""

    run_id: int
    token: BigNumber


class ClaimedStep(Answer):
    """A step for the worker alone."""

    key: AttemptKey
    step_id: str
    payload: Any = Field(description="That of the run.")
    lock_ttl_ms: int = Field(
        description="The claim holds from when the request was sent for lock_ttl_ms - lock_margin_ms."
    )
    lock_margin_ms: int
    job: str
    step_name: str
    attempt: int
    timeout_ms: int = Field(description="The claim ends that long after the request was sent; 0 = no such end.")
    previous_result: Any = Field(description="Of the last external step before this one.")
    result_expected: bool = Field(description="The result of the run has a schema.")
    scheduled_for: datetime | None


class ClaimedSteps(Answer):
    """None when nothing was offered in time."""

    steps: list[ClaimedStep]


class ExtendedClaims(Answer):
    """Claims that are not as they were; all others are extended."""

    lost: list[AttemptKey] = Field(description="Not this worker's any more: it stops working on them.")
    cancel: list[AttemptKey] = Field(description="The worker stops, and acknowledges the cancel.")


class NotedProgress(Answer):
    """Whether a cancel was asked for."""

    cancel_requested: bool


class StepAnswer(Answer):
    """What became of the end of one step."""

    key: AttemptKey
    result: str = Field(description="accepted | already_accepted | refused")
    code: str = Field(description="Why it was refused; RESULT_INVALID with accepted: the result does not fit.")
    message: str


class StepAnswers(Answer):
    """One for each step, in their order."""

    answers: list[StepAnswer]


class EndedStep(Answer):
    """The end is stored."""

    result: str = Field(description="accepted | already_accepted")
