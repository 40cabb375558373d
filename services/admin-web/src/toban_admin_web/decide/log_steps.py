"""The steps of a run's attempts in its log: the executor reports the numbers of each step's first and last line."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from toban_admin_web.decide.api_models import Run, RunStep
from toban_admin_web.decide.log_lines import LogLine


@dataclass(frozen=True, slots=True, kw_only=True)
class StepLines:
    """The lines `first` to `last` of an attempt are those of a step; `last` 0 means that it runs."""

    token: int
    first: int
    last: int
    step: RunStep

    def has(self, line: LogLine) -> bool:
        """Whether it wrote this line."""
        return self.token == line.token and self.first <= line.seq and (not self.last or line.seq <= self.last)


def step_lines(run: Run) -> list[StepLines]:
    """The steps that were started, in order, of attempts with more than one step."""
    found: list[StepLines] = []
    for number, attempt in enumerate(run.attempts, 1):
        # Lists of runs have the steps of the last attempt at the run.
        steps = attempt.steps or (run.steps if number == len(run.attempts) else [])
        started = [step for step in steps if step.seq_from > 0]
        if len(steps) > 1:
            found += [
                StepLines(
                    token=int(attempt.token),
                    first=step.seq_from,
                    last=0 if step is started[-1] and step.finished_at is None else step.seq_to,
                    step=step,
                )
                for step in started
            ]
    return found


def with_headings(lines: Iterable[LogLine], steps: Sequence[StepLines]) -> list[tuple[LogLine, StepLines | None, bool]]:
    """Each line with its step, and whether a heading of that step stands before it."""
    rows: list[tuple[LogLine, StepLines | None, bool]] = []
    last: StepLines | None = None
    for line in lines:
        step = next((one for one in steps if one.has(line)), None)
        rows.append((line, step, step is not None and step is not last))
        last = step
    return rows
