"""Fixtures of the tests about runs: a database of their own, a term, executors that a fake port answers for."""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from toban_coordinator.app.cluster.overview import Overviews
from toban_coordinator.app.definition_cache import DefinitionCache
from toban_coordinator.app.definitions.apply import Apply
from toban_coordinator.app.manifests import ManifestText
from toban_coordinator.app.notifications.events import Events
from toban_coordinator.app.payload_validator import PayloadValidator
from toban_coordinator.app.placement.fast_path import CurrentFastPath
from toban_coordinator.app.runs.cancel import CancelRun
from toban_coordinator.app.runs.commit_reports import commit_reports
from toban_coordinator.app.runs.job_reads import JobReads
from toban_coordinator.app.runs.run_counts import CountRuns
from toban_coordinator.app.runs.run_usage import RunUsages
from toban_coordinator.app.runs.start_runs import RunRequest, StartRuns
from toban_coordinator.app.schedules.coming_load import ComingLoads
from toban_coordinator.app.schedules.schedules import Schedules
from toban_coordinator.decide.placement import search_pace
from toban_coordinator.decide.runs.report import Answer, Report
from toban_coordinator.loops.build_loops import leader_loops
from toban_coordinator.loops.external_locks import ClaimObserver
from toban_coordinator.loops.term_loop import LoopDeps, TermLoop, TurnOutcome
from toban_coordinator.ports.orders import QUEUED, CancelOrder, StartOrder, StartResult, Target
from toban_coordinator.ports.worker_registry import RunMarks
from toban_coordinator.server.job_reader import JobReader, JobReaderDeps
from toban_coordinator.store.placement import queued_orders
from toban_coordinator.store.placement.queued_orders import QueuedOrder
from toban_domain.epoch import Epoch, Term, TokenSource
from toban_domain.errors import ErrorCode, TobanError
from toban_domain.outcome import AttemptKey, Outcome, OutcomeKind, Reason
from toban_domain.usage import UsageSample
from toban_runtime.clock import SystemClock
from toban_runtime.loop import WakeRegistry
from toban_store import sessions
from toban_store.pool import Pool
from toban_store.sessions import Pace
from toban_store.tx import fenced_tx, tx
from toban_testing.fake_coordinator import FixedSettings
from toban_testing.kept_sessions import kept_pool


async def take_term(pool: Pool, counter: int) -> Term:
    """Takes the leader row, as an election would."""
    epoch = Epoch(1, counter).pack()
    async with tx(pool) as t:
        row = await t.fetch_one(
            "UPDATE scheduler.leader SET epoch = %(epoch)s::bigint WHERE id = 1"
            " RETURNING scheduler.current_system_id() AS system_id, scheduler.current_timeline() AS timeline",
            {"epoch": epoch},
        )
    assert row is not None
    return Term(epoch=epoch, worker_id=1, incarnation="0" * 32, system_id=row["system_id"], timeline=row["timeline"])


BEAT_EVERY = timedelta(seconds=0.3)


class ServerNow:
    """PostgreSQL's time plus an offset that the test moves, or a fixed time."""

    def __init__(self) -> None:
        self.offset = timedelta()
        self.fixed: datetime | None = None
        self.skew_seconds = 0.0

    def now(self) -> datetime:
        return self.fixed or datetime.now(UTC) + self.offset  # noqa: TID251


