"""When an executor asks whether its attempts may continue, and whom (docs/fencing.md 3.7).

    quiet --the last window of the lease--> asking: a try, a pause, ... --confirmed--> quiet until the next deadline
                                               \\-- all tries used up: quiet until the deadline changes
    told `let_finish` --> asking, once for this detach, however long the lease still lasts

An ordinary grant ends a round as well: its deadline is another one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from toban_domain.lease import continuation_call_seconds, continuation_window

LOOK_SECONDS = 0.05
"""The shortest time between two looks at the lease."""


class Plan(NamedTuple):
    """How an executor asks: number of tries, pause between two, time for one answer, how long all of it takes, and half of its lease. Seconds."""

    tries: int
    interval: float
    call: float
    window: float
    half: float


def plan(*, hold: float, tries: int, interval: float) -> Plan:
    """`hold` is L − m of this incarnation. Settings may be meant for longer leases: what does not fit into half of this one is left out."""
    call = continuation_call_seconds(hold)
    fitting = max(1, min(tries, int(hold / 2 / (interval + call) + 1e-9)))
    window = continuation_window(tries=fitting, interval=interval, hold=hold)
    return Plan(tries=fitting, interval=interval, call=call, window=min(window, hold / 2), half=hold / 2)


class View(NamedTuple):
    """What an executor knows now. `deadline` is that of the lease on CLOCK_BOOTTIME and `left` the seconds until then, 0 without a grant.

    `live`: it has attempts that the end of the lease concerns. `killable`: some of them are killed at the end of the lease, so they get a
    signal earlier. `detached`: an operator has detached it, and its jobs may finish.
    """

    deadline: float
    left: float
    live: bool
    killable: bool
    detached: bool


class Round(NamedTuple):
    """The tries for one deadline, or for a detach (`deadline` infinite). `detach_done`: the detach needs no more tries."""

    deadline: float = -math.inf
    tries: int = 0
    next_at: float = -math.inf
    detach_done: bool = False


def step(state: Round, view: View, plan: Plan, now: float) -> tuple[Round, int | None]:
    """The state after this moment, and the number of the try that is due, from 0; None when none is. `now` is CLOCK_BOOTTIME."""
    if not view.live or view.left <= 0:
        # Without a lease there is nothing to confirm: frozen jobs wait for the grant of a heartbeat.
        return state, None
    if view.detached and not state.detach_done:
        deadline = math.inf
    elif view.left <= _before_deadline(view, plan):
        deadline = view.deadline
    else:
        return state, None
    if deadline != state.deadline:
        state = Round(deadline=deadline, detach_done=state.detach_done)
    if state.tries >= plan.tries or now < state.next_at:
        used_up = deadline == math.inf and state.tries >= plan.tries
        return state._replace(detach_done=state.detach_done or used_up), None
    return state._replace(tries=state.tries + 1), state.tries


def answered(state: Round, plan: Plan, now: float, *, confirmed: bool) -> Round:
    """A try has ended: the next one comes after a pause; none after a confirmation."""
    done = confirmed and state.deadline == math.inf
    tries = plan.tries if confirmed else state.tries
    return state._replace(next_at=now + plan.interval, tries=tries, detach_done=state.detach_done or done)


def wait_seconds(view: View, plan: Plan, *, at_most: float) -> float:
    """How long until the next look."""
    return min(at_most, max(LOOK_SECONDS, view.left - _before_deadline(view, plan)))


def _before_deadline(view: View, plan: Plan) -> float:
    """How long before the deadline the tries begin: an attempt that gets a signal before the deadline must know the answer by then."""
    return plan.half if view.killable else plan.window


def targets(*, leader: str, subleader: str, others: Sequence[str]) -> list[tuple[str, str]]:
    """Whom to ask, each once, as (what it is, address): the leader, the sub-leader of the own node, then the others in their order."""
    paths = dict.fromkeys(others, "other")
    named = {address: path for path, address in (("subleader", subleader), ("leader", leader)) if address}
    order = dict.fromkeys((leader, subleader, *others))
    return [({**paths, **named}[address], address) for address in order if address]
