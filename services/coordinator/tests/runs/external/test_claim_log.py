"""The output of external workers: who may append, what a repeated call does, and the limits and masks of the job."""

from __future__ import annotations

from typing import Any

import pytest

from toban_coordinator.decide.external.claim_log import MAX_BYTES, MAX_LINE_BYTES, MAX_LINES, SentLine
from toban_domain.errors import ErrorCode, TobanError
from toban_domain.log_block import STDERR, STDOUT, SYSTEM

STEP = {"id": "work", "type": "external", "worker_type": "transcode", "lock_ttl_seconds": 1}


@pytest.fixture
def claimed(world: Any, make: Any, workers: Any) -> Any:
    """`await claimed(payload_json, **spec)`: a claimed step of a job."""

    async def one(payload_json: str = "{}", **spec: Any) -> Any:
        await world.apply(make.job(**{"steps": [STEP], **spec}))
        await world.start(payload_json=payload_json)
        await world.turn("assign")
        (step,) = await workers.claim()
        return step

    return one


async def test_lines_are_appended_once_and_sealed_by_the_end(world: Any, workers: Any, claimed: Any) -> None:
    key = (await claimed()).key
    lines = [SentLine("a"), SentLine("b", "stderr", at_ms=1_800_000_000_000), SentLine("c")]
    for _ in range(2):
        assert (await workers.log.append("w1", key, first_seq=1, lines=lines)).last_seq == 3
    # One that was lost is sent again with what came after it.
    assert (await workers.append(key, "c", "d", first=3)).last_seq == 4
    assert workers.logs.lines(key) == [(1, STDOUT, "a"), (2, STDERR, "b"), (3, STDOUT, "c"), (4, STDOUT, "d")]
    assert workers.logs.blocks[key, 2].at_ns == 1_800_000_000_000_000_000
    assert workers.logs.seals == []
    assert (await workers.complete(key)).result == "accepted"
    assert workers.logs.seals == [(key, 4)]
    (attempt,) = await world.sql("SELECT * FROM scheduler.job_attempts WHERE run_id = %(id)s", id=key.run_id)
    assert attempt["last_seq"] == 4


async def test_a_call_that_failed_after_its_lines_were_stored_is_repeated(workers: Any, claimed: Any) -> None:
    key = (await claimed()).key

    async def fail() -> None:
        raise TobanError(ErrorCode.UNAVAILABLE, "no answer")

    workers.logs.meanwhile = fail
    with pytest.raises(TobanError, match="no answer"):
        await workers.append(key, "a", "b")
    workers.logs.meanwhile = None
    assert (await workers.append(key, "a", "b")).last_seq == 2
    assert workers.logs.lines(key) == [(1, STDOUT, "a"), (2, STDOUT, "b")]


@pytest.mark.parametrize("same", [True, False])
async def test_of_two_calls_at_a_time_the_same_one_is_answered_and_another_is_refused(
    workers: Any, claimed: Any, same: bool
) -> None:
    key = (await claimed()).key

    async def other() -> None:
        workers.logs.meanwhile = None
        await workers.append(key, *("a", "b") if same else ("a",))

    workers.logs.meanwhile = other
    if same:
        assert (await workers.append(key, "a", "b")).last_seq == 2
    else:
        with pytest.raises(TobanError, match="send one call after the other") as caught:
            await workers.append(key, "a", "b")
        assert caught.value.code is ErrorCode.CONFLICT


async def test_lines_that_the_worker_has_left_out_are_counted(workers: Any, claimed: Any) -> None:
    key = (await claimed()).key
    await workers.append(key, "a")
    await workers.append(key, "e", first=5)
    marker = (4, SYSTEM, "… 3 lines, left out by the worker")
    assert workers.logs.lines(key) == [(1, STDOUT, "a"), marker, (5, STDOUT, "e")]