@dataclass
class FakeOrders:
    """Executors as the leader sees them: notes every order, and answers as the test says."""

    starts: list[tuple[str, StartOrder]] = field(default_factory=list)
    cancels: list[tuple[str, CancelOrder]] = field(default_factory=list)
    refuse: Callable[[StartOrder], tuple[str, str] | None] = lambda order: None
    revokes: list[tuple[str, AttemptKey]] = field(default_factory=list)
    cancel_answer: str = "cancelling"
    revoke_answer: str = "gone"
    pool: Pool | None = None
    down: set[str] = field(default_factory=set)
    usages: dict[AttemptKey, list[UsageSample]] = field(default_factory=dict)
    block: dict[str, asyncio.Event] = field(default_factory=dict)
    noted: asyncio.Event = field(default_factory=asyncio.Event)

    async def started(self, count: int) -> None:
        """Waits until so many starts have arrived."""
        while len(self.starts) < count:
            self.noted.clear()
            await self.noted.wait()

    async def start(
        self, target: Target, term: Term, orders: Sequence[StartOrder], smallest_live_token: int
    ) -> list[StartResult]:
        if target.incarnation in self.block:
            await self.block[target.incarnation].wait()
        if target.incarnation in self.down:
            raise TobanError(ErrorCode.UNAVAILABLE, "not there")
        results = []
        for order in orders:
            assert order.key.token >= smallest_live_token
            self.starts.append((target.incarnation, order))
            self.noted.set()
            refusal = self.refuse(order)
            results.append(StartResult(order.key, refusal is None, *(refusal or ("", ""))))
        return results

    async def cancel(self, target: Target, term: Term, orders: Sequence[CancelOrder]) -> dict[AttemptKey, str]:
        if target.incarnation in self.down:
            return await self.queue(target, term, "cancel", [order.key for order in orders])
        self.cancels += [(target.incarnation, order) for order in orders]
        return {order.key: self.cancel_answer for order in orders}

    async def revoke(self, target: Target, term: Term, keys: Sequence[AttemptKey]) -> dict[AttemptKey, str]:
        if target.incarnation in self.down:
            return await self.queue(target, term, "revoke", keys)
        self.revokes += [(target.incarnation, key) for key in keys]
        return dict.fromkeys(keys, self.revoke_answer)

    async def usage(self, target: Target, key: AttemptKey) -> list[UsageSample]:
        if target.incarnation in self.down:
            raise TobanError(ErrorCode.UNAVAILABLE, "not there")
        return self.usages.get(key, [])

    async def queue(self, target: Target, term: Term, kind: str, keys: Sequence[AttemptKey]) -> dict[AttemptKey, str]:
        """What the adapter does with orders that it cannot deliver."""
        assert self.pool is not None
        async with fenced_tx(self.pool, term) as t:
            await queued_orders.queue(
                t, incarnation=target.incarnation, kind=kind, serial=1, orders=[(key, {}) for key in keys]
            )
        return dict.fromkeys(keys, QUEUED)


