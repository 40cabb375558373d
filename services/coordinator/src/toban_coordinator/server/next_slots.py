"""The next slots of a schedule for people: local time, which rule of DST acted, and why nothing comes."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from toban_domain.errors import ErrorCode, TobanError
from toban_domain.schedule import ScheduleSpec
from toban_proto.v1 import coordinator_pb2 as pb
from toban_schedule import NotedSlot
from toban_schedule.annotated_slots import YEARS
from toban_transport.convert import timestamp_from_pb
from toban_transport.convert import timestamp_to_pb as at

DEFAULT_COUNT = 5
MAX_COUNT = 1000
# Slots that Apply tells of a schedule that it has written.
NEXT_SHOWN = 3


def count_of(request: pb.NextSlotsRequest) -> int:
    """How many slots are asked for. Raises INVALID_ARGUMENT."""
    if not 0 <= request.count <= MAX_COUNT:
        raise TobanError(ErrorCode.INVALID_ARGUMENT, f"count is {request.count}; use 1 to {MAX_COUNT}")
    return request.count or DEFAULT_COUNT


def after_of(request: pb.NextSlotsRequest) -> datetime | None:
    """The time that the slots come after; None = now. Raises INVALID_ARGUMENT."""
    if not request.HasField("after"):
        return None
    # The zero timestamp is given here, although it means "unset" elsewhere.
    after = timestamp_from_pb(request.after) or datetime(1970, 1, 1, tzinfo=UTC)
    if after.year not in YEARS:
        raise TobanError(
            ErrorCode.INVALID_ARGUMENT, f"after is in the year {after.year}; use {YEARS.start} to {YEARS.stop - 1}"
        )
    return after


def slots_to_pb(slots: Sequence[NotedSlot]) -> list[pb.NextSlot]:
    """Slots as messages."""
    return [
        pb.NextSlot(at=at(slot.at), local=slot.local.isoformat(timespec="seconds"), rule_note=slot.note)
        for slot in slots
    ]


def note_of(
    *,
    status: str,
    reason: str,
    actor: str,
    spec: ScheduleSpec,
    job_enabled: bool,
    ended: bool,
    after: datetime | None = None,
) -> str:
    """Why slots do not become runs; "" when they do. `ended`: there is no slot later than now, or than `after` when it is given."""
    by = f" by {actor}" if actor else ""
    why = f": {reason}" if reason else ""
    if status == "paused":
        return f"paused{by}{why}; its slots pass without runs until `toban schedule resume {spec.name}`"
    if status == "failed":
        return f"failed{why}; remedy the cause, then `toban schedule resume {spec.name}`"
    if not spec.enabled:
        return "disabled: it has no slots until `enabled: true` is applied"
    if ended and after is not None:
        end = f", since its end is {spec.rule.end}" if spec.rule.end else ""
        return f"no slot comes after {after:%Y-%m-%dT%H:%M:%SZ}{end}"
    if ended:
        return (
            f"ended: no slot comes before its end {spec.rule.end}" if spec.rule.end else "ended: no slot comes any more"
        )
    if not job_enabled:
        return f"job {spec.job} is disabled: its slots pass without runs"
    return ""
