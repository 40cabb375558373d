"""Reports of executors: successes of all of them share statements, the rest of one executor's reports shares transactions."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace

from toban_coordinator.app.definition_cache import DefinitionCache
from toban_coordinator.app.runs.certain_ends import NO_LOOPS, CertainEnds
from toban_coordinator.app.runs.commit_reports import Committed, commit_reports
from toban_coordinator.app.runs.results import ResultChecks
from toban_coordinator.decide.runs.report import Answer, Report
from toban_coordinator.store.runs import run_steps
from toban_domain.errors import ErrorCode, TobanError
from toban_domain.outcome import AttemptKey, ErrorLine, Outcome
from toban_domain.payload import check_payload
from toban_runtime.group_commit import GroupCommit, GroupLimits
from toban_runtime.loop import WakeRegistry
from toban_store.pool import Pool
from toban_store.tx import autocommit

# One transaction takes so many reports; one call may bring more.
MAX_BATCH = 1000
MAX_REPORTS = 5000
MAX_SUMMARY = 2000
MAX_LINE = 200
MAX_ERROR_LINES = 5
MAX_LOG_REF = 1024
MAX_STEPS = 50
Group = GroupCommit[Sequence[Report], list[Committed]]


class ReportQueue:
    """Commits reports, on any coordinator."""

    def __init__(self, *, pool: Pool, wakes: WakeRegistry = NO_LOOPS) -> None:
        """`wakes` has the loops that run in this process."""
        self._pool = pool
        self._wakes = wakes
        self._definitions = DefinitionCache()
        self._results = ResultChecks(pool=pool, definitions=self._definitions)
        self._ends = CertainEnds(pool=pool, definitions=self._definitions, wakes=wakes)
        self._groups: dict[str, Group] = {}

    async def commit(self, incarnation: str, reports: Sequence[Report]) -> list[Committed]:
        """The answers to `reports` of one executor, in order, after the commit.

        Raises INVALID_ARGUMENT for too many; any other TobanError when nothing was committed, or that is unknown: send them again.
        """
        if len(reports) > MAX_REPORTS:
            raise TobanError(
                ErrorCode.INVALID_ARGUMENT, f"{len(reports)} reports in one call, the limit is {MAX_REPORTS}"
            )
        checked = await self._results.checked([_storable(report) for report in reports])
        ended = await self._ends.end(incarnation, checked)
        rest = iter(await self._commit_rest(incarnation, [report for report in checked if report.key not in ended]))
        return [Committed(Answer.ACCEPTED) if report.key in ended else next(rest) for report in checked]

    async def _commit_rest(self, incarnation: str, reports: Sequence[Report]) -> list[Committed]:
        if not reports:
            return []
        group = self._groups.get(incarnation)
        if group is None:
            group = self._groups[incarnation] = self._group_of(incarnation)
        return await group.submit(reports)

    async def keep_checkpoint(self, key: AttemptKey, incarnation: str, *, seq: int, value_json: str) -> bool:
        """Commit what a live attempt keeps for the next one; False when the run has gone on without it.

        Raises INVALID_ARGUMENT for what is no JSON of at most 32 KiB.
        """
        value = storable_json(value_json)
        if not value:
            raise TobanError(ErrorCode.INVALID_ARGUMENT, "the checkpoint is not JSON of at most 32 KiB")
        async with autocommit(self._pool) as t:
            return await run_steps.keep_checkpoint(t, key, incarnation, seq=seq, value_json=value)

    def _group_of(self, incarnation: str) -> Group:
        async def commit(calls: Sequence[Sequence[Report]]) -> list[list[Committed]]:
            answers = iter(
                await commit_reports(
                    self._pool,
                    self._definitions,
                    incarnation,
                    [report for call in calls for report in call],
                    self._wakes,
                )
            )
            return [[next(answers) for _ in call] for call in calls]

        def forget() -> None:
            self._groups.pop(incarnation, None)

        return GroupCommit(
            commit,
            limits=GroupLimits(max_items=MAX_BATCH, max_size=MAX_BATCH),
            size_of=len,
            on_idle=forget,
            name=f"reports of {incarnation}",
        )


def _storable(report: Report) -> Report:
    """The report with texts that PostgreSQL can hold."""
    if not isinstance(report.what, Outcome):
        return report
    outcome = replace(
        report.what,
        error_summary=report.what.error_summary.replace("\0", "�")[:MAX_SUMMARY],
        last_line=report.what.last_line.replace("\0", "�")[:MAX_LINE],
        result_json=storable_json(report.what.result_json),
        log_ref=report.what.log_ref.replace("\0", "�")[:MAX_LOG_REF],
        steps=report.what.steps[:MAX_STEPS],
        error_lines=tuple(
            ErrorLine(line.seq, line.text.replace("\0", "�")[:MAX_LINE])
            for line in report.what.error_lines[-MAX_ERROR_LINES:]
        ),
    )
    return replace(report, what=outcome)


def storable_json(text: str) -> str:
    """What an executor sends as JSON of a job, in canonical form; empty for what is none, or more than a payload may be."""
    if not text:
        return ""
    try:
        value = json.loads(text)
        # In an object, as the limit and the depth of payloads count.
        return check_payload({"v": value})[len('{"v":') : -1]
    except (ValueError, RecursionError, TobanError):
        return ""
