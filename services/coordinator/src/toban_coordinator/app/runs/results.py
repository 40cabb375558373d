"""Results of jobs: what they have given as their output, against the `result_schema` of their definitions.

A run that succeeded without the result that its definition demands has FAILED(result_invalid), and is tried again like any other failure.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace

from cachetools import LRUCache

from toban_coordinator.app.definition_cache import DefinitionCache
from toban_coordinator.app.large_payload import PROCESS_WIDE, LargePayloads, with_large_checks
from toban_coordinator.decide.runs.report import Report
from toban_coordinator.store.runs import runs
from toban_domain.errors import ErrorCode, TobanError
from toban_domain.job import JobSpec
from toban_domain.outcome import Outcome, OutcomeKind, Reason
from toban_manifests.payload_schema import CHECKED_HERE, EXPLAINED_HERE, PayloadSchema
from toban_observability import metrics
from toban_store.pool import Pool
from toban_store.tx import autocommit

KEPT = 500
MAX_SUMMARY = 500

_results = metrics.counter(
    "toban_results_total",
    "Results of runs that have a `result_schema`, by result of the check: valid, invalid, or missing.",
    ("result",),
)


class ResultChecks:
    """Keeps the compiled schemas of the versions used last."""

    def __init__(self, *, pool: Pool, definitions: DefinitionCache, large: LargePayloads | None = None) -> None:
        self._pool = pool
        self._definitions = definitions
        self._large = large or PROCESS_WIDE
        self._schemas: LRUCache[tuple[int, int], PayloadSchema] = LRUCache(KEPT)

    async def checked(self, reports: Sequence[Report]) -> Sequence[Report]:
        """`reports` with a failure in place of each success whose result does not fit. Reports without a schema cost nothing.

        Raises TobanError when a large result could not be checked now: the executor sends the reports again.
        """
        expected = [report.key.run_id for report in reports if _is_checked(report)]
        if not expected:
            return reports
        async with autocommit(self._pool) as t:
            keys = await runs.definitions_of(t, expected)
            specs = await self._definitions.find(t, {key for key, _ in keys.values()})
        return [await self._checked(report, keys, specs) if _is_checked(report) else report for report in reports]

    async def _checked(
        self,
        report: Report,
        keys: Mapping[int, tuple[tuple[int, int], str]],
        specs: Mapping[tuple[int, int], JobSpec],
    ) -> Report:
        key, earlier = keys.get(report.key.run_id, (None, ""))
        spec = specs.get(key) if key is not None else None
        if key is None or spec is None or spec.result_schema is None or not isinstance(report.what, Outcome):
            return report
        schema = self._schemas.get(key) or PayloadSchema(spec.result_schema, "result")
        self._schemas[key] = schema
        outcome = report.what
        # What an external step gave stands until a later step gives something else.
        given = outcome.result_json or earlier

        async def verdict() -> TobanError | None:
            return self._verdict(schema, given)

        error = await with_large_checks(verdict)
        _results.labels("valid" if error is None else "invalid" if given else "missing").inc()
        return report if error is None else replace(report, what=_failed(outcome, error.message))

    def _verdict(self, schema: PayloadSchema, text: str) -> TobanError | None:
        """Raises CheckPending for a result that is not checked yet."""
        if not text:
            return TobanError(ErrorCode.PAYLOAD_INVALID, "the job gave no result; see `result_schema` of the job")
        result = json.loads(text)
        steps = schema.steps(result, len(text))
        if steps <= CHECKED_HERE and schema.is_valid(result):
            return None
        if steps <= EXPLAINED_HERE:
            return schema.explain(result, every=True)
        return self._large.verdict(schema, result, text)


def _is_checked(report: Report) -> bool:
    what = report.what
    return isinstance(what, Outcome) and what.result_expected and what.kind is OutcomeKind.SUCCEEDED


def _failed(outcome: Outcome, why: str) -> Outcome:
    summary = " ".join(why.split())[:MAX_SUMMARY]
    return replace(outcome, kind=OutcomeKind.FAILED, reason=Reason.RESULT_INVALID, error_summary=summary)
