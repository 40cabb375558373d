"""The next slots that `schedule next` shows: of the cluster's schedules, or of those in files."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from toban_domain.errors import ErrorCode, TobanError

NamedSlots = list[tuple[str, Any]]


def read_after(text: str, now: datetime) -> datetime | None:
    """The time of --after in UTC; None (= now) when it is not given. Raises INVALID_ARGUMENT."""
    from toban_cli.times import FORMS_AHEAD, read_time_bound
    from toban_schedule.rule import YEARS

    if not text:
        return None
    after = read_time_bound("--after", text, now, ahead=True)
    if after.year not in YEARS:
        years = f"{YEARS.start} to {YEARS.stop - 1}"
        raise TobanError(
            ErrorCode.INVALID_ARGUMENT, f"--after: {text!r} is not within the years {years}; {FORMS_AHEAD}"
        )
    return after


def of_cluster(name: str, count: int, after: datetime | None) -> NamedSlots:
    """The slots after `after` (None = now) of the schedule of this name, else of all schedules of the job of this name.

    Raises SCHEDULE_NOT_FOUND.
    """
    from toban_cli.client import connect
    from toban_proto.v1.common_pb2 import Page
    from toban_proto.v1.coordinator_pb2 import ListSchedulesRequest, NextSlotsRequest
    from toban_transport.convert import timestamp_to_pb

    with connect() as client:

        def slots_of(schedule: str) -> Any:
            return client.call(
                "JobReader.NextSlots", NextSlotsRequest(name=schedule, count=count, after=timestamp_to_pb(after))
            )

        try:
            return [(name, slots_of(name))]
        except TobanError as error:
            if error.code is not ErrorCode.SCHEDULE_NOT_FOUND:
                raise
            unknown = error
        found = client.call("JobReader.ListSchedules", ListSchedulesRequest(page=Page(limit=500), job=name)).schedules
        if not found:
            raise _unknown(client, name, unknown)
        return [(schedule.name, slots_of(schedule.name)) for schedule in found]


def of_files(files: Sequence[str], name: str, count: int, after: datetime | None, now: datetime) -> NamedSlots:
    """The same of the schedules in these files (only of this schedule or job when `name` is given), without a cluster."""
    from toban_cli.manifest_files import read_documents
    from toban_domain.schedule import ScheduleSpec
    from toban_manifests.problems import raise_for
    from toban_manifests.read import find_problems
    from toban_schedule import problems

    manifests, wrong = find_problems(read_documents(files), check_rule=problems)
    raise_for(wrong, detail_bytes=None)
    specs = [manifest.spec for manifest in manifests if isinstance(manifest.spec, ScheduleSpec)]
    wanted = [spec for spec in specs if name in ("", spec.name, spec.job)]
    if not wanted:
        what = f"no schedule or job {name!r}" if name else "no schedule"
        known = ", ".join(sorted(spec.name for spec in specs))
        raise TobanError(
            ErrorCode.NOT_FOUND,
            f"{', '.join(files)}: there is {what}; " + (f"there are: {known}" if known else "give a file with some"),
        )
    return [(spec.name, _answer(spec, count, after, now)) for spec in wanted]


def _answer(spec: Any, count: int, after: datetime | None, now: datetime) -> Any:
    from toban_proto.v1.coordinator_pb2 import NextSlot, NextSlotsResponse
    from toban_schedule import Rule, annotated_slots, describe
    from toban_transport.convert import timestamp_to_pb

    slots = annotated_slots(Rule.of(spec.rule), after or now, count)
    none = f"it has no slot after {after:%Y-%m-%dT%H:%M:%SZ}" if after else "ended: it has no further slots"
    note = "" if slots else none
    return NextSlotsResponse(
        slots=[
            NextSlot(at=timestamp_to_pb(slot.at), local=slot.local.isoformat(timespec="seconds"), rule_note=slot.note)
            for slot in slots
        ],
        rule=describe(spec.rule),
        timezone=spec.rule.timezone,
        note=note if spec.enabled else "disabled: it has no slots until `enabled: true` is applied",
    )


def _unknown(client: Any, name: str, unknown: TobanError) -> TobanError:
    """Nothing of this name: a job without schedules, or the nearest name of a schedule or job."""
    from toban_proto.v1.coordinator_pb2 import GetJobRequest

    try:
        client.call("JobReader.GetJob", GetJobRequest(name=name))
    except TobanError as error:
        if error.code is not ErrorCode.JOB_NOT_FOUND:
            raise
        near = unknown.detail.get("near") or error.detail.get("near")
        hint = f"did you mean {near!r}?" if near else "see `toban schedule list`"
        return TobanError(
            ErrorCode.SCHEDULE_NOT_FOUND, f"there is no schedule or job {name!r}; {hint}", detail=unknown.detail
        )
    return TobanError(
        ErrorCode.SCHEDULE_NOT_FOUND,
        f"job {name!r} has no schedules; make one with `toban schedule add NAME --job {name} --every 5m`",
    )