class World:
    """A coordinator's part about runs, turned by hand."""

    def __init__(self, pool: Pool, term: Term, *, administrator: Pool) -> None:
        self.pool = pool
        self.administrator = administrator
        self.orders = FakeOrders(pool=pool)
        self.time = ServerNow()
        self.settings = FixedSettings()
        self.fast_path = CurrentFastPath()
        self.service = StartRuns(
            pool=pool, definitions=DefinitionCache(), payloads=PayloadValidator(), fast_path=self.fast_path
        )
        self.definitions = DefinitionCache()
        self.incarnations: list[str] = []
        # The last heartbeat that the world wrote for an executor, and how far its time was ahead then.
        self.beats: dict[str, tuple[datetime, timedelta]] = {}
        self.marks: RunMarks | None = None
        # The loops of the coordinator that takes reports.
        self.wakes = WakeRegistry()
        self.take(term)

    def take(self, term: Term) -> None:
        """Fresh loops for a term."""
        self.term = term
        self.deps = deps = LoopDeps(
            pool=self.pool,
            quick=self.pool,
            term=term,
            tokens=TokenSource(term),
            orders=self.orders,
            clock=SystemClock(),
            server_time=self.time,
            settings=self.settings,
            fast_path=self.fast_path,
            marks=self.marks,
        )
        self.loops: dict[str, TermLoop] = {
            loop.name: loop for loop in leader_loops(deps, ClaimObserver(pool=self.pool, clock=deps.clock))
        }  # type: ignore[misc]

    async def turn(self, *names: str) -> TurnOutcome:
        """One turn of each loop, orders carried out."""
        done = TurnOutcome()
        for name in names:
            await self._beat()
            loop = self.loops[name]
            rested = await loop._idle_turn() if loop._idle_turn else None
            done = await loop._work()
            assert rested is None or not done.moved, f"loop {name} would have rested, and there was work"
            await self.sender.idle()
        return done

    @property
    def sender(self) -> Any:
        return self.loops["dispatch"]._close.__self__  # type: ignore[union-attr]

    async def executor(
        self, number: int = 1, *, slots: int = 4, labels: dict[str, str] | None = None, instance: str = ""
    ) -> str:
        """Registers an executor that has just sent a heartbeat."""
        incarnation = f"00000000-0000-4000-8000-{number:012d}"
        [row] = await self.sql(
            "INSERT INTO scheduler.executors (incarnation, worker_id, instance, node_id, boot_id, pid, grpc_host, grpc_port, key_hash, lease_ms,"
            " slots, labels) VALUES (%(i)s, nextval('scheduler.worker_id_seq'), %(n)s, %(n)s, 'boot', 1, 'h', 1, ''::bytea, 10000, %(s)s, %(l)s)"
            " RETURNING last_heartbeat_at",
            i=incarnation,
            n=instance or f"e{number}",
            s=slots,
            l=json.dumps(labels or {}),
        )
        self.incarnations.append(incarnation)
        self.beats[incarnation] = (row["last_heartbeat_at"], timedelta())
        return incarnation

    async def _beat(self) -> None:
        """Heartbeats of executors whose last one the test has not changed: a slow machine makes no executor silent."""
        due = {i: ahead for i, (at, ahead) in self.beats.items() if datetime.now(UTC) + ahead - at > BEAT_EVERY}  # noqa: TID251
        for incarnation, ahead in due.items():
            rows = await self.sql(
                "UPDATE scheduler.executors SET last_heartbeat_at = clock_timestamp() + %(ahead)s"
                " WHERE incarnation = %(i)s AND last_heartbeat_at = %(at)s RETURNING last_heartbeat_at",
                i=incarnation,
                at=self.beats.pop(incarnation)[0],
                ahead=ahead,
            )
            for row in rows:
                self.beats[incarnation] = (row["last_heartbeat_at"], ahead)

    async def steady(self) -> None:
        """Stops the time one second after a slot of the schedules (period 10 s), with nothing unsettled before it."""
        seconds = int(self.now().timestamp()) // 10 * 10 + 11
        await self.at(datetime.fromtimestamp(seconds, UTC))
        await self.sql("UPDATE scheduler.schedules SET next_run_at = %(n)s", n=self.now() + timedelta(seconds=9))

    async def later(self, seconds: float) -> None:
        """So much later than at the start; every executor has just sent a heartbeat."""
        self.time.offset = timedelta(seconds=seconds)
        rows = await self.sql(
            "UPDATE scheduler.executors SET last_heartbeat_at = %(t)s RETURNING incarnation::text AS i, last_heartbeat_at AS at",
            t=self.time.now(),
        )
        self.beats = {row["i"]: (row["at"], self.time.offset) for row in rows}

    async def at(self, time: datetime) -> None:
        """Stops the time there; every executor has just sent a heartbeat."""
        self.time.fixed = time
        await self.sql("UPDATE scheduler.executors SET last_heartbeat_at = %(t)s", t=time)

    async def sql(self, statement: str, **parameters: Any) -> list[dict[str, Any]]:
        async with tx(self.administrator) as t:
            cursor = await t._run(statement, parameters)
            return await cursor.fetchall() if cursor.description else []

    async def apply(
        self, *documents: dict[str, Any], dry_run: bool = False, reason: str = "", force: bool = False
    ) -> list[tuple[str, str, int]]:
        texts = [
            ManifestText(json=json.dumps(d), source=f"test.yaml, document {i}") for i, d in enumerate(documents, 1)
        ]
        done = await Apply(pool=self.pool).apply(texts, dry_run=dry_run, actor="admin-cli", reason=reason, force=force)
        return [(one.name, one.action, one.version) for one in done]

    async def start(self, job: str = "hello", count: int = 1, **fields: Any) -> list[int]:
        """Starts runs as a coordinator that has never heard of the job: always the long way."""
        service = StartRuns(
            pool=self.pool, definitions=self.definitions, payloads=PayloadValidator(), fast_path=self.fast_path
        )
        return await self._start(service, job, count, fields)

    async def start_again(self, job: str = "hello", count: int = 1, **fields: Any) -> list[int]:
        """Starts runs as a coordinator that has started some before: the short way when there is one."""
        return await self._start(self.service, job, count, fields)

    async def _start(self, service: StartRuns, job: str, count: int, fields: dict[str, Any]) -> list[int]:
        await self._beat()
        wanted = [RunRequest(job=job, **fields) for _ in range(count)]
        return [run.run_id for run in await service.start(wanted, "admin-cli")]

    @property
    def reader(self) -> JobReader:
        """The service that lists what is there."""
        deps = JobReaderDeps(
            reads=JobReads(pool=self.pool, clock=SystemClock()),
            counts=CountRuns(pool=self.pool),
            events=Events(pool=self.pool),
            schedules=Schedules(pool=self.pool),
            loads=ComingLoads(pool=self.pool, clock=SystemClock()),
            overviews=Overviews(pool=self.pool, clock=SystemClock(), health=lambda: {"status": "ok"}),
            usages=RunUsages(pool=self.pool, probe=self.orders),  # type: ignore[arg-type]
            health=lambda: {"status": "ok"},
            archive=None,  # type: ignore[arg-type]
            signer=None,  # type: ignore[arg-type]
            clock=SystemClock(),
        )
        return JobReader(deps=deps)

    async def cancel(self, run: int, mode: str = "") -> None:
        await CancelRun(pool=self.pool, definitions=self.definitions).cancel(
            run, reason="test", mode=mode, actor="admin-cli"
        )

    async def report(self, key: AttemptKey, what: datetime | Outcome, incarnation: str = "") -> Answer:
        incarnation = incarnation or next(i for i, order in self.orders.starts if order.key == key)
        reports = [Report(key, 1, what)]
        return (await commit_reports(self.pool, self.definitions, incarnation, reports, self.wakes))[0].answer

    async def heartbeat(self, incarnation: str, answer: Callable[[QueuedOrder], str]) -> list[str]:
        """What a heartbeat by way of another coordinator does: the open orders go out, and their answers come back; their kinds."""
        waiting = (await queued_orders.updates(self.pool, {incarnation: []}))[incarnation].orders
        await queued_orders.finish(
            self.pool, incarnation=incarnation, results={order.id: answer(order) for order in waiting}
        )
        return [order.kind for order in waiting]

    async def finished(self, *runs: int) -> None:
        """Places what waits and lets these runs succeed."""
        await self.turn("assign")
        for run in runs:
            await self.report(self.key(run), outcome())

    def key(self, run: int) -> AttemptKey:
        """The newest attempt that was sent for a run."""
        return [order.key for _, order in self.orders.starts if order.key.run_id == run][-1]

    async def state(self, run: int) -> str:
        return str((await self.run(run))["state"])

    async def run(self, run: int) -> dict[str, Any]:
        return (await self.sql("SELECT *, state::text AS state FROM scheduler.job_runs WHERE id = %(id)s", id=run))[0]

    async def events(self, run: int) -> list[str]:
        rows = await self.sql("SELECT type FROM scheduler.run_events WHERE run_id = %(id)s ORDER BY at, rank", id=run)
        return [row["type"] for row in rows]

    def now(self) -> datetime:
        return self.time.now()


