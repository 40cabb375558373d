"""Messages to objects and back."""

import json
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone

import pytest
from google.protobuf.timestamp_pb2 import Timestamp
from hypothesis import given
from hypothesis import strategies as st

from toban_domain.errors import ErrorCode, TobanError
from toban_domain.outcome import AttemptKey, AttemptState, ErrorLine, Outcome, OutcomeKind, Reason
from toban_proto.v1 import common_pb2, coordinator_pb2
from toban_transport import convert

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.datetimes().map(lambda at: f"{at}+14:00"),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)
SAID = st.fixed_dictionaries({"percentage": JSON, "at": JSON}, optional={"summary": JSON}).map(json.dumps)
AT = datetime(2026, 5, 6, 7, 8, 9, 123456, tzinfo=UTC)
TIMES = st.integers(1, 2**50).map(lambda micros: datetime.fromtimestamp(0, UTC) + timedelta(microseconds=micros))
OUTCOMES = st.builds(
    Outcome,
    kind=st.sampled_from(OutcomeKind),
    reason=st.sampled_from(Reason),
    exit_code=st.none() | st.integers(0, 255),
    signal=st.none() | st.integers(1, 64),
    error_summary=st.text(max_size=50),
    started_at=st.none() | TIMES,
    finished_at=TIMES,
    last_seq=st.integers(0, 2**62),
    tree_empty=st.booleans(),
    last_line=st.text(max_size=50),
    error_lines=st.lists(st.builds(ErrorLine, st.integers(0, 2**63 - 1), st.text(max_size=50)), max_size=5).map(tuple),
)


@given(OUTCOMES)
def test_an_outcome_survives_the_wire(outcome: Outcome) -> None:
    wire = convert.outcome_to_pb(outcome).SerializeToString()
    assert convert.outcome_from_pb(common_pb2.Outcome.FromString(wire)) == outcome


def test_times() -> None:
    assert convert.timestamp_to_pb(None) is None
    assert convert.timestamp_from_pb(Timestamp()) is None
    east = AT.astimezone(timezone(timedelta(hours=9)))
    message = convert.timestamp_to_pb(east)
    assert message is not None and convert.timestamp_from_pb(message) == AT
    with pytest.raises(ValueError, match="zone"):
        convert.timestamp_to_pb(AT.replace(tzinfo=None))
    with pytest.raises(TobanError, match="out of range"):
        convert.timestamp_from_pb(Timestamp(seconds=2**60))


@given(st.datetimes(timezones=st.timezones() | st.just(UTC)))
def test_a_time_is_the_timestamp_of_protobuf(at: datetime) -> None:
    """From the first to the last year that both know, of any zone."""
    try:
        expected = Timestamp()
        expected.FromDatetime(at)
        there = expected.ToDatetime(tzinfo=UTC)
    except (ValueError, OverflowError):
        return
    message = convert.timestamp_to_pb(at)
    assert message == expected
    assert convert.timestamp_from_pb(expected) == (there if expected != Timestamp() else None)


@pytest.mark.parametrize("nanos", [-1, 10**9])
@pytest.mark.parametrize("seconds", [0, 5, 2**62])
def test_nanoseconds_are_less_than_a_second(seconds: int, nanos: int) -> None:
    with pytest.raises(TobanError, match="out of range") as caught:
        convert.timestamp_from_pb(Timestamp(seconds=seconds, nanos=nanos))
    assert caught.value.code is ErrorCode.INVALID_ARGUMENT


def test_keys() -> None:
    key = AttemptKey(7, 2**62)
    assert convert.key_from_pb(convert.key_to_pb(key)) == key
    for bad in ((0, 1), (1, 0), (-1, 1)):
        with pytest.raises(TobanError, match="positive"):
            convert.key_from_pb(common_pb2.AttemptKey(run_id=bad[0], token=bad[1]))


