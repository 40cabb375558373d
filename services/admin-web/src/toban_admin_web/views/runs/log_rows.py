"""Lines of a run's output as the rows of a page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from toban_admin_web.decide.api_models import Run
from toban_admin_web.decide.log_blocks import MOST_OF_A_LINE, is_marker, line_anchor
from toban_admin_web.decide.log_lines import LogLine
from toban_admin_web.decide.log_steps import StepLines, step_lines, with_headings
from toban_admin_web.decide.log_text import clean, coloured, join_partial


@dataclass(frozen=True, slots=True, kw_only=True)
class LogRow:
    """One line, or a long one's parts together. `attempt` and `step` are set where a heading stands before it; `coloured` is set when its text
    has colours, for the script."""

    line: LogLine
    first: int
    anchor: str
    text: str
    cut: bool
    coloured: str
    marker: bool
    attempt: int | None
    step: StepLines | None
    hit: bool


def log_rows(lines: Sequence[LogLine], run: Run, hits: frozenset[tuple[int, int]] = frozenset()) -> list[LogRow]:
    """Rows of consecutive lines, in order. `hits` are (token, number) of lines to mark."""
    numbers = {int(attempt.token): number for number, attempt in enumerate(run.attempts, 1)}
    rows: list[LogRow] = []
    token = 0
    for line, step, begins in with_headings(join_partial(lines), step_lines(run)):
        first, text = line.first_seq or line.seq, clean(line.text)
        colours = coloured(line.text) if "\x1b" in line.text else text
        rows.append(
            LogRow(
                line=line,
                first=first,
                anchor=line_anchor(line.token, first, numbers),
                text=text[:MOST_OF_A_LINE],
                cut=len(text) > MOST_OF_A_LINE,
                coloured=colours if colours != text and len(text) <= MOST_OF_A_LINE else "",
                marker=is_marker(line),
                attempt=numbers.get(line.token, 0) if line.token != token else None,
                step=step if begins else None,
                hit=any((line.token, seq) in hits for seq in range(first, line.seq + 1)) if hits else False,
            )
        )
        token = line.token
    return rows


def without_repeats(groups: list[list[LogRow]]) -> list[list[LogRow]]:
    """Groups of rows without a heading that an earlier group has."""
    seen: set[tuple[int, int]] = set()
    kept: list[list[LogRow]] = []
    for group in groups:
        rows: list[LogRow] = []
        for row in group:
            token = row.line.token
            repeated = (token, 0) in seen
            known = row.step is not None and (token, row.step.first) in seen
            rows.append(replace(row, attempt=None if repeated else row.attempt, step=None if known else row.step))
            seen.add((token, 0))
            if row.step is not None:
                seen.add((token, row.step.first))
        kept.append(rows)
    return kept
