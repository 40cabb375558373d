"""What an executor and the coordinators tell each other."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import NamedTuple, Protocol

from toban_domain.outcome import AttemptKey, AttemptState
from toban_domain.progress import Progress
from toban_executor.decide.isolation import NO_SANDBOX, Isolation
from toban_executor.decide.lease_end import FreezeNote
from toban_executor.decide.models import CancelOrder, Report
from toban_fencing.epoch_gate import Header


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """The facts about this executor that Register carries."""

    incarnation: str
    instance: str
    node_id: str
    boot_id: str
    pid: int
    grpc_host: str
    grpc_port: int
    slots: int
    most_slots: int
    ready_slots: int
    version: str
    instance_secret: str = field(default="", repr=False)
    labels: dict[str, str] = field(default_factory=dict)
    previous_incarnation: str = ""
    previous_verified_empty: bool = False
    isolation: Isolation = NO_SANDBOX


@dataclass(frozen=True, slots=True, kw_only=True)
class SignedEpoch:
    """What a coordinator signed with a grant, to be presented as `message` to others (docs/fencing.md 3.2)."""

    epoch: int
    incarnation: str
    grant_seq: int
    message: bytes

    def replaces(self, held: "SignedEpoch | None") -> bool:
        """Never with a lower epoch: after a restore of PostgreSQL the higher one is the proof. Of one incarnation the newest grant counts."""
        if held is None or self.epoch != held.epoch:
            return held is None or self.epoch > held.epoch
        return self.incarnation != held.incarnation or self.grant_seq > held.grant_seq


@dataclass(frozen=True, slots=True, kw_only=True)
class Registered:
    """A coordinator's answer to Register. Times in milliseconds and seconds; `max_jobs` 0 = the executor's own number."""

    worker_id: int
    incarnation_key: str = field(repr=False)
    lease_ms: int
    margin_ms: int
    heartbeat_seconds: float
    epoch: int
    signed_epoch: SignedEpoch | None = None
    max_jobs: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class RelayedOrder:
    """An order from the answer to a heartbeat; exactly one of the two is set."""

    order_id: int
    header: Header
    cancel: Sequence[CancelOrder] | None = None
    revoke: Sequence[AttemptKey] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Vitals:
    """What `toban doctor` checks: the present wall clock, free bytes of the state directory, the end of the certificate."""

    wall_clock: datetime
    disk_free_bytes: int
    certificate_not_after: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class HeartbeatRequest:
    """One heartbeat of the executor. `progress` and `freezes` of held attempts are what no coordinator has acknowledged.

    `nonce` came with the last grant, 0 = none.
    `names_all`: `held`, `unanswered` and `quarantined` (with the text of the refusal) are all attempts whose outcome is not accepted.
    """

    echo: int
    epoch_max: int
    free_slots: int
    held: Sequence[tuple[AttemptKey, AttemptState]]
    nonce: int = 0
    signed_epoch: SignedEpoch | None = None
    progress: Mapping[AttemptKey, Progress] = field(default_factory=dict)
    freezes: Mapping[AttemptKey, FreezeNote] = field(default_factory=dict)
    # JSON of the steps of attempts that have reached another one.
    steps: Mapping[AttemptKey, str] = field(default_factory=dict)
    outcomes: Sequence[tuple[int, str]] = ()
    draining: bool = False
    stopped: bool = False
    settings_version: int = 0
    load: float = 0.0
    labels: Mapping[str, str] = field(default_factory=dict)
    vitals: Vitals | None = None
    names_all: bool = False
    unanswered: Sequence[AttemptKey] = ()
    quarantined: Mapping[AttemptKey, str] = field(default_factory=dict)
    quarantined_outcomes: int = 0
    quarantined_chunks: int = 0
    unreachable: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class HeartbeatAnswer:
    """A coordinator's answer to a heartbeat; `state` is that of the executor's row (on, draining, detached, cut, off).

    `detach_mode` is not empty when an operator has detached it: let_finish or stop. `nonce` comes with a grant, for the next heartbeat (0: a
    coordinator of an earlier release). `superseded`: no grant, because another copy of this incarnation has presented a later nonce.
    """

    granted: bool
    grant_seq: int
    epoch: int
    state: str
    nonce: int = 0
    superseded: bool = False
    signed_epoch: SignedEpoch | None = None
    detach_mode: str = ""
    settings_version: int = 0
    orders: Sequence[RelayedOrder] = ()
    not_held: Sequence[AttemptKey] = ()
    smallest_live: int = 0
    log_archivers: Sequence[str] = ()


class Target(NamedTuple):
    """A coordinator to ask about continuation: its address, and what it is (leader, subleader, other)."""

    path: str
    address: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ContinuationQuestion:
    """May these attempts continue? `nonce` came with the last grant, 0 = none."""

    echo: int
    nonce: int
    keys: Sequence[AttemptKey]
    signed_epoch: SignedEpoch | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ContinuationAnswer:
    """What PostgreSQL says through one coordinator. `confirmed`: the lease extends from the send of the question.

    `refused` attempts must be ended first, each with its reason (canceled, not_held, detached); `reason` says why nothing was confirmed.
    `nonce` comes with a confirmation.
    """

    confirmed: bool
    grant_seq: int
    state: str
    refused: Mapping[AttemptKey, str] = field(default_factory=dict)
    reason: str = ""
    signed_epoch: SignedEpoch | None = None
    nonce: int = 0


class ReportAnswer(NamedTuple):
    """A coordinator's answer to one report. `refused` is not final: the outcome is kept, and `message` says why it was not stored."""

    key: AttemptKey
    seq: int
    result: str
    message: str = ""


class Gateway(Protocol):
    """Any coordinator: the leader first, then the others. All raise TobanError when none gives a usable answer."""

    async def register(
        self, identity: Identity, epoch_max: int, reports: Sequence[Report], signed_epoch: SignedEpoch | None = None
    ) -> Registered:
        """Insert the incarnation, with the oldest `reports` of earlier ones; later calls carry the key of the answer."""
        ...

    async def heartbeat(self, request: HeartbeatRequest) -> HeartbeatAnswer:
        """Ask for a grant."""
        ...

    def continuation_targets(self) -> Sequence[Target]:
        """Whom to ask about continuation, in this order."""
        ...

    async def confirm_continuation(
        self, target: Target, question: ContinuationQuestion, *, timeout: float
    ) -> ContinuationAnswer:
        """Ask this coordinator alone."""
        ...

    async def store_checkpoint(self, key: AttemptKey, seq: int, value_json: str) -> bool:
        """Store what a live attempt keeps for the next one; False when the run has gone on without it."""
        ...

    async def report(self, reports: Sequence[Report]) -> Sequence[ReportAnswer]:
        """Submit reports; those without an answer are to be sent again."""
        ...
