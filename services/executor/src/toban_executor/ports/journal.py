"""The journal of an executor: what must outlast its process."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from toban_domain.outcome import AttemptKey
from toban_executor.decide.models import Report
from toban_executor.ports.coordinator import SignedEpoch
from toban_executor.ports.logs import Chunk, ChunkBatch, Seal
from toban_fencing.epoch_gate import Record


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
class JournalContents:
    """What earlier processes on this state directory left in the journal."""

    epoch_max: int = 0
    signed_epoch: SignedEpoch | None = None
    seen: tuple[AttemptKey, ...] = ()
    tombstones: tuple[AttemptKey, ...] = ()
    reports: tuple[Report, ...] = ()
    # Outcomes that were refused, each with the text of the refusal.
    quarantined: tuple[tuple[Report, str], ...] = ()


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
