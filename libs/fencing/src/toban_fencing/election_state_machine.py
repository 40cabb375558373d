"""The election as one pure function: `decide(state, event, now) -> (state, effects)` (docs/fencing.md 3.1, docs/adr/0002).

PostgreSQL's leader row makes the leader, by compare-and-set on its epoch. Redis only suggests who should try; the beat tells whether a leader lives.

    STANDING --TakeOver won--> LEADING --any doubt--> ASIDE --2 s--> STANDING
        \\------------------------ Leave ----------------------> LEFT

A candidate tries the lock only when it has itself seen the beat stand still, and gives it back as soon as the beat moves. A leader stops at once on
a degrade flag, a fence, a second without a commit, or silence of its own timers; Redis being gone is no doubt about a leader whose beat goes on.
A renewal that names another owner of the lock makes it ask PostgreSQL: confirmed, it overwrites the lock; else it stops. So no value in Redis
deposes a leader, and none keeps a candidate back for good.
Not covered here: whether a write is still allowed. That is the fence's work in PostgreSQL.
"""

from __future__ import annotations

from dataclasses import replace

from toban_fencing.election_types import (
    Beat,
    BeatDone,
    Candidate,
    DeathEvidence,
    DegradeSeen,
    Deposed,
    Effect,
    ElectorState,
    Event,
    LeaderRow,
    Leading,
    Leave,
    LockOutcome,
    LockTried,
    Overwrite,
    ReadRow,
    ReleaseLock,
    Renew,
    RenewDone,
    ReportForeignLock,
    Resign,
    Role,
    RowRead,
    Seen,
    StartLeading,
    StopLeading,
    TakeOver,
    TakeOverDone,
    Tick,
    Timings,
    TryLock,
    YieldLeadership,
)

Step = tuple[ElectorState, tuple[Effect, ...]]


def decide(state: ElectorState, event: Event, now: float) -> Step:
    """The next state and what to do, in order. `now` never goes back (CLOCK_BOOTTIME, seconds)."""
    state = _end_aside(state, now)
    match event:
        case Tick(look=look):
            return _on_tick(state, now, look)
        case RowRead(row=row):
            return _on_row(state, row, now)
        case LockTried():
            return _on_lock(state, event, now)
        case TakeOverDone():
            return _on_take_over(state, event, now)
        case BeatDone():
            return _on_beat(state, event, now)
        case RenewDone():
            return _on_renewal(state, event, now)
        case DeathEvidence(epoch=epoch):
            candidate = replace(state.candidate, evidence=epoch, evidence_at=now, poll_at=now)
            return _contend(replace(state, candidate=candidate), now)
        case YieldLeadership(on=on):
            return _on_yield(replace(state, should_yield=on), now)
        case Leave():
            return _leave(state, now)
        case DegradeSeen() | Deposed():
            return _on_order_to_stop(state, event, now)


def next_due(state: ElectorState, now: float) -> float:
    """When the next Tick is needed, seconds of the same clock; never more than a poll away, or a beat: while leading, and between two reads of a
    beat that moves."""
    timings = state.timings
    if state.term is None and state.role is not Role.LEFT and not state.candidate.reading:
        return max(now, state.candidate.poll_at)
    due = [now + (timings.poll if state.term is None else timings.beat)]
    if state.term is not None:
        term = state.term
        due += [term.committed_at + timings.commit_stale, _renewal_deadline(state, term)]
        due += [term.beat_at] if not term.beating else []
        due += [term.renew_at] if not term.renewing and term.doubted_at is None else []
        due += [term.doubted_at + timings.confirm] if term.doubted_at is not None else []
    return max(now, min(due))


def leads_until(state: ElectorState) -> float | None:
    """Until when the present term may be acted on although no further event comes, seconds of the same clock; None without a term."""
    term, timings = state.term, state.timings
    if term is None:
        return None
    until = min(term.committed_at + timings.commit_stale, _renewal_deadline(state, term))
    return until if term.doubted_at is None else min(until, term.doubted_at + timings.confirm)


def _end_aside(state: ElectorState, now: float) -> ElectorState:
    if state.role is Role.ASIDE and now >= state.aside_until:
        return replace(state, role=Role.STANDING)
    return state


# ---------------------------------------------------------------- standing


def _on_tick(state: ElectorState, now: float, look: bool) -> Step:
    if state.term is not None:
        return _lead(state, state.term, now)
    if state.role is Role.LEFT:
        return state, ()
    candidate = state.candidate
    effects: tuple[Effect, ...] = ()
    if not candidate.reading and (look or now >= candidate.poll_at):
        candidate = replace(candidate, reading=True, poll_at=now + state.timings.poll)
        effects = (ReadRow(),)
    state, more = _contend(replace(state, candidate=candidate), now)
    return state, effects + more