async def test_only_the_holder_of_the_claim_appends(world: Any, workers: Any, claimed: Any) -> None:
    first = (await claimed(max_lost=5)).key
    await workers.append(first, "mine")
    await workers.locks_end(first.run_id, "PENDING")
    await world.turn("assign")
    (again,) = await workers.claim("w2")
    for key, worker in ((first, "w1"), (first, "w2"), (again.key, "w1")):
        with pytest.raises(TobanError) as caught:
            await workers.append(key, "late", worker=worker)
        assert caught.value.code is ErrorCode.CLAIM_LOST
    await workers.append(again.key, "second", worker="w2")
    assert (await workers.complete(again.key, worker="w2")).result == "accepted"
    with pytest.raises(TobanError) as caught:
        await workers.append(again.key, "after the end", first=2, worker="w2")
    assert caught.value.code is ErrorCode.CLAIM_LOST
    texts = {key: [text for *_, text in workers.logs.lines(key)] for key in (first, again.key)}
    assert texts == {first: ["mine"], again.key: ["second"]}


async def test_a_claim_that_ended_while_its_lines_were_stored_is_lost(workers: Any, claimed: Any) -> None:
    key = (await claimed()).key

    async def end() -> None:
        await workers.complete(key)

    workers.logs.meanwhile = end
    with pytest.raises(TobanError) as caught:
        await workers.append(key, "a")
    assert caught.value.code is ErrorCode.CLAIM_LOST


async def test_the_answer_tells_of_a_cancel(world: Any, workers: Any, claimed: Any) -> None:
    key = (await claimed()).key
    assert not (await workers.append(key, "a")).canceled
    await world.cancel(key.run_id)
    assert (await workers.append(key, "b", first=2)).canceled


async def test_values_of_the_payload_are_masked(workers: Any, claimed: Any) -> None:
    key = (await claimed('{"password": "hunter22"}', logs={"redact": ["password"]})).key
    await workers.append(key, "login hunter22", "cGFzcz1odW50ZXIyMg==")
    assert workers.logs.lines(key)[0] == (1, STDOUT, "login ***")
    assert "***" in workers.logs.lines(key)[1][2]


async def test_the_limits_of_the_job_count_over_calls(workers: Any, claimed: Any) -> None:
    key = (await claimed(logs={"max_mb": 1, "max_lines_per_second": 0})).key
    text = "x" * (MAX_LINE_BYTES - 1)
    for call in range(4):
        await workers.append(key, *[text] * 16, first=1 + 16 * call)
    await workers.append(key, "over", "it", first=65)
    await workers.append(key, "more", first=67)
    assert workers.logs.lines(key)[63:] == [
        (64, STDOUT, text),
        (66, SYSTEM, "… 2 lines, 8 bytes left out: more than 1 MiB (max_mb)"),
        (67, SYSTEM, "… 1 line, 5 bytes left out: more than 1 MiB (max_mb)"),
    ]


async def test_lines_over_the_rate_are_counted(workers: Any, claimed: Any) -> None:
    key = (await claimed(logs={"max_lines_per_second": 10})).key
    await workers.append(key, *"x" * 150)
    found = workers.logs.lines(key)
    assert found[-1] == (
        150,
        SYSTEM,
        "… 50 lines, 100 bytes left out: more than 10 lines a second (max_lines_per_second)",
    )
    assert len(found) == 101


@pytest.mark.parametrize(
    ("first", "lines", "words"),
    [
        (0, [SentLine("a")], "first_seq is 0"),
        (1, [], "0 lines in one call; send 1 to 1000"),
        (1, [SentLine("a")] * (MAX_LINES + 1), "1001 lines in one call"),
        (1, [SentLine("a"), SentLine("b", "out")], r"lines\[1\].stream is 'out'; use stdout or stderr"),
        (1, [SentLine("a\nb")], r"lines\[0\].text has a newline; send each line by itself"),
        (1, [SentLine("é" * MAX_LINE_BYTES)], "has 32768 bytes, the limit is 16384; split the line"),
        (1, [SentLine("x" * MAX_LINE_BYTES)] * (MAX_BYTES // MAX_LINE_BYTES + 1), "the limit is 262144; send fewer"),
        (1, [SentLine("a", at_ms=-1)], r"lines\[0\].at_unix_ms is -1"),
        (1 << 60, [SentLine("a")], "number lines without gaps"),
    ],
)
async def test_a_call_that_is_wrong_or_too_large(
    workers: Any, claimed: Any, first: int, lines: list[SentLine], words: str
) -> None:
    key = (await claimed()).key
    with pytest.raises(TobanError, match=words) as caught:
        await workers.log.append("w1", key, first_seq=first, lines=lines)
    assert (caught.value.code, workers.logs.blocks) == (ErrorCode.INVALID_ARGUMENT, {})