@pytest.mark.parametrize("state", list(AttemptState))
def test_states(state: AttemptState) -> None:
    assert common_pb2.AttemptState.Name(convert.state_to_pb(state)) == f"ATTEMPT_STATE_{state.name}"


@pytest.mark.parametrize(
    "message",
    [
        common_pb2.Outcome(),
        common_pb2.Outcome(kind=1),
        common_pb2.Outcome(finished_at=convert.timestamp_to_pb(AT)),
        common_pb2.Outcome(kind=99, finished_at=convert.timestamp_to_pb(AT)),
        common_pb2.Outcome(kind=1, reason="bored", finished_at=convert.timestamp_to_pb(AT)),
    ],
)
def test_malformed_outcomes_are_refused(message: common_pb2.Outcome) -> None:
    with pytest.raises(TobanError) as caught:
        convert.outcome_from_pb(message)
    assert caught.value.code is ErrorCode.INVALID_ARGUMENT


@pytest.mark.parametrize(
    "text",
    [
        '{"percentage":40,"summary":"","at":"0001-01-01T00:00:00+14:00"}',
        '{"percentage":' + "9" * 400 + ',"summary":"","at":"2026-05-06T07:08:09+00:00"}',
        '{"percentage":1e999,"summary":"","at":"2026-05-06T07:08:09+00:00"}',
        "[" * 4000,
    ],
)
def test_progress_that_no_number_or_time_can_hold_is_nothing_said(text: str) -> None:
    assert convert.progress_from_text(text) is None


@given(st.text(max_size=200) | st.binary(max_size=200).map(lambda data: data.decode(errors="surrogateescape")) | SAID)
def test_no_text_of_a_progress_raises(text: str) -> None:
    said = convert.progress_from_text(text)
    assert said is None or convert.progress_from_text(convert.progress_to_text(said)) == said


@dataclass(frozen=True)
class Applied:
    kind: str = "Job"
    name: str = "a"
    action: str = "created"
    version: int = 7
    note: None = None


def test_a_message_is_filled_by_the_names_of_its_fields() -> None:
    row = {"at": AT, "type": "note", "from_state": None, "to_state": "", "message": "m", "actor": "ada", "more": 1}
    event = convert.fill(coordinator_pb2.RunEvent, row, actor="bob")
    assert (event.at.ToDatetime(UTC), event.type, event.from_state, event.actor) == (AT, "note", "", "bob")
    applied = convert.fill(
        coordinator_pb2.Applied, Applied(), next_slots=[coordinator_pb2.NextSlot(local="x")], clock_change=None
    )
    assert (applied.name, applied.version, applied.note, applied.next_slots[0].local) == ("a", 7, "", "x")


def test_a_field_without_a_value_and_a_name_without_a_field_are_mistakes() -> None:
    with pytest.raises(KeyError, match="type"):
        convert.fill(coordinator_pb2.RunEvent, {"at": AT})
    with pytest.raises(AttributeError, match="next_slots"):
        convert.fill(coordinator_pb2.Applied, Applied())
    with pytest.raises(ValueError, match="slots"):
        convert.fill(coordinator_pb2.Applied, Applied(), next_slots=[], clock_change="", slots=[])


def test_the_fields_of_a_request_are_arguments_by_name() -> None:
    request = coordinator_pb2.ListRunsRequest(job="a", states=["FAILED"], labels={"team": "ops"})
    request.active_from.FromDatetime(AT)
    found = convert.values_of(request, "page")
    assert (found["job"], found["states"], found["labels"], found["include_ahead"]) == (
        "a",
        ("FAILED",),
        {"team": "ops"},
        False,
    )
    assert (found["active_from"], found["active_until"]) == (AT, None) and "page" not in found
    manifests = [coordinator_pb2.Manifest(), coordinator_pb2.Manifest(expect_version=0)]
    assert [convert.values_of(one)["expect_version"] for one in manifests] == [None, 0]
    request.active_from.nanos = -1
    with pytest.raises(TobanError, match="timestamp"):
        convert.values_of(request)
