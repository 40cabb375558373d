"""What use cases and loops need from outside the process, and the data that pass there. Adapters implement it."""

import math
from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import NamedTuple, Protocol, Self

from toban_domain.outcome import AttemptKey, AttemptState
from toban_domain.progress import Progress
from toban_executor.decide.log_block import LogBlock
from toban_executor.decide.models import AttemptEnd, CancelOrder, Report, StartOrder
from toban_executor.guard.launch import GuardSet
from toban_fencing.epoch_gate import Header, Record
from toban_fencing.executor_lease import Instant


class Chunk(NamedTuple):
    """Log lines of one attempt and stream, compressed. `id` is the journal's (0 before it is there)."""

    id: int
    key: AttemptKey
    stream: int
    seq_from: int
    seq_to: int
    lines: int
    raw_bytes: int
    first_ns: int
    last_ns: int
    data: bytes

    @classmethod
    def of(cls, key: AttemptKey, blocks: Sequence[LogBlock], data: bytes) -> Self:
        """These lines of one stream, in order, which are `data`."""
        first, last = blocks[0], blocks[-1]
        return cls(
            id=0,
            key=key,
            stream=first.stream,
            seq_from=first.seq_from,
            seq_to=last.seq_from + last.lines - 1,
            lines=sum(block.lines for block in blocks),
            raw_bytes=sum(len(block.text) for block in blocks),
            first_ns=first.at_ns,
            last_ns=last.at_ns,
            data=data,
        )


