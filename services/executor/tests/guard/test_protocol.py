"""What one end sends is what the other receives."""

import struct
from types import MappingProxyType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toban_domain.log_block import LogBlock
from toban_domain.outcome import AttemptKey, ErrorLine
from toban_executor.decide.guard_types import (
    Acknowledge,
    AttemptStart,
    Command,
    HoldOutput,
    Kill,
    Received,
    Reset,
    SetDeadline,
    SlotLost,
    Spawn,
)
from toban_executor.decide.models import AttemptEnd, LogRules, StartOrder, StepOrder
from toban_executor.decide.warm import WarmNote
from toban_executor.guard.protocol import (
    Report,
    decode_command,
    decode_report,
    encode_block,
    encode_command,
    encode_report,
)
from toban_fencing.executor_lease import Instant

TEXT = st.text(st.characters(codec="utf-8"), max_size=20)
NUMBER = st.integers(0, (1 << 63) - 1)
SECONDS = st.floats(0.0, 1e9)
INSTANT = st.builds(Instant, SECONDS, SECONDS)
KEY = st.builds(AttemptKey, NUMBER, NUMBER)
STEP = st.builds(StepOrder, type=TEXT, argv=st.tuples(TEXT, TEXT), timeout_seconds=st.integers(0, 9999), callable=TEXT)
ORDER = st.builds(
    StartOrder,
    key=KEY,
    steps=st.tuples(STEP, STEP),
    payload_json=TEXT,
    timeout_seconds=st.integers(0, 9999),
    grace_seconds=SECONDS,
    working_dir=TEXT,
    ticket=st.binary(max_size=20),
    logs=st.builds(LogRules, max_bytes=NUMBER, lines_per_second=NUMBER, redact=st.tuples(TEXT)),
    attempt=st.just(1),
)
COMMAND = st.one_of(
    st.builds(
        Spawn,
        order=ORDER,
        programs=st.tuples(TEXT, TEXT),
        env=st.dictionaries(TEXT, TEXT, max_size=3),
        deadline=INSTANT,
        lease_grace=SECONDS,
        freeze_max=SECONDS,
    ),
    st.builds(
        SetDeadline, token=NUMBER, deadline=INSTANT, thaw=st.booleans(), freeze_max=SECONDS, frozen_seconds=SECONDS
    ),
    st.builds(Kill, token=NUMBER, cause=TEXT, reason=TEXT, grace=SECONDS),
    st.builds(HoldOutput, st.booleans()),
    st.builds(Reset, NUMBER),
    st.builds(Acknowledge),
)
COUNT = st.tuples(NUMBER, NUMBER)
REPORT = st.one_of(
    st.builds(AttemptStart, key=KEY, pid=NUMBER, started_ns=NUMBER),
    st.builds(SlotLost, slot=NUMBER, losses=NUMBER),
    st.builds(
        AttemptEnd,
        key=KEY,
        pid=st.integers(1, 1 << 22),
        cause=TEXT,
        reason=TEXT,
        exit_code=st.none() | st.integers(0, 255),
        signal=st.none() | st.integers(1, 64),
        started_ns=NUMBER,
        finished_ns=NUMBER,
        last_seq=NUMBER,
        last_line=TEXT,
        redacted=NUMBER,
        left_out=st.dictionaries(TEXT, COUNT, max_size=2),
        error_lines=st.lists(st.builds(ErrorLine, NUMBER, TEXT), max_size=2).map(tuple),
    ),
)


@given(COMMAND, TEXT, NUMBER)
def test_commands(command: Command, incarnation: str, acked: int) -> None:
    data = encode_command(command, incarnation=incarnation, acked=acked)
    assert decode_command(data) == Received(incarnation, acked, command)


def test_fields_of_an_order_that_no_guard_needs_stay_behind() -> None:
    order = StartOrder(key=AttemptKey(1, 2), job_name="secret", slot="2026-11-21T00:00:00Z", env={"A": "b"})
    spawn = Spawn(order=order, programs=(), env={"PATH": "/bin"}, deadline=Instant(1.0, 2.0), lease_grace=1.0)
    received = decode_command(encode_command(spawn, incarnation="i", acked=0))
    assert received.command == spawn._replace(order=StartOrder(key=AttemptKey(1, 2)))


@given(REPORT)
def test_reports(report: AttemptStart | AttemptEnd | SlotLost) -> None:
    assert decode_report(encode_report(report)) == report


def test_an_end_without_a_process_has_no_start() -> None:
    end = AttemptEnd(key=AttemptKey(1, 2), started_ns=5, left_out=MappingProxyType({}))
    assert decode_report(encode_report(end)) == end._replace(started_ns=0)


@given(st.builds(LogBlock, st.integers(1, 3), st.booleans(), NUMBER, NUMBER, st.integers(0, 1 << 30), st.binary()))
def test_blocks(block: Report) -> None:
    assert isinstance(block, LogBlock)
    assert decode_report(encode_block(block)) == block


@pytest.mark.parametrize("data", [b'J{"t": "another"}', b"J{}", b"J[]", b"J", b"L", b"J{"])
def test_what_is_no_report_is_an_error(data: bytes) -> None:
    with pytest.raises((ValueError, LookupError, TypeError, struct.error)):
        decode_report(data)


def test_notes_of_zygotes() -> None:
    note = WarmNote(keys=("a", "b"), forks=3, ended={"idle": 1})
    assert decode_report(encode_report(note)) == note
