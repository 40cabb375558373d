"""Why a run waits, and what limits it, in answers of the API."""

from __future__ import annotations

from datetime import datetime

from pydantic import Field

from toban_admin_web.views.api.answers import Answer


class LimitRun(Answer):
    """A run that holds a limit or waits for it."""

    run_id: int
    job: str
    state: str
    weight: int
    scope: str
    scope_id: str
    since: datetime | None = Field(description="Holders: when it was sent. Waiting runs: when it was deferred.")
    executor: str


class Limit(Answer):
    """A limit of a job, pool or start rate, or the weight of a scope."""

    name: str
    limit: int = Field(description="0 = no limit, -1 = nothing starts.")
    source: str = Field(description="operator | definition")
    held: int = Field(description="Counted from live runs; weights count for pools.")
    waiting: int
    waiting_since: datetime | None = Field(description="When the first of the waiting runs was deferred.")
    reason: str
    updated_by: str
    updated_at: datetime | None
    effective: int = Field(description="What its breaker and the health signal leave of `limit`: as in `limit`.")
    breaker: str = Field(description="closed | open | half_open (one run probes); empty = it was never open.")
    breaker_since: datetime | None
    breaker_reason: str
    breaker_by: str
    signal: str = Field(description="soft | hard; also ok while the limit recovers. Empty = none.")
    signal_until: datetime | None
    signal_reason: str
    signal_by: str


class LimitDetails(Answer):
    """One limit with its runs."""

    limit: Limit | None
    holders: list[LimitRun] = Field(description="The longest first, at most 100.")
    waiting: list[LimitRun] = Field(description="Those that wait, the oldest first, at most 100.")


class RunCheck(Answer):
    """One condition of the start."""

    name: str = Field(description="due | clock | leader | late | policy | limit | executor | turn")
    blocks: bool = Field(description="The run cannot start while this is so.")
    message: str


class RunLimit(Answer):
    """A limit that the run needs."""

    name: str
    effective: int = Field(description="What its breaker and the health signal leave; -1 = nothing starts.")
    held: int = Field(description="Counted from live runs; weights count for pools, starts for start rates.")
    weight: int
    blocks: bool
    message: str
    holders: list[LimitRun] = Field(description="The longest first, at most 100.")


class RunCandidate(Answer):
    """An executor that might take the run."""

    worker_id: int
    executor: str
    fits: bool = Field(description="It can take the run now.")
    running: int
    slots: int
    message: str = Field(description="Why it cannot; empty when it can.")


class RunScope(Answer):
    """A scope in the queue of the run."""

    scope: str
    scope_id: str
    waiting: int
    weight: int = Field(description="Runs in each of its turns.")


class RunTurn(Answer):
    """The queue of the run's own limit while it is deferred, else of the runs that are due. Figures are counted up to 1000."""

    more_urgent: int = Field(
        description="Runs that go first: of higher priority, or due now while this one catches up."
    )
    earlier: int = Field(description="Runs of the same scope and priority that go first.")
    scopes: list[RunScope] = Field(
        description="Scopes that take turns with that of the run, itself included, at most 50."
    )


class RunExplanation(Answer):
    """Why a run waits, or what became of it."""

    state: str
    reasons: list[str] = Field(
        description="What holds the run back, the first obstacle first; of one that was sent or is over, what became of "
        "it. One sentence each, at least one."
    )
    run_id: int
    job: str
    checks: list[RunCheck] = Field(
        description="What the leader looks at before it sends the run, in its order. Empty once it was sent."
    )
    limits: list[RunLimit] = Field(description="The limits that the run needs before it is sent.")
    executors: list[RunCandidate] = Field(
        description="Every executor that is not off, and whether it can take the run now."
    )
    turn: RunTurn | None = Field(description="Unset once it was sent.")
    at_worker: bool = Field(
        description="Its next step is for external workers: executors have no part in it, and none is named."
    )


class Limits(Answer):
    """All limits."""

    limits: list[Limit]


class ChangedLimit(Answer):
    """A limit after its change."""

    limit: Limit
