"""One slot of a guard: the events that reach it and the effects that it asks for (docs/fencing.md 3.6).

Plain values only. An `Instant` is a moment on CLOCK_BOOTTIME and on the wall clock, in seconds. Commands travel from the executor to
the guard, reports back; guard/protocol.py has their form on the socket. What each run makes is a NamedTuple: a frozen dataclass takes four times as
long to make.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from toban_domain.outcome import AttemptKey
from toban_executor.decide.models import AttemptEnd, StartOrder
from toban_fencing.executor_lease import Instant

DEFAULT_FREEZE_MAX = 300.0

# ---------------------------------------------------------------- commands of the executor


class Spawn(NamedTuple):
    """Start an attempt. `programs` are the files to execute, one a step (empty = by the PATH in `env`).

    When the lease ends, an order of `on_lease_loss: kill` gets SIGTERM `lease_grace` seconds before SIGKILL, which precedes
    `deadline`. One of `freeze` is frozen at `deadline`, for at most `freeze_max` seconds. One of `continue` runs on.
    """

    order: StartOrder
    programs: Sequence[str]
    env: Mapping[str, str]
    deadline: Instant
    lease_grace: float
    freeze_max: float = DEFAULT_FREEZE_MAX


@dataclass(frozen=True, slots=True, kw_only=True)
class SetDeadline:
    """The attempt with this token may run until `deadline`; a frozen one only with `thaw`.

    `thaw`: the granted heartbeat named it as frozen, so the answer would have listed it if the cluster did not hold it.
    `frozen_seconds` is the total that the executor knows, which includes what it froze by itself while the guard was stopped.
    """

    token: int
    deadline: Instant
    thaw: bool = False
    freeze_max: float = DEFAULT_FREEZE_MAX
    frozen_seconds: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Kill:
    """End the attempt with this token: SIGTERM, SIGKILL after `grace` seconds. `cause` and `reason` go into its end."""

    token: int
    cause: str
    reason: str
    grace: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Cancel:
    """The attempt with this token is cancelled, as `CancelOrder` has it."""

    token: int
    reason: str
    grace: float
    cooperative: bool = False
    force: bool = False


@dataclass(frozen=True, slots=True)
class CheckpointStored:
    """Checkpoint `number` of the attempt with this token is committed, or cannot be: `problem`."""

    token: int
    number: int
    problem: str = ""


@dataclass(frozen=True, slots=True)
class HoldOutput:
    """Stop reading the job's pipes, so that it waits in its writes, or read them again."""

    on: bool


@dataclass(frozen=True, slots=True)
class Reset:
    """The executor has reported the attempt of the slot supervisor that died as lost; `losses` of this slot so far."""

    losses: int


@dataclass(frozen=True, slots=True)
class Acknowledge:
    """Nothing but the acknowledgement that every command carries."""


Command = Spawn | SetDeadline | Kill | Cancel | CheckpointStored | HoldOutput | Reset | Acknowledge


# ---------------------------------------------------------------- events


class Received(NamedTuple):
    """A command for the guards of `incarnation`. Reports up to number `acked` are on the executor's disk."""

    incarnation: str
    acked: int
    command: Command


class StepStarted(NamedTuple):
    """Answer to StartStep: the main process runs; 0 = a zygote has yet to fork it."""

    pid: int


@dataclass(frozen=True, slots=True)
class StepNotStarted:
    """Answer to StartStep: no process was started; `reason` is for people."""

    reason: str


class Tick(NamedTuple):
    """Time has passed. `child_exited`: TreeChecked follows, because the kernel signalled an end."""

    child_exited: bool = False


class ProcessEnd(NamedTuple):
    """How a process ended: exit code or signal, the other is None."""

    exit_code: int | None = None
    signal: int | None = None


class TreeChecked(NamedTuple):
    """Ended children were collected, for CheckTree or because the kernel signalled an end.

    `main` is the end of the step's main process when it was among them; `empty`: no process is left. `unreachable` processes
    refused the last signals (EPERM): they run with rights that the guard has not. `pid` is the step's process where that was learned now.
    """

    empty: bool
    main: ProcessEnd | None = None
    unreachable: int = 0
    pid: int = 0


class TreeSignal(Enum):
    """What is done to every process below the guard of the slot."""

    TERMINATE = "terminate"
    KILL = "kill"


@dataclass(frozen=True, slots=True)
class TreeSignaled:
    """The signal went to every process; reaching them all takes a while in a large tree."""

    signal: TreeSignal


@dataclass(frozen=True, slots=True)
class FreezeChecked:
    """Answer to FreezeTree; `frozen`: no process of the tree runs."""

    frozen: bool


