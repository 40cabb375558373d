"""Election state, events and effects (docs/fencing.md 3.1). Plain values only; all times are seconds of one
process's CLOCK_BOOTTIME."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum, StrEnum


@dataclass(frozen=True, slots=True, kw_only=True)
class Timings:
    """Seconds. Safety depends on none of them: the leader row alone makes a leader; they bound how long a hand-over takes."""

    beat: float = 0.3
    beat_retry: float = 0.1
    renew: float = 0.4
    # A tick that comes for another reason may beat and renew so much earlier, so that a renewal goes with a beat; a tick that is due for them comes
    # at the times above.
    early: float = 0.12
    poll: float = 0.15
    # How long after a beat is due a candidate reads it: between two beats that come there is nothing to see.
    after_beat: float = 0.05
    lock_ttl: float = 2.0
    # How long the beat must stand still before a take-over: with the lock; without it (Redis is gone, or the lock has another owner, whose
    # own take-over would have come by then); with death evidence.
    still: float = 1.0
    still_without_lock: float = 3.0
    still_with_evidence: float = 0.4
    # The last read of the beat may be this old at a take-over; two reads further apart than `gap` do not prove a stand-still between them.
    fresh: float = 0.2
    gap: float = 1.0
    # A leader stops this long after the send of its last good renewal, and this long after its last commit.
    renew_stale: float = 1.5
    commit_stale: float = 1.0
    # When Redis names another owner of its lock, a leader stops unless PostgreSQL confirms the term within this time.
    confirm: float = 0.5
    aside: float = 2.0


class Role(StrEnum):
    """What one coordinator does in the election."""

    STANDING = "standing"
    LEADING = "leading"
    # Has just stopped leading: watches, but lets others go first.
    ASIDE = "aside"
    # Told to leave: takes no further part.
    LEFT = "left"


class LockOutcome(StrEnum):
    """What Redis said about the lock. `UNREACHABLE` is every failure to get an answer that counts: timeout, no connection, an error reply."""

    HELD = "held"
    FOREIGN = "foreign"
    UNREACHABLE = "unreachable"


class Overwrite(IntEnum):
    """Whose lock a renewal takes. The lock of an older term, and the own one, it always takes; the values are those of renew.lua."""

    OLDER = 0
    # Also a candidate's: the term was won just now, or Redis was gone.
    CANDIDATE = 1
    # Whatever is there: PostgreSQL has confirmed the term after Redis had named another owner.
    ANY = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderRow:
    """The leader row and its beat as one read showed them. `holder` is the leader's incarnation, empty before the first term. `beat_age`: how
    old the beat was then, seconds by PostgreSQL's clock; it decides only when the next read comes."""

    epoch: int
    holder: str
    resigned_epoch: int
    beat: int
    address: str = ""
    worker_id: int = 0
    node_id: str = ""
    beat_age: float = field(default=0.0, compare=False)

    @property
    def resigned(self) -> bool:
        """True when the holder of this very epoch has resigned it, or no coordinator has ever led."""
        return self.epoch == 0 or self.resigned_epoch == self.epoch


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """A row, when this beat was first shown (return of that read) and when it was last shown."""

    row: LeaderRow
    since: float
    read_at: float


# ---------------------------------------------------------------- events


@dataclass(frozen=True, slots=True)
class Tick:
    """Time has passed. `look`: something hints that the leader row has changed, so read it now."""

    look: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RowRead:
    """A read of the leader row returned; `row` None when it failed."""

    row: LeaderRow | None


@dataclass(frozen=True, slots=True, kw_only=True)
class LockTried:
    """The answer to TryLock, which was sent at `sent_at`."""

    sent_at: float
    outcome: LockOutcome


@dataclass(frozen=True, slots=True, kw_only=True)
class TakeOverDone:
    """The compare-and-set returned. `epoch` None: zero rows (another candidate won), or an unknown outcome: the next read of the row decides."""

    sent_at: float
    epoch: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class BeatDone:
    """The beat of a term returned: `ok` True committed while the leader row names this term, False zero rows, another term or another
    cluster, None no answer from PostgreSQL."""

    epoch: int
    ok: bool | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RenewDone:
    """The renewal of a term's lock, sent at `sent_at`, returned."""

    epoch: int
    sent_at: float
    outcome: LockOutcome


