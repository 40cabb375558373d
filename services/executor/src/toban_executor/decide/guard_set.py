"""The decisions about all guards of one incarnation: which slot supervisor is started when, and when nothing is left.

    running --it died--> orphans killed --> executor has the loss (sent again until it reads) --> successor started
    executor closed, every slot supervisor ended --> orphans killed --> witness started, unless the executor stopped in order
    --> emptiness is recorded, and the guards end

Invariants: a successor starts only after the orphans of the dead one were killed and the executor has its loss; emptiness is recorded, and a witness
started, only after every slot supervisor has ended. The witness attests only when each of them ended in order, or its loss was reported.
"""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class SlotsEnded:
    """The slot supervisors of these slots have ended; those of `killed` not in order."""

    slots: tuple[int, ...]
    killed: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class LossReported:
    """Answer to ReportLoss; False = the executor does not read now, or has ended."""

    slot: int
    delivered: bool


@dataclass(frozen=True, slots=True)
class SupervisorTick:
    """Time has passed."""


@dataclass(frozen=True, slots=True)
class ControlClosed:
    """The executor has closed the control pipe: `in_order`, or it has died. Its slots close at the same time."""

    in_order: bool = False


Event = SlotsEnded | LossReported | SupervisorTick | ControlClosed


@dataclass(frozen=True, slots=True)
class StartSlot:
    """Start a slot supervisor, the successor of `losses` dead ones."""

    slot: int
    losses: int


@dataclass(frozen=True, slots=True)
class KillOrphans:
    """Kill every process below that belongs to no slot supervisor, until none is left."""


@dataclass(frozen=True, slots=True)
class ReportLoss:
    """Report to the executor that the slot's supervisor died for the `losses`-th time, answered by LossReported."""

    slot: int
    losses: int


@dataclass(frozen=True, slots=True)
class CloseSlots:
    """Close the sockets of the slots, which this process keeps open for successors."""


@dataclass(frozen=True, slots=True)
class RecordEmpty:
    """Record that no process of this incarnation is left, and end."""


@dataclass(frozen=True, slots=True)
class StartWitness:
    """Start the process that reports what the guards kept. `proven`: it may attest that nothing of the incarnation is left."""

    proven: bool


Effect = StartSlot | KillOrphans | ReportLoss | CloseSlots | RecordEmpty | StartWitness


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardSetState:
    """`losses` of each slot; slots whose supervisor runs; slots whose last loss the executor does not know yet.

    `killed`: slots whose last supervisor did not end in order. `closed`: the executor has ended, perhaps `in_order`.
    """

    losses: tuple[int, ...]
    running: frozenset[int]
    unreported: tuple[int, ...] = ()
    killed: frozenset[int] = frozenset()
    closed: bool = False
    in_order: bool = False


Step = tuple[GuardSetState, tuple[Effect, ...]]


def begin(slots: int) -> Step:
    """The state of a new set, and the start of its slot supervisors."""
    state = GuardSetState(losses=(0,) * slots, running=frozenset(range(slots)))
    return state, tuple(StartSlot(slot, 0) for slot in range(slots))


def decide(state: GuardSetState, event: Event) -> Step:
    """The next state and what to do, in order. Each ReportLoss has an answer, which is an event of its own."""
    match event:
        case SlotsEnded(slots=slots, killed=killed):
            return _on_slots_ended(replace(state, killed=state.killed.union(killed)), slots)
        case LossReported(slot=slot, delivered=delivered):
            return _on_loss_reported(state, slot) if delivered and not state.closed else (state, ())
        case SupervisorTick():
            return state, _reports(state)
        case ControlClosed(in_order=in_order):
            state = replace(state, closed=True, in_order=in_order)
            return state, (CloseSlots(), *_last_effects(state))


def _on_slots_ended(state: GuardSetState, slots: tuple[int, ...]) -> Step:
    ended = tuple(slot for slot in slots if slot in state.running)
    state = replace(state, running=state.running - set(ended), unreported=state.unreported + ended)
    if state.closed:
        return state, _last_effects(state)
    return state, (KillOrphans(), *_reports(state)) if ended else ()


def _on_loss_reported(state: GuardSetState, slot: int) -> Step:
    losses = tuple(number + (other == slot) for other, number in enumerate(state.losses))
    state = replace(
        state,
        losses=losses,
        running=state.running | {slot},
        unreported=tuple(other for other in state.unreported if other != slot),
        killed=state.killed - {slot},
    )
    return state, (StartSlot(slot, losses[slot]),)


def _reports(state: GuardSetState) -> tuple[Effect, ...]:
    if state.closed:
        return ()
    return tuple(ReportLoss(slot, state.losses[slot] + 1) for slot in state.unreported)


def _last_effects(state: GuardSetState) -> tuple[Effect, ...]:
    if state.running:
        return ()
    witness = () if state.in_order else (StartWitness(proven=not state.killed),)
    return (KillOrphans(), *witness, RecordEmpty())
