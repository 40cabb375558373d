"""Limits and their runs, and why a run waits for them, as messages."""

from __future__ import annotations

from toban_coordinator.app.limits.operations_limits import LimitDetails, LimitState
from toban_coordinator.app.runs.explain_run import Explanation
from toban_proto.v1 import coordinator_pb2 as pb
from toban_store.tx import Row
from toban_transport.convert import fill
from toban_transport.convert import timestamp_to_pb as at


def limit_to_pb(state: LimitState) -> pb.Limit:
    """A limit, how it is used and what waits."""
    stored, breaker, signal = state.stored, state.breaker, state.signal
    return pb.Limit(
        name=state.name,
        limit=state.value,
        source="operator" if stored else "definition",
        held=state.held,
        waiting=state.queue.waiting,
        waiting_since=at(state.queue.since),
        reason=stored.reason if stored else "",
        updated_by=stored.updated_by if stored else "",
        updated_at=at(stored.updated_at) if stored else None,
        effective=state.effective,
        breaker=breaker.state if breaker else "",
        breaker_since=at(breaker.since) if breaker else None,
        breaker_reason=breaker.reason if breaker else "",
        breaker_by=breaker.updated_by if breaker else "",
        signal=signal.level if signal else "",
        signal_until=at(signal.holds_until) if signal else None,
        signal_reason=signal.reason if signal else "",
        signal_by=signal.updated_by if signal else "",
    )


def limit_details_to_pb(details: LimitDetails) -> pb.GetLimitResponse:
    """A limit with its runs."""
    return pb.GetLimitResponse(
        limit=limit_to_pb(details.state),
        holders=[_run_to_pb(row) for row in details.holders],
        waiting=[_run_to_pb(row) for row in details.waiting],
    )


def explanation_to_pb(found: Explanation) -> pb.RunExplanation:
    """Why a run waits, was skipped, or is where it is."""
    return pb.RunExplanation(
        run_id=found.row["id"],
        job=found.row["job_name"],
        state=found.row["state"],
        reasons=found.reasons,
        checks=[fill(pb.RunCheck, one) for one in found.checks],
        limits=[
            pb.RunLimit(
                name=one.need.key,
                effective=one.need.capacity,
                held=one.taken,
                weight=one.need.weight,
                blocks=one.blocks,
                message=one.message,
                holders=[_run_to_pb(row) for row in found.holders.get(one.need.key, ())],
            )
            for one in found.limits
        ],
        executors=[
            pb.RunCandidate(
                worker_id=one.executor.worker_id,
                executor=one.node_id,
                fits=not one.reason,
                running=min(one.executor.held, one.executor.slots),
                slots=one.executor.slots,
                message=one.reason,
            )
            for one in found.candidates
        ],
        turn=_turn_to_pb(found),
        at_worker=found.at_worker,
    )


def _turn_to_pb(found: Explanation) -> pb.RunTurn | None:
    if found.place is None:
        return None
    scopes = [
        fill(pb.RunScope, row, weight=found.weights.get((row["scope"], row["scope_id"]), 1))
        for row in found.place.scopes
    ]
    return fill(pb.RunTurn, found.place, scopes=scopes)


def _run_to_pb(row: Row) -> pb.LimitRun:
    return fill(pb.LimitRun, row, run_id=row["id"], job=row["job_name"], weight=row["weight"] or 1)