class SlowPace(Pace):
    """The longest bound that the leader gives a transaction; with `production_bounds`, what it comes to by itself on a loaded machine."""

    def __init__(self) -> None:
        super().__init__(sessions.FENCED_MOST_MS)

    def ended_after(self, seconds: float) -> None:
        """One quick transaction says nothing about the next one."""


@pytest.fixture(autouse=True)
def quick_searches(monkeypatch: pytest.MonkeyPatch) -> None:
    """However busy the machine, each turn searches the whole queue."""
    monkeypatch.setattr(search_pace, "QUICK_SECONDS", math.inf)


@pytest.fixture
async def world(pool: Pool, pg_url: str) -> AsyncIterator[World]:
    pool.group.pace = SlowPace()
    administrator = await kept_pool(pg_url)
    made = World(pool, await take_term(pool, 1), administrator=administrator)
    yield made
    await made.sender.close()
    await administrator.close()


@pytest.fixture
def new_term(pool: Pool) -> Callable[[int], Any]:
    """Takes over the leader row: `await new_term(2)`."""
    return lambda counter: take_term(pool, counter)


def job(name: str = "hello", **spec: Any) -> dict[str, Any]:
    """A manifest of a job."""
    steps = {"steps": [{"id": "run", "type": "command", "argv": ["/bin/true"]}]}
    return {"apiVersion": "toban/v1", "kind": "Job", "metadata": {"name": name}, "spec": {**steps, **spec}}


def schedule(name: str = "often", job: str = "hello", **spec: Any) -> dict[str, Any]:
    """A manifest of a schedule."""
    rule = {} if {"cron", "every_n_minutes"} & set(spec) else {"interval_seconds": 10}
    return {
        "apiVersion": "toban/v1",
        "kind": "Schedule",
        "metadata": {"name": name},
        "spec": {"job": job, **rule, **spec},
    }


def outcome(kind: str = "SUCCEEDED", at: datetime | None = None, **fields: Any) -> Outcome:
    """An outcome that has just happened."""
    now = at or datetime.now(UTC)  # noqa: TID251
    reason = {"FAILED": Reason.EXIT_CODE, "TIMED_OUT": Reason.TIMEOUT, "CANCELED": Reason.CANCELED}.get(
        kind, Reason.NONE
    )
    given = {"reason": reason, "exit_code": 0 if kind == "SUCCEEDED" else 1, "started_at": now, **fields}
    given["reason"] = Reason(given["reason"])
    return Outcome(kind=OutcomeKind(kind), finished_at=now, **given)


@pytest.fixture
def make() -> Any:
    """The makers of manifests and outcomes: `make.job(...)`, `make.schedule(...)`, `make.outcome(...)`."""

    class Make:
        pass

    Make.job = staticmethod(job)  # type: ignore[attr-defined]
    Make.schedule = staticmethod(schedule)  # type: ignore[attr-defined]
    Make.outcome = staticmethod(outcome)  # type: ignore[attr-defined]
    return Make
