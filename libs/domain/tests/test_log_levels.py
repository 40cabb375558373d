"""Which lines have a level."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toban_domain.dropped_lines import LEVEL_NAMES
from toban_domain.log_levels import level_of, levels_of, may_have_levels


@pytest.mark.parametrize(
    ("line", "level"),
    [
        (b'{"level":"info","msg":"x"}', "info"),
        (b'{"time": "now", "n": 1.5, "ok": true, "severity": "ERROR"}', "error"),
        (b'{"lvl":"Warn"}\r', "warning"),
        (b' {"level":50,"time":1,"msg":"pino"} ', "error"),
        (b'{"a":{"level":"error"},"level":"debug"}', "debug"),
        (b'{"msg":"say \\"level\\":\\"error\\"","level":"info"}', "info"),
        (b'{"level":"blue","severity":"critical"}', "fatal"),
        (b"time=2026-11-21 level=warning msg=x", "warning"),
        (b'level="error" msg="no"', "error"),
        (b"lvl=eror", ""),
        (b"sealevel=info", ""),
        (b'{"a":{"level":"error"}}', ""),
        (b'{"msg":"level","x":"error"}', ""),
        (b'{"level":"info"', ""),
        (b'["level","error"]', ""),
        (b'{"level":true}', ""),
        (b"the level is error", ""),
        (b"", ""),
        (b"{" * 5000 + b'"level":"info"}', ""),
        (b"\xff\x00level=info", ""),
    ],
)
def test_lines(line: bytes, level: str) -> None:
    assert level_of(line) == level


texts = st.text(max_size=6)
flat = st.dictionaries(texts, st.one_of(texts, st.integers(), st.none()), max_size=4)


@given(flat, st.one_of(st.sampled_from(["info", "ERROR", "blue", ""]), st.integers(0, 99)), flat)
def test_json_as_a_parser_reads_it(before: dict[str, object], level: object, after: dict[str, object]) -> None:
    known = {
        "info": "info",
        "ERROR": "error",
        10: "trace",
        20: "debug",
        30: "info",
        40: "warning",
        50: "error",
        60: "fatal",
    }
    line = json.dumps({**before, "level": level, **after}).encode()
    assert level_of(line) == known.get(level, "")  # type: ignore[call-overload]
    assert may_have_levels(line)


def test_levels_of_a_block_are_a_byte_a_line() -> None:
    assert levels_of(b'{"level":"error"}\nplain\nlevel=trace\n') == b"\5\0\1"
    assert levels_of(b"the level is 5\n") == b""
    assert levels_of(b"plain\n") == b""


_tokens = st.sampled_from(["info", "WARN", "Error", "iNfO", "blue", "10", "50", "99", 30, 7, None])
_lines = st.one_of(
    st.dictionaries(st.sampled_from(["level", "lvl", "severity", "msg", "n"]), _tokens).map(json.dumps),
    st.sampled_from(["", "level=debug", '{"level":"info"} and more', '{"level":"info"}\r', ' {"level":"fatal"}', "{}"]),
)


@given(st.lists(_lines, min_size=1, max_size=5))
def test_levels_of_a_block_are_those_of_its_lines(lines: list[str]) -> None:
    text = "".join(f"{line}\n" for line in lines).encode()
    each = [LEVEL_NAMES.index(level_of(line.encode())) for line in lines]
    assert list(levels_of(text)) == (each if any(each) else [])