def _on_row(state: ElectorState, row: LeaderRow | None, now: float) -> Step:
    candidate = replace(state.candidate, reading=False)
    if row is None or state.term is not None:
        # A leader's read was under way at its take-over: it shows the term before.
        return replace(state, candidate=candidate), ()
    seen = candidate.seen
    if seen is not None and _same_beat(seen.row, row) and now - seen.read_at <= state.timings.gap:
        candidate = replace(candidate, seen=Seen(row=row, since=seen.since, read_at=now))
    else:
        moved = seen is not None and not _same_beat(seen.row, row)
        # A last beat may have been on its way when its leader died; one that comes later proves that it lives.
        void = moved and now - candidate.evidence_at > state.timings.still_with_evidence
        evidence = None if void else candidate.evidence
        candidate = replace(candidate, seen=Seen(row=row, since=now, read_at=now), evidence=evidence)
        if moved and evidence is None and not row.resigned:
            candidate = replace(candidate, poll_at=_next_look(state.timings, row, now))
    return _contend(replace(state, candidate=candidate), now)


def _next_look(timings: Timings, row: LeaderRow, now: float) -> float:
    """When the beat after this one should be there. While none comes, each poll looks for it."""
    return now + max(0.0, timings.beat - max(0.0, row.beat_age)) + timings.after_beat


def _same_beat(one: LeaderRow, other: LeaderRow) -> bool:
    return (one.epoch, one.beat) == (other.epoch, other.beat)


def _contend(state: ElectorState, now: float) -> Step:
    """Try the lock or take over if the rules allow it now; give the lock back if they do not."""
    candidate, timings, seen = state.candidate, state.timings, state.candidate.seen
    if state.role is not Role.STANDING or seen is None or candidate.taking:
        return state, ()
    if state.should_yield:
        return _release_lock(state)
    if now - seen.read_at > timings.fresh:
        return state, ()
    if _has_evidence(state, seen, now):
        return _take(state, seen.row)
    still = now - seen.since
    if still < timings.still:
        return _release_lock(state)
    locked = candidate.lock_sent is not None and now - candidate.lock_sent <= timings.renew_stale
    refused = candidate.refused_at is not None and now - candidate.refused_at <= timings.still
    if locked or (refused and still >= timings.still_without_lock):
        return _take(state, seen.row)
    if candidate.trying or now < candidate.try_at:
        return state, ()
    return replace(state, candidate=replace(candidate, trying=True, try_at=now + timings.poll)), (TryLock(),)


def _has_evidence(state: ElectorState, seen: Seen, now: float) -> bool:
    # A row that names this very process while it does not lead is its own orphan: no process beats it.
    if seen.row.resigned or seen.row.holder == state.me:
        return True
    return state.candidate.evidence == seen.row.epoch and now - seen.since >= state.timings.still_with_evidence


def _take(state: ElectorState, observed: LeaderRow) -> Step:
    return replace(state, candidate=replace(state.candidate, taking=True)), (TakeOver(observed),)


def _release_lock(state: ElectorState) -> Step:
    if state.candidate.lock_sent is None:
        return state, ()
    return replace(state, candidate=replace(state.candidate, lock_sent=None)), (ReleaseLock(0),)


def _on_lock(state: ElectorState, event: LockTried, now: float) -> Step:
    held = event.outcome is LockOutcome.HELD
    candidate = replace(
        state.candidate,
        trying=False,
        lock_sent=event.sent_at if held else None,
        refused_at=None if held else now,
    )
    state = replace(state, candidate=candidate)
    if state.role is Role.STANDING:
        return _contend(state, now)
    # The lock of a term is another one (its epoch differs), so only a candidate that may not stand gives this one back.
    return _release_lock(state) if state.term is None else (state, ())


def _on_take_over(state: ElectorState, event: TakeOverDone, now: float) -> Step:
    if event.epoch is None:
        # Lost or unknown: watch again from the start.
        return _release_lock(replace(state, candidate=replace(state.candidate, taking=False, seen=None, evidence=None)))
    if state.role is not Role.STANDING:
        # A Leave came meanwhile: the epoch is ours, so resign it in order.
        state = replace(state, candidate=replace(state.candidate, taking=False))
        return state, (Resign(event.epoch), ReleaseLock(event.epoch), ReleaseLock(0))
    term = Leading(epoch=event.epoch, committed_at=event.sent_at, renewed_at=event.sent_at)
    state = replace(state, role=Role.LEADING, term=term, candidate=Candidate())
    state, effects = _lead(state, term, now)
    return state, (StartLeading(event.epoch), *effects)


