"""Limits leave nothing out in silence: what goes on and what is counted is always everything."""

import re
from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from toban_domain.log_block import SYSTEM, LogBlock
from toban_domain.log_limits import BURST_SECONDS, TAIL_LINES, Limiter, LogLimits, Used, split


def block(seq: int, *lines: bytes, stream: int = 1, partial: bool = False) -> LogBlock:
    text = lines[0] if partial else b"".join(line + b"\n" for line in lines)
    return LogBlock(stream=stream, partial=partial, at_ns=seq, seq_from=seq, lines=len(lines), text=text)


def numbered(first: int, count: int) -> LogBlock:
    return block(first, *(b"%d" % number for number in range(first, first + count)))


def flat(blocks: list[LogBlock]) -> list[tuple[int, int, bytes]]:
    """(seq, stream, text) of each line."""
    found = []
    for one in blocks:
        texts = [one.text] if one.partial else one.text[:-1].split(b"\n")
        assert len(texts) == one.lines
        found += [(one.seq_from + place, one.stream, text) for place, text in enumerate(texts)]
    return found


def words(blocks: list[LogBlock]) -> list[tuple[int, str]]:
    return [(seq, text.decode()) for seq, stream, text in flat(blocks) if stream == SYSTEM]


def test_without_limits_every_block_goes_on() -> None:
    one = Limiter(LogLimits())
    assert one.take(numbered(1, 10), 0.0) == [numbered(1, 10)]
    assert (one.tick(99.0), one.finish(), one.left) == ([], [], {})


def test_lines_over_the_rate_are_counted_once_a_second() -> None:
    one = Limiter(LogLimits(lines_per_second=1000))
    out = one.take(numbered(1, 50_000), 0.0)
    assert flat(out)[-1] == (10_000, 1, b"10000")
    assert one.take(numbered(50_001, 10_000), 0.5) == []
    assert one.tick(0.9) == []
    more = one.tick(1.0)
    assert words(more) == [
        (59_800, "… 49,800 lines, 291 KiB left out: more than 1,000 lines a second (max_lines_per_second)")
    ]
    assert flat(more)[1:] == [(seq, 1, b"%d" % seq) for seq in range(59_801, 60_001)]
    assert one.left["rate"][0] == 49_800
    assert flat(one.take(numbered(60_001, 800), 1.0))[-1] == (60_800, 1, b"60800")


def test_a_burst_after_a_quiet_time_is_kept_whole() -> None:
    one = Limiter(LogLimits(lines_per_second=10))
    for second in range(0, 100, BURST_SECONDS):
        lines = numbered(second * 10 + 1, 100)
        assert one.take(lines, float(second)) == [lines]


def test_the_budget_says_where_it_ended_and_keeps_the_last_lines() -> None:
    one = Limiter(LogLimits(max_bytes=1 << 20))
    line = b"x" * 1023
    out = one.take(block(1, *[line] * 1000), 0.0) + one.take(block(1001, *[line] * 30), 0.0)
    assert flat(out)[1023] == (1024, 1, line)
    assert words(out) == [
        (1025, "… this line (1.0 KiB) and what follows are left out, but for the last lines: more than 1 MiB (max_mb)")
    ]
    for seq in range(1031, 3031, 10):
        assert one.take(block(seq, *[b"n" * 999] * 10), 5.0) == []
    end = one.finish()
    assert words(end) == [(2965, "… 1,941 lines, 1.9 MiB left out: more than 1 MiB (max_mb)")]
    assert [seq for seq, _, _ in flat(end)[1:]] == list(range(2966, 3031))


def test_one_line_over_the_budget() -> None:
    one = Limiter(LogLimits(max_bytes=4))
    assert [seq for seq, _, _ in flat(one.take(block(1, b"abc", b"def"), 0.0))] == [1, 2]
    assert (one.finish(), one.left) == ([], {"budget": (1, 4)})


def test_a_few_lines_over_the_rate_at_the_end_are_all_kept() -> None:
    one = Limiter(LogLimits(lines_per_second=1))
    out = one.take(numbered(1, 150), 0.0) + one.finish()
    assert flat(out) == flat([numbered(1, 150)])
    assert one.left == {}


def test_split() -> None:
    assert split(numbered(5, 3), 0) == (None, numbered(5, 3))
    assert split(numbered(5, 3), 2) == (block(5, b"5", b"6"), block(7, b"7")._replace(at_ns=5))
    head, rest = split(block(9, b"piece", partial=True), 1)
    assert (head, rest.lines, rest.text) == (block(9, b"piece", partial=True), 0, b"")


@dataclass
class Step:
    lines: int
    size: int
    partial: bool
    wait: float


steps = st.lists(
    st.builds(
        Step,
        lines=st.integers(1, 300),
        size=st.integers(0, 40),
        partial=st.booleans(),
        wait=st.sampled_from([0.0, 0.0, 0.1, 0.6, 3.0, 30.0]),
    ),
    max_size=25,
)
COUNTED = re.compile(r"… ([\d,]+) lines?, .* left out")


@given(steps, st.sampled_from([0, 1, 7, 60]), st.sampled_from([0, 100, 5000]))
def test_kept_and_counted_are_everything(given_steps: list[Step], rate: int, budget: int) -> None:
    one, now, seq = Limiter(LogLimits(max_bytes=budget, lines_per_second=rate)), 0.0, 1
    taken: list[LogBlock] = []
    out: list[LogBlock] = []
    for step in given_steps:
        now += step.wait
        out += one.tick(now)
        text = b"y" * step.size
        made = block(seq, b"z" + text, partial=True) if step.partial else block(seq, *[text] * step.lines)
        seq += made.lines
        taken.append(made)
        out += one.take(made, now)
    out += one.finish()
    before, after = flat(taken), flat(out)
    seqs = [number for number, _, _ in after]
    assert seqs == sorted(set(seqs))
    assert set(seqs) <= {number for number, _, _ in before}
    kept = [line for line in after if line[1] != SYSTEM]
    assert set(kept) <= set(before)
    assert len(kept) + sum(lines for lines, _ in one.left.values()) == len(before)
    counted = sum(int(match[1].replace(",", "")) for _, text in words(out) if (match := COUNTED.match(text)))
    alone = sum(1 for _, text in words(out) if "this line" in text) - sum(
        1 for _, text in words(out) if "max_mb" in text and COUNTED.match(text)
    )
    assert counted + alone == sum(lines for lines, _ in one.left.values())
    assert before[-1:] == after[-1:] or not before or (one.left.get("budget", (0, 0))[0] == 1)
    if budget:
        assert sum(len(text) for _, _, text in kept[:-TAIL_LINES]) <= budget


def test_an_output_in_parts_is_limited_as_a_whole_and_keeps_no_last_lines() -> None:
    limits = LogLimits(max_bytes=30, lines_per_second=100)
    first = Limiter(limits, Used())
    assert first.take(LogBlock(1, False, 0, 1, 2, b"123456789\n" * 2), 5.0) and first.finish() == []
    second = Limiter(limits, Used(*first.used))
    block = LogBlock(1, False, 0, 3, 3, b"123456789\n" * 3)
    kept, marker = [*second.take(block, 5.0), *second.finish()]
    assert (kept.seq_from, kept.lines, marker.seq_from, marker.stream) == (3, 1, 5, SYSTEM)
    assert marker.text.decode() == "… 2 lines, 20 bytes left out: more than 2.86102e-05 MiB (max_mb)\n"
    assert second.used == Used(30, 997.0, 5.0)
