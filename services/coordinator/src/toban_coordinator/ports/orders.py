"""What a leader may ask of an executor, and what comes back (docs/fencing.md 3.9).

The adapter behind `WorkerOrders` draws a serial for each RPC and keeps one order RPC in flight per executor, so that serials never overtake each
other. It also signs the log ticket of every start. Every call takes a batch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Protocol

from toban_domain.epoch import Term
from toban_domain.job import DEFAULT_LEASE_LOSS_GRACE_SECONDS, LEASE_LOSS_ACTION, LogSpec, StepSpec
from toban_domain.outcome import AttemptKey
from toban_domain.secret import SecretRef
from toban_domain.usage import UsageSample
from toban_observability.tracing import OpenSpan

# Refusals of an order as a whole: the executor did not look at the attempts, so these say nothing about them (not "gone").
NOT_GONE = frozenset({"STALE_EPOCH", "WRONG_INCARNATION"})

# The answer for an order that was not delivered and waits in executor_orders.
QUEUED = "queued"

# The leader's own refusal of a start: no message can be made of it, so it was not sent.
ORDER_INVALID = "ORDER_INVALID"

# So is this: a secret that its job names cannot be given to it.
SECRET_UNAVAILABLE = "SECRET_UNAVAILABLE"

# And this: a value to which a text of a step or of env refers is missing.
TEMPLATE_INVALID = "TEMPLATE_INVALID"

NOT_SENT = frozenset({ORDER_INVALID, SECRET_UNAVAILABLE, TEMPLATE_INVALID})


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutorFacts:
    """What never changes of an incarnation. `proves_log_key`: it proves its key to log-archivers. `secret_hash` is that of its instance's secret."""

    incarnation: str
    group: str
    key_hash: bytes = field(repr=False)
    secret_hash: bytes | None = field(repr=False)
    proves_log_key: bool


@dataclass(frozen=True, slots=True)
class Target:
    """One incarnation of an executor. `address` is host:port of its WorkerService."""

    incarnation: str
    worker_id: int
    address: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StartOrder:
    """Start one attempt. `timeout_seconds` 0 = none; `log_day` is PostgreSQL's day of the dispatch as an ISO date."""

    key: AttemptKey
    attempt: int
    job_name: str
    definition_version: int
    steps: tuple[StepSpec, ...]
    payload_json: str = "{}"
    env: Mapping[str, str] = field(default_factory=dict)
    timeout_seconds: int = 0
    grace_seconds: float = 10.0
    on_lease_loss: str = LEASE_LOSS_ACTION
    lease_loss_grace_seconds: float = DEFAULT_LEASE_LOSS_GRACE_SECONDS
    slot: datetime | None = None
    log_day: str
    # Ended when the executor has answered; the job's trace goes on below it.
    span: OpenSpan | None = field(default=None, compare=False)
    working_dir: str = ""
    allow_shell: bool = False
    logs: LogSpec = field(default_factory=LogSpec)
    # JSON that an earlier attempt has kept, "" = none; index of the step to begin with; whether the output has a schema.
    checkpoint_json: str = ""
    first_step: int = 0
    result_expected: bool = False
    # By name only: the values come in when the order is sent.
    secrets: tuple[SecretRef, ...] = ()
    # Texts of `steps` and `env` refer to values of the run: they are filled in when the order is sent.
    templated: bool = False
    # The executor may accept it while all its slots are in use; of those that wait there the highest priority starts first.
    may_wait: bool = False
    priority: int = 0


@dataclass(frozen=True, slots=True)
class StartResult:
    """The executor's answer to one start. A refusal outside NOT_GONE means: a tombstone is written, this attempt never runs there."""

    key: AttemptKey
    accepted: bool
    refusal: str = ""
    message: str = ""

    @property
    def gone(self) -> bool:
        """True when this attempt will never run at that executor, so that its run may be placed again."""
        return not self.accepted and self.refusal not in NOT_GONE


@dataclass(frozen=True, slots=True, kw_only=True)
class CancelOrder:
    """Stop one attempt. `mode` is cooperative or kill; `grace_seconds` lies between SIGTERM and SIGKILL, of `cooperative` also before SIGTERM.

    `force`: an operator's kill, which waits for no step.
    """

    key: AttemptKey
    mode: str
    grace_seconds: float
    reason: str = ""
    force: bool = False


class WorkerOrders(Protocol):
    """Orders of the leader to executors."""

    async def start(
        self, target: Target, term: Term, orders: Sequence[StartOrder], smallest_live_token: int
    ) -> list[StartResult]:
        """Start attempts, in as many calls as their size needs. Raises TobanError (UNAVAILABLE, DEADLINE_EXCEEDED …) when the first call is not
        certainly delivered; after a later one that fails, its orders and those behind it have no result. Send again what has none: it is idempotent.

        ORDER_INVALID is the refusal of an order of which no message can be made, SECRET_UNAVAILABLE of one whose secrets cannot be had,
        TEMPLATE_INVALID of one with a reference to nothing. The executor has not seen these orders.
        """
        ...

    async def cancel(self, target: Target, term: Term, orders: Sequence[CancelOrder]) -> dict[AttemptKey, str]:
        """Cancel attempts → cancelling | finished | unknown | STALE_EPOCH | WRONG_INCARNATION.

        What cannot be delivered is written to executor_orders, to go out with the answer to a heartbeat: such keys answer `queued`.
        """
        ...

    async def revoke(self, target: Target, term: Term, keys: Sequence[AttemptKey]) -> dict[AttemptKey, str]:
        """Take attempts back → gone | running | finished | STALE_EPOCH | WRONG_INCARNATION, or `queued` as in `cancel`."""
        ...


class OrderTemplates(Protocol):
    """Fills in the texts of orders."""

    async def expanded(self, orders: Sequence[StartOrder]) -> Mapping[AttemptKey, StartOrder | str]:
        """Each of these orders filled in, or why that cannot be. Raises StoreError when PostgreSQL does not answer."""
        ...


class OrderQueue(Protocol):
    """Keeps orders that could not be delivered: they go out with the answer to a heartbeat."""

    async def add(
        self, term: Term, target: Target, kind: str, serial: int, payloads: Mapping[AttemptKey, Mapping[str, Any]]
    ) -> None:
        """Queues orders of one kind, as leader of `term`. Raises FencedOut, StoreError."""
        ...


class ExecutorDirectory(Protocol):
    """What never changes of incarnations."""

    async def find(self, incarnation: str) -> ExecutorFacts:
        """Its group and what it proves itself with. Raises UNAVAILABLE when there is no such incarnation, StoreError."""
        ...


class ExecutorProbe(Protocol):
    """A short call to an executor's WorkerService."""

    async def ping(self, incarnation: str, address: str) -> str | None:
        """The incarnation that answers at `address` within 300 ms, with a certificate of the group of `incarnation`; None for no answer."""
        ...

    async def usage(self, target: Target, key: AttemptKey) -> list[UsageSample]:
        """What the processes of an attempt use, oldest first; [] when the executor does not run it. Raises TobanError after 300 ms without answer."""
        ...