@dataclass(frozen=True, slots=True)
class DegradeSeen:
    """The operator's or sub-leader's flag in this coordinator's worker hash: an epoch, or 1 for the current one."""

    epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Deposed:
    """Something proves that this epoch must end here: a fence, the executors' maximum, used-up tokens. `reason` is for people."""

    epoch: int
    reason: str


@dataclass(frozen=True, slots=True)
class YieldLeadership:
    """`on`: another coordinator is there that leads better, since this machine's clock is off. Told again and again; False ends it."""

    on: bool


@dataclass(frozen=True, slots=True)
class DeathEvidence:
    """The stream to the leader of this epoch closed and a new connection was refused."""

    epoch: int


@dataclass(frozen=True, slots=True)
class Leave:
    """This process ends: resign if leading, and stand no more."""


Event = (
    Tick
    | RowRead
    | LockTried
    | TakeOverDone
    | BeatDone
    | RenewDone
    | DegradeSeen
    | Deposed
    | YieldLeadership
    | DeathEvidence
    | Leave
)

# ---------------------------------------------------------------- effects


@dataclass(frozen=True, slots=True)
class ReadRow:
    """Read the leader row and its beat; answer with RowRead."""


@dataclass(frozen=True, slots=True)
class TryLock:
    """SET NX the lock for a candidate (epoch 0); answer with LockTried."""


@dataclass(frozen=True, slots=True)
class TakeOver:
    """Compare-and-set the leader row from this observation; answer with TakeOverDone."""

    observed: LeaderRow


@dataclass(frozen=True, slots=True)
class StartLeading:
    """A term has begun."""

    epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StopLeading:
    """The term is over: stop every loop now. Effects after this one (Resign, ReleaseLock) follow in order."""

    epoch: int
    reason: str


@dataclass(frozen=True, slots=True)
class Resign:
    """Write resigned_epoch where it can be written."""

    epoch: int


@dataclass(frozen=True, slots=True)
class ReleaseLock:
    """Delete the lock if it is ours (epoch 0: the candidate's)."""

    epoch: int


@dataclass(frozen=True, slots=True)
class Beat:
    """Write the beat of this term; answer with BeatDone."""

    epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Renew:
    """Renew the lock of this term; answer with RenewDone."""

    epoch: int
    overwrite: Overwrite


@dataclass(frozen=True, slots=True)
class ReportForeignLock:
    """Redis names another owner of the lock although PostgreSQL confirms this term: the lock is overwritten. People have to know."""

    epoch: int


Effect = (
    ReadRow | TryLock | TakeOver | StartLeading | StopLeading | Resign | ReleaseLock | Beat | Renew | ReportForeignLock
)

# ---------------------------------------------------------------- state


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """The standing side: what was seen of the row and of the lock, and which calls are under way."""

    seen: Seen | None = None
    # The epoch whose leader was reported dead, and when that report came.
    evidence: int | None = None
    evidence_at: float = 0.0
    lock_sent: float | None = None
    # When the lock was last not to be had: Redis is gone, or another owner has it.
    refused_at: float | None = None
    poll_at: float = 0.0
    try_at: float = 0.0
    reading: bool = False
    trying: bool = False
    taking: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Leading:
    """One term: when PostgreSQL last took a commit, when Redis last took a renewal or was found gone."""

    epoch: int
    committed_at: float
    renewed_at: float
    redis_gone_at: float | None = None
    beat_at: float = 0.0
    renew_at: float = 0.0
    beating: bool = False
    renewing: bool = False
    # What the next renewal may take; a term is held by the beat alone until Redis takes a renewal again.
    overwrite: Overwrite = Overwrite.CANDIDATE
    # When Redis named another owner, until PostgreSQL confirms the term; `confirming`: the beat under way was sent after that.
    doubted_at: float | None = None
    confirming: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ElectorState:
    """All that `decide` remembers. `me` is the incarnation of this process."""

    me: str
    timings: Timings = Timings()
    role: Role = Role.STANDING
    aside_until: float = 0.0
    # Another coordinator should lead: this one does not stand.
    should_yield: bool = False
    candidate: Candidate = Candidate()
    term: Leading | None = None
