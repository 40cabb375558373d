"""Properties of the decisions of a guard over any course of events (docs/fencing.md 3.6)."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from toban_domain.outcome import AttemptKey
from toban_executor.decide.guard import (
    CLOCK_CHECK,
    decide,
    next_due,
)
from toban_executor.decide.guard_freeze import (
    FREEZE_ALLOWANCE,
    FREEZE_CHECKS,
    FREEZE_LATEST,
    KILL_ALLOWANCE,
    is_too_late,
)
from toban_executor.decide.guard_types import (
    Cancel,
    CheckTree,
    Command,
    Effect,
    Event,
    ExecutorClosed,
    FreezeChecked,
    FreezeTree,
    HoldOutput,
    JobSpoke,
    Kill,
    ProcessEnd,
    Received,
    Refuse,
    ReportEnd,
    SetDeadline,
    SignalTree,
    Spawn,
    StartStep,
    StepStarted,
    Stop,
    ThawTree,
    Tick,
    TreeChecked,
    TreeSignal,
    TreeSignaled,
)
from toban_executor.decide.models import StartOrder, StepOrder
from toban_executor.decide.slot_state import Attempt, SlotState
from toban_fencing.executor_lease import HOLD_MARGIN, TAKE_MARGIN, Instant

OURS, OTHER = "ours", "other"
START = Instant(1000.0, 5000.0)
TERMINATE, KILL = SignalTree(TreeSignal.TERMINATE), SignalTree(TreeSignal.KILL)
FREE = SlotState(OURS)
GRACE = 1.0


def spawn(
    token: int = 1, *, lease: float = 60.0, lease_grace: float = 2.0, at: Instant = START, **fields: Any
) -> Spawn:
    """A command of one step, unless `steps` are given."""
    steps = fields.pop(
        "steps", (StepOrder(type="command", argv=("x",), timeout_seconds=fields.pop("step_timeout", 0)),)
    )
    order = StartOrder(key=AttemptKey(7, token), steps=steps, **{"grace_seconds": GRACE, **fields})
    return Spawn(order=order, programs=("",) * len(steps), env={}, deadline=at.plus(lease), lease_grace=lease_grace)


def received(command: Command, *, incarnation: str = OURS, acked: int = 0) -> Received:
    return Received(incarnation, acked, command)


@dataclass
class World:
    """A process tree and two clocks around the decisions. `stubborn` trees end by SIGKILL alone, and by that after `slow` rounds.

    A tree that is not `freezable` always has a process that runs. Signalling a tree takes `signal_seconds`.
    """

    stubborn: bool
    slow: int
    signal_seconds: float
    freezable: bool = True
    frozen: bool = False
    state: SlotState = FREE
    now: Instant = START
    # Of the attempt in the slot: whether its main process lives, and others.
    main: bool = False
    others: bool = False
    proved_empty: bool = True
    rounds: int = 0
    asked: list[int] = field(default_factory=list)
    answered: list[int] = field(default_factory=list)
    stopped: int = 0
    child_exited: bool = False
    # When the main process ended by itself, and whether a command or the executor's end came after it.
    ended_at: float = 0.0
    hurried: bool = False

    def send(self, event: Event) -> None:
        """Deliver an event, carry out its effects, and the answers after it."""
        next_event: Event | None = event
        while next_event is not None:
            assert not self.stopped or isinstance(next_event, ExecutorClosed)
            before = self.state
            if isinstance(next_event, ExecutorClosed) or (
                isinstance(next_event, Received) and isinstance(next_event.command, Kill | Cancel)
            ):
                self.hurried = True
            self.state, effects = decide(before, next_event, self.now)
            self.check(before, next_event, effects)
            next_event = None
            for place, effect in enumerate(effects):
                next_event = self.carry(effect)
                assert next_event is None or place == len(effects) - 1, "only the last effect has an answer"
        if self.child_exited:
            self.child_exited = False
            if self.state.attempt is not None:
                self.send(self.checked())

    def check(self, before: SlotState, event: Event, effects: Sequence[Effect]) -> None:
        if isinstance(event, Received) and event.incarnation != OURS:
            assert self.state == before
            assert all(isinstance(effect, Refuse) for effect in effects)
        attempt = before.attempt
        if attempt is not None and attempt.continues:
            self.check_continuing(attempt, effects)
            return
        if isinstance(event, Tick) and attempt and self.now.seconds_until(attempt.deadline) <= 0:
            assert KILL in effects or FreezeTree() in effects, "at the deadline each tick kills or freezes"
        # By the wall clock alone a lease that is to kill ends in doubt: its job is stopped, and killed when CLOCK_BOOTTIME says so.
        in_doubt = attempt is not None and self.now.boot < attempt.deadline.boot - KILL_ALLOWANCE
        may_freeze = attempt is not None and (attempt.freezes or in_doubt) and attempt.undecided
        close = attempt is not None and self.now.seconds_until(attempt.deadline) <= KILL_ALLOWANCE
        if isinstance(event, Tick) and close and not may_freeze:
            assert KILL in effects, "at the deadline SIGKILL goes out with every tick"
        if isinstance(event, Tick) and close and may_freeze:
            assert FreezeTree() in effects or KILL in effects
        if isinstance(event, FreezeChecked) and not event.frozen and attempt and attempt.frozen_since is not None:
            late = self.now.boot - min(attempt.deadline.boot, attempt.frozen_since)
            after = self.state.attempt
            may_look = late < FREEZE_ALLOWANCE + 1e-6 or (
                late < FREEZE_LATEST + 1e-6 and attempt.freeze_checks + 1 < FREEZE_CHECKS
            )
            assert may_look or after is None or after.cause, "what runs on is killed"

    def check_continuing(self, attempt: Attempt, effects: Sequence[Effect]) -> None:
        """The end of the lease does nothing; what the main process has left behind ends after its grace, as always."""
        assert FreezeTree() not in effects, "it runs on"
        # A timeout that a cancel has waited for gives the job the grace of the cancel, which may be none.
        if KILL in effects and not attempt.cause and attempt.cancel is None:
            assert attempt.main is not None, "it runs on"
            assert self.hurried or self.now.boot >= self.ended_at + GRACE - 1e-6, "the lease shortens no grace"

    def carry(self, effect: Effect) -> Event | None:
        match effect:
            case StartStep():
                assert self.proved_empty, "a step starts in an empty tree"
                attempt = self.state.attempt
                assert not self.frozen
                assert attempt is not None and not attempt.cause and not self.state.executor_closed
                assert attempt.cancel is None, "no step follows a cancel"
                assert attempt.continues or self.now.seconds_until(attempt.deadline) > 0
                self.proved_empty, self.main, self.rounds = False, True, 0
                return StepStarted(len(self.asked))
            case SignalTree(signal=signal):
                assert not self.proved_empty, "a signal to a tree that was found empty"
                assert signal is TreeSignal.KILL or not self.frozen, "a frozen tree gets no signal but SIGKILL"
                if signal is TreeSignal.KILL:
                    self.rounds += 1
                if self.rounds >= self.slow if signal is TreeSignal.KILL else not self.stubborn:
                    self.main = self.others = False
                    self.child_exited = True
                self.now = self.now.plus(self.signal_seconds)
                return TreeSignaled(signal)
            case FreezeTree():
                self.frozen = True
                return FreezeChecked(self.freezable or not (self.main or self.others))
            case ThawTree():
                attempt = self.state.attempt
                assert not (self.main or self.others) or (
                    attempt is not None and not attempt.cause and self.now.seconds_until(attempt.deadline) > 0
                ), "nothing runs on without a lease"
                self.frozen = False
            case CheckTree():
                return self.checked()
            case ReportEnd(end=end) | Refuse(end=end):
                assert isinstance(effect, Refuse) or self.proved_empty
                self.answered.append(end.key.token)
            case Stop():
                assert self.state.attempt is None and self.proved_empty
                self.stopped += 1
        return None

    def checked(self) -> TreeChecked:
        attempt = self.state.attempt
        ended = attempt is not None and attempt.main is None and not self.main
        self.proved_empty = not self.main and not self.others
        return TreeChecked(main=ProcessEnd(exit_code=0) if ended else None, empty=self.proved_empty)

    def exit(self, *, leaves: bool) -> None:
        """The main process ends by itself."""
        if self.state.attempt is not None and self.main and not self.frozen:
            self.main, self.others = False, leaves
            self.ended_at, self.hurried = self.now.boot, self.state.executor_closed
            self.send(self.checked())

    def advance(self, seconds: float) -> None:
        """Time passes; ticks come no later than they are due."""
        until = self.now.boot + seconds
        while (due := next_due(self.state, self.now)) <= until:
            assert due >= self.now.boot
            assert due <= self.now.boot + CLOCK_CHECK
            self.now = self.now.plus(max(due - self.now.boot, 0.0005))
            self.send(Tick())
        self.now = self.now.plus(max(0.0, until - self.now.boot))

    def spawn(
        self, incarnation: str, lease: float, lease_grace: float, timeout: int, steps: int, on_lease_loss: str
    ) -> None:
        token = len(self.asked) + 1
        self.asked.append(token)
        order = spawn(
            token,
            at=self.now,
            lease=lease,
            lease_grace=lease_grace,
            timeout_seconds=timeout,
            on_lease_loss=on_lease_loss,
            # Every other one ends before a cancel takes effect, and may be silent for two seconds.
            steps=(
                StepOrder(type="command", argv=("x",), cancelable=False, heartbeat_seconds=2),
                StepOrder(type="command", argv=("x",)),
                StepOrder(type="command", argv=("x",), cancelable=False),
            )[:steps],
        )
        self.send(received(order, incarnation=incarnation))

    def token(self) -> int:
        return self.state.attempt.token if self.state.attempt else 1


SECONDS = st.floats(0.0, 4.0)
LOSS = st.sampled_from(["freeze", "kill", "continue"])
INCARNATION = st.sampled_from([OURS, OURS, OURS, OTHER])
STEP = st.one_of(
    st.tuples(
        st.just("spawn"), INCARNATION, st.floats(-1.0, 20.0), SECONDS, st.integers(0, 3), st.integers(1, 3), LOSS
    ),
    st.tuples(st.just("kill"), INCARNATION, st.booleans(), SECONDS),
    st.tuples(st.just("cancel"), SECONDS, st.booleans(), st.booleans()),
    st.tuples(st.just("speak")),
    st.tuples(st.just("deadline"), INCARNATION, st.booleans(), st.floats(-1.0, 10.0), st.booleans(), SECONDS),
    st.tuples(st.just("exit"), st.booleans()),
    st.tuples(st.just("advance"), st.floats(0.0, 3.0)),
    st.tuples(st.just("wall"), st.floats(-5.0, 5.0)),
    st.tuples(st.just("hold"), st.booleans()),
    st.tuples(st.just("close")),
)


@example([("spawn", OURS, 1.0, 0.0, 0, 1, "continue"), ("exit", True)], True, 1, 0.0, True)
@example([("spawn", OURS, 0.5, 0.0, 0, 1, "continue"), ("exit", True), ("advance", 3.0)], True, 1, 0.0, True)
@example(
    [("spawn", OURS, 1.0, 0.0, 1, 1, "continue"), ("cancel", 0.0, False, False), ("advance", 1.0)], False, 1, 0.0, False
)
@example(
    [("spawn", OURS, 2.0, 0.0, 1, 1, "freeze"), ("cancel", 1e-38, False, False), ("advance", 1.0)], False, 1, 0.0, False
)
@given(st.lists(STEP, max_size=25), st.booleans(), st.integers(1, 4), st.sampled_from([0.0, 0.03]), st.booleans())
def test_any_course_of_events(
    steps: list[tuple[Any, ...]], stubborn: bool, slow: int, signal_seconds: float, freezable: bool
) -> None:
    world = World(stubborn=stubborn, slow=slow, signal_seconds=signal_seconds, freezable=freezable)
    for name, *given_ in steps:
        if world.stopped:
            break
        if name == "spawn":
            world.spawn(*given_)
        elif name == "kill":
            incarnation, ours, grace = given_
            command = Kill(token=world.token() + (not ours), cause="cancel", reason="", grace=grace)
            world.send(received(command, incarnation=incarnation))
        elif name == "cancel":
            grace, cooperative, force = given_
            cancel = Cancel(token=world.token(), reason="", grace=grace, cooperative=cooperative, force=force)
            world.send(received(cancel))
        elif name == "speak":
            world.send(JobSpoke())
        elif name == "deadline":
            incarnation, ours, seconds, thaw, freeze_max = given_
            token, deadline = world.token() + (not ours), world.now.plus(seconds)
            order = SetDeadline(token=token, deadline=deadline, thaw=thaw, freeze_max=freeze_max)
            world.send(received(order, incarnation=incarnation))
        elif name == "exit":
            world.exit(leaves=given_[0])
        elif name == "advance":
            world.advance(given_[0])
        elif name == "wall":
            world.now = Instant(world.now.boot, world.now.wall + given_[0])
        elif name == "hold":
            world.send(received(HoldOutput(given_[0])))
        else:
            world.send(ExecutorClosed())
    world.send(ExecutorClosed())
    world.advance(1.0)
    assert world.stopped == 1, "nothing is left within a second of the executor's end"
    assert sorted(world.answered) == world.asked, "each spawn has one end or refusal"


def test_a_slow_machine_gets_its_looks_within_the_margins_of_the_lease() -> None:
    """Where a look takes longer than the allowance, one in vain says little; nothing runs on when another execution may begin."""
    late = FREEZE_ALLOWANCE + 0.1
    assert [is_too_late(late, checks=checks) for checks in range(FREEZE_CHECKS + 1)] == [False] * FREEZE_CHECKS + [True]
    assert not is_too_late(FREEZE_ALLOWANCE / 2, checks=FREEZE_CHECKS), "an idle machine has the whole allowance"
    assert is_too_late(FREEZE_LATEST, checks=0), "however few there were"
    assert FREEZE_LATEST < HOLD_MARGIN + TAKE_MARGIN
