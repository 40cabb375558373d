"""Every code has a status, an exit code and a row in docs/errors.md."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from toban_domain.errors import GRPC_STATUS, ErrorCode, FencedOut, TobanError

DOC = Path(__file__).parents[3] / "docs" / "errors.md"


def test_every_code_has_a_status_and_its_documented_exit_code(subtests: pytest.Subtests) -> None:
    text = DOC.read_text(encoding="utf-8")
    for code in ErrorCode:
        with subtests.test(code.value):
            assert code in GRPC_STATUS
            # 0 is success, 1 … 5, 124 and 127 are results of runs, 64 is a mistake in the arguments, 130 an interrupt.
            assert 65 <= TobanError(code, "x").exit_code <= 78
            row = re.search(rf"^\| `{code}` \| (\d+) \| .+ \| .+ \|$", text, re.MULTILINE)
            assert row is not None, f"docs/errors.md has no row for {code}"
            assert int(row[1]) == TobanError(code, "x").exit_code


def test_mistakes_in_what_the_caller_wrote_are_told_apart() -> None:
    kinds = ("MANIFEST_INVALID", "SCHEDULE_INVALID", "PAYLOAD_TOO_LARGE", "PAYLOAD_INVALID")
    assert [TobanError(ErrorCode[kind], "x").exit_code for kind in kinds] == [65, 67, 71, 72]


def test_no_row_for_a_code_that_is_gone() -> None:
    assert set(re.findall(r"^\| `([A-Z_]+)` \| \d+ \|", DOC.read_text(encoding="utf-8"), re.MULTILINE)) == set(
        ErrorCode
    )


def test_an_error_carries_message_and_detail() -> None:
    error = TobanError(ErrorCode.JOB_NOT_FOUND, "there is no job 'x'", detail={"job": "x"})
    assert (str(error), error.detail, error.exit_code) == ("there is no job 'x'", {"job": "x"}, 66)


def test_fenced_out() -> None:
    error = FencedOut(42)
    assert (error.code, error.epoch) == (ErrorCode.FENCED_OUT, 42)
    assert "42" in error.message