class Seal(NamedTuple):
    """The last line number of an attempt."""

    key: AttemptKey
    last_seq: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkBatch:
    """The next things to ship, and the tickets of the attempts in it."""

    chunks: Sequence[Chunk]
    seals: Sequence[Seal]
    tickets: Mapping[AttemptKey, bytes]


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalBatch:
    """What guards have sent, to be stored in one transaction.

    `tickets` are those of attempts that have no chunk in the journal yet, `reports` the outcomes of attempts whose last lines
    are in this batch. `ack_offsets` is the number of the last message of each guard that is in this batch or an earlier one.
    """

    chunks: Sequence[Chunk] = ()
    seals: Sequence[Seal] = ()
    tickets: Mapping[AttemptKey, bytes] = field(default_factory=dict)
    reports: Sequence[Report] = ()
    ack_offsets: Mapping[str, int] = field(default_factory=dict)


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
class JournalContents:
    """What earlier processes on this state directory left in the journal."""

    epoch_max: int = 0
    signed_epoch: SignedEpoch | None = None
    seen: tuple[AttemptKey, ...] = ()
    tombstones: tuple[AttemptKey, ...] = ()
    reports: tuple[Report, ...] = ()
    # Outcomes that were refused, each with the text of the refusal.
    quarantined: tuple[tuple[Report, str], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """What exists before gRPC is loaded: the locked state directory, the guards, and the earlier incarnations that have ended.

    `settled`: True for those that are proven empty. The setting gives at most `most_slots`: more cannot be started here.
    """

    state_dir: Path
    guards: GuardSet
    settled: dict[str, bool]
    most_slots: int


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
    labels: dict[str, str] = field(default_factory=dict)
    previous_incarnation: str = ""
    previous_verified_empty: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Registered:
    """A coordinator's answer to Register. Times in milliseconds and seconds; `max_jobs` 0 = the executor's own number."""

    worker_id: int
    incarnation_key: str
    lease_ms: int
    margin_ms: int
    heartbeat_seconds: float
    epoch: int
    signed_epoch: SignedEpoch | None = None
    max_jobs: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class RelayedOrder:
    """An order from the answer to a heartbeat; exactly one of the four is set."""

    order_id: int
    header: Header
    cancel: Sequence[CancelOrder] | None = None
    revoke: Sequence[AttemptKey] | None = None
    drain: bool | None = None
    start: Sequence[StartOrder] | None = None
    smallest_live: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Vitals:
    """What `toban doctor` checks: the present wall clock, free bytes of the state directory, the end of the certificate."""

    wall_clock: datetime
    disk_free_bytes: int
    certificate_not_after: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class HeartbeatRequest:
    """One heartbeat of the executor. `progress` of held attempts is what no coordinator has acknowledged.

    `names_all`: `held`, `unanswered` and `quarantined` (with the text of the refusal) are all attempts whose outcome is not accepted.
    """

    echo: int
    epoch_max: int
    free_slots: int
    held: Sequence[tuple[AttemptKey, AttemptState]]
    signed_epoch: SignedEpoch | None = None
    progress: Mapping[AttemptKey, Progress] = field(default_factory=dict)
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


@dataclass(frozen=True, slots=True, kw_only=True)
class HeartbeatAnswer:
    """A coordinator's answer to a heartbeat; `state` is that of the executor's row (on, draining, detached, cut, off).

    `detach_mode` is not empty when an operator has detached it: let_finish or stop.
    """

    granted: bool
    grant_seq: int
    epoch: int
    state: str
    signed_epoch: SignedEpoch | None = None
    detach_mode: str = ""
    settings_version: int = 0
    orders: Sequence[RelayedOrder] = ()
    not_held: Sequence[AttemptKey] = ()
    smallest_live: int = 0
    log_archivers: Sequence[str] = ()


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

    async def report(self, reports: Sequence[Report]) -> Sequence[ReportAnswer]:
        """Submit reports; those without an answer are to be sent again."""
        ...


class Journal(Protocol):
    """Durable memory; see adapters.journal for the meaning of each. `writable`: the last write succeeded."""

    @property
    def writable(self) -> bool: ...
    def remembered(self) -> JournalContents: ...
    def meta(self, key: str) -> str: ...
    def start(self) -> None: ...
    def close(self) -> None: ...
    async def set_meta(self, key: str, value: str) -> None: ...
    async def record(self, records: Sequence[Record]) -> None: ...
    def post_records(self, records: Sequence[Record]) -> None: ...
    def post_signed_epoch(self, signed: SignedEpoch) -> None: ...
    def forget_below(self, token: int) -> None: ...
    def put_report(self, report: Report) -> None: ...
    def drop_reports(self, done: Sequence[tuple[AttemptKey, int]]) -> None: ...
    def quarantine_report(self, report: Report, message: str) -> None: ...
    async def store(self, batch: JournalBatch) -> int: ...
    async def chunks_after(self, chunk_id: int, limit: int, max_bytes: int) -> ChunkBatch: ...
    def drop_chunks(self, ids: Sequence[int], seals: Sequence[AttemptKey]) -> None: ...
    async def quarantine_chunks(self, ids: Sequence[int], seals: Sequence[AttemptKey]) -> int: ...
    async def requeue_chunks(self, most: int) -> tuple[int, int]: ...
    async def log_bytes(self) -> int: ...


class GuardListener(Protocol):
    """Receives the reports of the guards, on the event loop's thread."""

    def started(self, key: AttemptKey, pid: int, at_ns: int) -> None:
        """The attempt has been running for a moment; of shorter ones only the end is reported."""
        ...

    def output(self, key: AttemptKey, block: LogBlock) -> None:
        """Lines of an attempt, in order, always before its end."""
        ...

    def unreachable(self, key: AttemptKey, processes: int) -> None:
        """So many processes of the attempt refuse signals: the guard cannot end them."""
        ...

    def ended(self, end: AttemptEnd) -> None:
        """The attempt is over and nothing of its tree is left."""
        ...

    def guards_gone(self) -> None:
        """A guard ended without a successor: the state of its job is unknown, the incarnation must end."""
        ...


class Guards(Protocol):
    """The slots of this incarnation."""

    def spawn(
        self,
        order: StartOrder,
        *,
        env: Mapping[str, str],
        programs: Sequence[str],
        deadline: Instant,
        lease_grace: float,
    ) -> None:
        """Give an attempt to a free slot; `programs` are the files to start for each step, empty = by the job's PATH."""
        ...

    def push_deadline(self, deadline: Instant) -> None:
        """Send every busy guard the time until which it may let its job run."""
        ...

    def kill(
        self, key: AttemptKey, *, cause: str, reason: str, grace: float | None, at_most: float = math.inf
    ) -> float | None:
        """SIGTERM now, SIGKILL after `grace` seconds (None = the order's own, `at_most` so many), for the whole tree.

        The seconds that it has; None when no slot has the attempt.
        """
        ...

    def kill_directly(self) -> None:
        """SIGKILL every job from this process, for guards that are stopped themselves."""
        ...


class GuardOutput(Protocol):
    """The flow of output from the guards."""

    def hold_output(self, hold: bool) -> None:
        """Stop (True) or resume reading output, so that jobs block in their writes. Starts and ends are never held back."""
        ...

    def ack_offsets(self) -> Mapping[str, int]:
        """Number of the last message of each guard that has sent more than is known to be on disk, by the guard's name."""
        ...

    def ack(self, offsets: Mapping[str, int]) -> None:
        """Messages up to these numbers are on disk; `offsets` as `ack_offsets` returned them."""
        ...


class GuardConnection(Protocol):
    """The connection to the guards."""

    def listen(self, listener: GuardListener) -> None:
        """Begin to read the reports of the guards."""
        ...

    def stop_reading(self) -> None:
        """Read no more reports; the guards keep them for the next incarnation."""
        ...

    async def close(self, timeout: float) -> bool:
        """End the guards; True when they have ended in order within `timeout` seconds, which proves that no job is left."""
        ...


class Archivers(Protocol):
    """The log-archivers; `open` raises TobanError when none is known."""

    def open(self) -> "AbstractAsyncContextManager[LogStream]":
        """A stream to one of them, another one after a failure."""
        ...

    def try_another(self) -> None:
        """The next stream goes to another one."""
        ...


class LogStream(Protocol):
    """One open stream to a log-archiver."""

    async def append(self, batch: ChunkBatch) -> "Shipped":
        """Send the batch and wait until it is committed. Raises TobanError."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Shipped:
    """What an archiver refused of a committed batch: (attempt, first line, code). `lacks_ticket` = send again with tickets."""

    refused: Sequence[tuple[AttemptKey, int, str]] = ()
    lacks_ticket: bool = False
