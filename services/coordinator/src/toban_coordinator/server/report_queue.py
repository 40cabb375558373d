"""Reports of executors: everything that one executor sends while a transaction is under way goes into the next one."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from toban_coordinator.decide.report import Answer, Report
from toban_coordinator.loops.commit_reports import settle
from toban_coordinator.loops.definition_cache import Definitions
from toban_domain.errors import ErrorCode, TobanError
from toban_domain.outcome import Outcome
from toban_proto.v1 import coordinator_pb2 as pb
from toban_store.pool import Pool
from toban_transport.convert import key_from_pb, outcome_from_pb, timestamp_from_pb

MAX_BATCH = 1000
MAX_REPORTS = 5000
MAX_SUMMARY = 2000
MAX_LINE = 200


@dataclass(slots=True)
class _Waiting:
    reports: Sequence[Report]
    answer: asyncio.Future[list[Answer]]


@dataclass(slots=True)
class _Queue:
    waiting: list[_Waiting] = field(default_factory=list)
    worker: asyncio.Task[None] | None = None


class Reports:
    """Commits reports, on any coordinator."""

    def __init__(self, *, pool: Pool) -> None:
        self._pool = pool
        self._definitions = Definitions()
        self._queues: dict[str, _Queue] = {}

    async def report(self, request: pb.ReportRequest, incarnation: str) -> pb.ReportResponse:
        """Answers after the commit; raises TobanError when nothing, or nobody knows what, was committed: the executor sends it again."""
        reports = [_report(message) for message in request.reports]
        if len(reports) > MAX_REPORTS:
            raise TobanError(
                ErrorCode.INVALID_ARGUMENT, f"{len(reports)} reports in one call, the limit is {MAX_REPORTS}"
            )
        answers = await self.commit(incarnation, reports)
        return pb.ReportResponse(
            results=[
                pb.ReportResult(key=message.key, seq=message.seq, result=answer.value)
                for message, answer in zip(request.reports, answers, strict=True)
            ]
        )

    async def commit(self, incarnation: str, reports: Sequence[Report]) -> list[Answer]:
        """The answers to `reports`, in order."""
        waiting = _Waiting(reports, asyncio.get_running_loop().create_future())
        queue = self._queues.setdefault(incarnation, _Queue())
        queue.waiting.append(waiting)
        if queue.worker is None:
            queue.worker = asyncio.create_task(self._drain(incarnation, queue), name=f"reports of {incarnation}")
        return await waiting.answer

    async def _drain(self, incarnation: str, queue: _Queue) -> None:
        try:
            while queue.waiting:
                batch = _take(queue)
                await self._serve(incarnation, batch)
        finally:
            queue.worker = None
            if not queue.waiting:
                self._queues.pop(incarnation, None)

    async def _serve(self, incarnation: str, batch: Sequence[_Waiting]) -> None:
        try:
            answers = await settle(
                self._pool, self._definitions, incarnation, [report for w in batch for report in w.reports]
            )
        except Exception as error:
            for waiting in batch:
                if not waiting.answer.done():
                    waiting.answer.set_exception(error)
            return
        for waiting in batch:
            mine, answers = answers[: len(waiting.reports)], answers[len(waiting.reports) :]
            if not waiting.answer.done():
                waiting.answer.set_result(mine)


def _take(queue: _Queue) -> list[_Waiting]:
    """The requests of the next transaction: at least one, then as many as fit."""
    taken, size = 0, 0
    for waiting in queue.waiting:
        size += len(waiting.reports)
        if taken and size > MAX_BATCH:
            break
        taken += 1
    batch, queue.waiting = queue.waiting[:taken], queue.waiting[taken:]
    return batch


def _report(message: pb.AttemptReport) -> Report:
    key = key_from_pb(message.key)
    if message.WhichOneof("what") == "outcome":
        return Report(key, message.seq, _stored(outcome_from_pb(message.outcome)))
    started = timestamp_from_pb(message.started)
    if started is None:
        raise TobanError(
            ErrorCode.INVALID_ARGUMENT, f"the report of run {key.run_id} has neither a start nor an outcome"
        )
    return Report(key, message.seq, started)


def _stored(outcome: Outcome) -> Outcome:
    """The outcome with texts that PostgreSQL can hold."""
    return replace(
        outcome,
        error_summary=outcome.error_summary.replace("\0", "�")[:MAX_SUMMARY],
        last_line=outcome.last_line.replace("\0", "�")[:MAX_LINE],
    )