# ---------------------------------------------------------------- leading


def _lead(state: ElectorState, term: Leading, now: float) -> Step:
    """The periodic part of a term: stop on silence, beat, renew."""
    timings = state.timings
    if now - term.committed_at > timings.commit_stale:
        return _stop(state, term, "no commit in PostgreSQL", now)
    if now > _renewal_deadline(state, term):
        return _stop(state, term, "the lock was not renewed", now)
    doubted = term.doubted_at is not None
    if term.doubted_at is not None and now - term.doubted_at > timings.confirm:
        return _stop(state, term, "the lock has another owner and PostgreSQL did not confirm the term", now)
    effects: list[Effect] = []
    if not term.beating and now >= term.beat_at - timings.early:
        term = replace(term, beating=True, confirming=doubted, beat_at=now + timings.beat)
        effects.append(Beat(term.epoch))
    if not term.renewing and not doubted and now >= term.renew_at - timings.early:
        effects.append(Renew(epoch=term.epoch, overwrite=term.overwrite))
        term = replace(term, renewing=True, renew_at=now + timings.renew)
    return replace(state, term=term), tuple(effects)


def _renewal_deadline(state: ElectorState, term: Leading) -> float:
    # An attempt that found Redis gone counts as well: then the beat alone holds the term, and a moving beat cannot be deposed.
    return max(term.renewed_at, term.redis_gone_at or 0.0) + state.timings.renew_stale


def _on_beat(state: ElectorState, event: BeatDone, now: float) -> Step:
    term = state.term
    if term is None or term.epoch != event.epoch:
        return state, ()
    if event.ok is False:
        return _stop(state, term, "the leader row has moved on", now)
    if event.ok:
        # A commit that took longer than this to come back says nothing about now.
        if now - term.committed_at > state.timings.commit_stale:
            return _stop(state, term, "no commit in PostgreSQL", now)
        return _committed(state, term, now)
    term = replace(term, beating=False, confirming=False, beat_at=now + state.timings.beat_retry)
    return _lead(replace(state, term=term), term, now)


def _committed(state: ElectorState, term: Leading, now: float) -> Step:
    confirmed = term.confirming and term.doubted_at is not None
    term = replace(term, beating=False, confirming=False, committed_at=now)
    if not confirmed:
        return _lead(replace(state, term=term), term, now)
    term = replace(term, doubted_at=None, overwrite=Overwrite.ANY, renew_at=now)
    state, effects = _lead(replace(state, term=term), term, now)
    return state, (ReportForeignLock(term.epoch), *effects)


def _on_renewal(state: ElectorState, event: RenewDone, now: float) -> Step:
    term = state.term
    if term is None or term.epoch != event.epoch:
        return state, ()
    match event.outcome:
        case LockOutcome.FOREIGN:
            # Only PostgreSQL deposes: a beat sent from now on tells whether this term still leads.
            term = replace(term, renewing=False, doubted_at=now, beat_at=min(now, term.beat_at))
        case LockOutcome.HELD:
            term = replace(
                term, renewing=False, renewed_at=event.sent_at, redis_gone_at=None, overwrite=Overwrite.OLDER
            )
        case LockOutcome.UNREACHABLE:
            term = replace(term, renewing=False, redis_gone_at=now, overwrite=max(term.overwrite, Overwrite.CANDIDATE))
    return _lead(replace(state, term=term), term, now)


def _on_order_to_stop(state: ElectorState, event: DegradeSeen | Deposed, now: float) -> Step:
    term = state.term
    if term is None:
        return state, ()
    if isinstance(event, DegradeSeen):
        asked = event.epoch in (1, term.epoch)
        return _stop(state, term, "asked to step down", now) if asked else (state, ())
    return _stop(state, term, event.reason, now) if event.epoch == term.epoch else (state, ())


def _on_yield(state: ElectorState, now: float) -> Step:
    if state.should_yield and state.term is not None:
        return _stop(state, state.term, "its clock is off and another coordinator's is right", now)
    return _contend(state, now)


def _stop(state: ElectorState, term: Leading, reason: str, now: float, role: Role = Role.ASIDE) -> Step:
    timings = state.timings
    state = replace(state, role=role, term=None, aside_until=now + timings.aside, candidate=Candidate(poll_at=now))
    return state, (StopLeading(epoch=term.epoch, reason=reason), Resign(term.epoch), ReleaseLock(term.epoch))


def _leave(state: ElectorState, now: float) -> Step:
    if state.term is not None:
        return _stop(state, state.term, "leaving", now, Role.LEFT)
    state, effects = _release_lock(state)
    return replace(state, role=Role.LEFT), effects
