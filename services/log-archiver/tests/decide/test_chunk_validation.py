"""Claims of chunks, and lines that are not those of the claim."""

from datetime import UTC, datetime

import pytest

from toban_log_archiver.decide.chunk_validation import (
    MAX_DATA_BYTES,
    MAX_LINE_BYTES,
    ChunkInvalid,
    Claim,
    Columns,
    check_claim,
    check_lines,
)

GOOD = {"stream": 1, "seq_from": 3, "seq_to": 9, "line_count": 2, "data_bytes": 10}
LINES = {"seqs": [3, 9], "nanos": [5_000, 4_000], "streams": {1}, "sizes": [1, 2], "newlines": 1}


def test_a_good_chunk_is_measured() -> None:
    check_claim(Claim(**GOOD))
    found = check_lines(Claim(**GOOD), Columns(**LINES))
    assert found.raw_bytes == 4
    assert (found.first_at, found.last_at) == (
        datetime(1970, 1, 1, 0, 0, 0, 4, tzinfo=UTC),
        datetime(1970, 1, 1, 0, 0, 0, 5, tzinfo=UTC),
    )


@pytest.mark.parametrize(
    "wrong",
    [
        {"stream": 0},
        {"stream": 4},
        {"data_bytes": 0},
        {"data_bytes": MAX_DATA_BYTES + 1},
        {"seq_from": 0},
        {"seq_from": 10},
        {"seq_to": 1 << 62},
        {"line_count": 0},
        {"line_count": 8},
    ],
)
def test_a_claim_that_no_chunk_can_hold(wrong: dict[str, int]) -> None:
    with pytest.raises(ChunkInvalid):
        check_claim(Claim(**(GOOD | wrong)))


@pytest.mark.parametrize(
    "wrong",
    [
        {"seqs": [3, 5, 9]},
        {"seqs": [3, 8]},
        {"seqs": [4, 9]},
        {"streams": {1, 2}},
        {"streams": {2}},
        {"sizes": [1, MAX_LINE_BYTES + 1]},
        {"nanos": [-1, 0]},
        {"nanos": [0, 1 << 63]},
    ],
)
def test_lines_that_are_not_those_of_the_claim(wrong: dict[str, list[int]]) -> None:
    with pytest.raises(ChunkInvalid):
        check_lines(Claim(**GOOD), Columns(**(LINES | wrong)))


def test_sequence_numbers_that_repeat() -> None:
    with pytest.raises(ChunkInvalid, match="do not grow"):
        check_lines(
            Claim(**(GOOD | {"line_count": 3})),
            Columns(**(LINES | {"seqs": [3, 3, 9], "sizes": [1, 1, 1], "nanos": [1, 1, 1]})),
        )