@dataclass(frozen=True, slots=True)
class JobSpoke:
    """The job has shown on its socket, or by a marker, that it is alive."""


@dataclass(frozen=True, slots=True)
class ExecutorClosed:
    """The executor has closed its end of the socket, or has died."""


Event = (
    Received
    | StepStarted
    | StepNotStarted
    | Tick
    | TreeSignaled
    | TreeChecked
    | FreezeChecked
    | JobSpoke
    | ExecutorClosed
)


# ---------------------------------------------------------------- effects


class StartStep(NamedTuple):
    """Start this step of the attempt, answered by StepStarted or StepNotStarted before any other event. The first one prepares the work directory."""

    spawn: Spawn
    step: int


@dataclass(frozen=True, slots=True)
class SignalTree:
    """Signal every process of the attempt, answered by TreeSignaled."""

    signal: TreeSignal


@dataclass(frozen=True, slots=True)
class FreezeTree:
    """Stop every process of the attempt without ending it, answered by FreezeChecked. Done again, it finds what was started meanwhile."""


@dataclass(frozen=True, slots=True)
class ThawTree:
    """Let every process that FreezeTree stopped run again."""


@dataclass(frozen=True, slots=True)
class CheckTree:
    """Collect ended children, answered by TreeChecked. Also done without this effect whenever a child ends."""


@dataclass(frozen=True, slots=True)
class CloseLeasePipe:
    """Signal the loss of the lease to the job by the end of its lease descriptor."""


@dataclass(frozen=True, slots=True)
class NotifyCancel:
    """Tell the job that it is cancelled: it may end by itself."""

    reason: str


@dataclass(frozen=True, slots=True)
class TellCheckpoint:
    """Answer the job whose checkpoint was stored, or was not."""

    number: int
    problem: str


@dataclass(frozen=True, slots=True)
class DrainOutput:
    """The tree is empty: read what the pipes hold, without waiting, and close them."""


@dataclass(frozen=True, slots=True)
class PauseOutput:
    """Leave the job's pipes alone."""


@dataclass(frozen=True, slots=True)
class ResumeOutput:
    """Read the job's pipes again. `waited` seconds become a line in the log of the job; 0 = no line."""

    waited: float = 0.0


class DropAcked(NamedTuple):
    """Reports up to this number need not be kept."""

    number: int


@dataclass(frozen=True, slots=True)
class ReportStart:
    """Report to the executor that the attempt runs."""

    start: AttemptStart


@dataclass(frozen=True, slots=True)
class ReportFreeze:
    """Report to the executor that the attempt was frozen or thawed."""

    turn: FreezeTurn


class ReportEnd(NamedTuple):
    """The attempt is over and its tree is empty: clear the work directory, send the rest of its log, then this."""

    end: AttemptEnd
    # Of the attempt's log.
    ticket: bytes


@dataclass(frozen=True, slots=True)
class ReportUnreachable:
    """Report to the executor that processes of the attempt refuse signals: this machine must get no new work."""

    report: ProcessesUnreachable


@dataclass(frozen=True, slots=True)
class Refuse:
    """The attempt never started in this slot."""

    end: AttemptEnd


@dataclass(frozen=True, slots=True)
class Stop:
    """Nothing is left to guard and the executor has ended: spool unacknowledged reports and end."""


Effect = (
    StartStep
    | SignalTree
    | FreezeTree
    | ThawTree
    | CheckTree
    | CloseLeasePipe
    | NotifyCancel
    | TellCheckpoint
    | DrainOutput
    | PauseOutput
    | ResumeOutput
    | DropAcked
    | ReportStart
    | ReportFreeze
    | ReportEnd
    | ReportUnreachable
    | Refuse
    | Stop
)


# ---------------------------------------------------------------- reports to the executor


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptStart:
    """The attempt has been running for a moment. Unix nanoseconds. Shorter attempts are reported by their end alone."""

    key: AttemptKey
    pid: int
    started_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessesUnreachable:
    """So many processes of the attempt cannot be signalled; sent once an attempt."""

    key: AttemptKey
    processes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FreezeTurn:
    """The attempt was frozen, or thawed. `seconds` is how long it has been frozen in all; Unix nanoseconds of the turn."""

    key: AttemptKey
    frozen: bool
    seconds: float
    at_ns: int


class JobNote(NamedTuple):
    """What a job has said, or where it is, for the executor that runs now. `kind`: progress, checkpoint (the `number`-th) or steps.

    `text` is JSON.
    """

    key: AttemptKey
    kind: str
    text: str
    number: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotLost:
    """The slot supervisor died for the `losses`-th time; its tree was killed and it was replaced."""

    slot: int
    losses: int
