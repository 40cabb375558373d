"""A new incarnation brings along what the one before had not told yet: its runs have ended and are not lost."""

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from toban_coordinator.app.executors.executor_sessions import ExecutorSessions
from toban_coordinator.app.runs.report_queue import ReportQueue
from toban_coordinator.decide.runs.report import Answer, Report
from toban_coordinator.server.executor_gateway import Gateway
from toban_coordinator.store.placement import queued_orders
from toban_domain.errors import ErrorCode, TobanError
from toban_proto.v1 import coordinator_pb2 as pb
from toban_runtime.ids import IdSource
from toban_store.tx import fenced_tx
from toban_transport.convert import key_to_pb, outcome_to_pb

# A call with the certificate of the default group.
EXECUTOR: Any = SimpleNamespace(
    auth_context=lambda: {"peer_spiffe_id": [b"spiffe://toban.internal/executor"]}, invocation_metadata=lambda: ()
)


class Watched(ReportQueue):
    """Reports of a gateway, with what was attested when they came; `error` is raised instead of a commit."""

    def __init__(self, world: Any, error: TobanError | None) -> None:
        super().__init__(pool=world.pool)
        self._world = world
        self._error = error
        self.attested: list[str] = []

    async def commit(self, incarnation: str, reports: Sequence[Report]) -> list[Answer]:
        self.attested += [row["attested_reason"] for row in await attested(self._world)]
        if self._error is not None:
            raise self._error
        return await super().commit(incarnation, reports)


async def attested(world: Any) -> list[dict[str, Any]]:
    return list(await world.sql("SELECT attested_reason FROM scheduler.executors ORDER BY worker_id LIMIT 1"))


async def follow(world: Any, before: str, reports: ReportQueue, *told: pb.AttemptReport) -> pb.RegisterResponse:
    """Registers the successor of an incarnation of executor e1."""

    async def no_settings() -> dict[str, float]:
        return {"heartbeat_interval_seconds": 2.0}

    sessions: Any = SimpleNamespace(
        pool=world.pool,
        reports=reports,
        settings=SimpleNamespace(get=no_settings),
        leader=SimpleNamespace(view=lambda: SimpleNamespace(epoch=world.term.epoch)),
        ids=IdSource(),
        clock=None,
    )
    request = pb.RegisterRequest(
        incarnation="00000000-0000-4000-8000-00000000000a",
        instance="e1",
        node_id="e1",
        boot_id="boot",
        grpc_host="h",
        grpc_port=1,
        slots=4,
        previous_incarnation=before,
        previous_verified_empty=True,
        reports=told,
    )
    signer = SimpleNamespace(sign=lambda proof: None)
    deps: Any = SimpleNamespace(sessions=ExecutorSessions(deps=sessions), signer=signer, verifier=None)
    return await Gateway(deps=deps).Register(request, EXECUTOR)


class Verified:
    """Takes every incarnation for what it says it is."""

    async def verified(self, _metadata: Any, incarnation: str, *, group: str) -> Any:
        return SimpleNamespace(incarnation=incarnation, group=group)


async def running(world: Any, make: Any) -> tuple[str, int]:
    """A run that an executor has; its incarnation and the run."""
    await world.apply(make.job())
    before = await world.executor(1)
    [run] = await world.start()
    await world.turn("assign")
    return before, run


async def test_what_has_ended_is_committed_before_the_death_is_attested(world: Any, make: Any) -> None:
    """Otherwise a leader that looks between the two takes the run for lost, and a run that has succeeded goes on elsewhere."""
    before, run = await running(world, make)
    reports = Watched(world, None)
    told = pb.AttemptReport(key=key_to_pb(world.key(run)), seq=2, outcome=outcome_to_pb(make.outcome()))
    assert (await follow(world, before, reports, told)).incarnation_key
    assert reports.attested == [""]
    assert await world.state(run) == "SUCCEEDED"
    [row] = await attested(world)
    assert row["attested_reason"] == "its successor found its processes gone"


@pytest.mark.parametrize("code", [ErrorCode.UNAVAILABLE, ErrorCode.INVALID_ARGUMENT])
async def test_nothing_is_attested_while_what_has_ended_is_not_committed(
    world: Any, make: Any, code: ErrorCode
) -> None:
    before, run = await running(world, make)
    told = pb.AttemptReport(key=key_to_pb(world.key(run)), seq=2, outcome=outcome_to_pb(make.outcome()))
    assert (await follow(world, before, Watched(world, TobanError(code, "not now")), told)).incarnation_key
    assert [row["attested_reason"] for row in await attested(world)] == [""]
    assert await world.state(run) == "ASSIGNED"


@pytest.mark.parametrize("defect", ["attempt key", "epoch_max"])
async def test_results_of_orders_are_stored_although_the_heartbeat_is_refused(
    world: Any, make: Any, defect: str
) -> None:
    incarnation, run = await running(world, make)
    async with fenced_tx(world.pool, world.term) as t:
        await queued_orders.queue(t, incarnation=incarnation, kind="revoke", serial=1, orders=[(world.key(run), {})])
    [order] = await world.sql("SELECT id FROM scheduler.executor_orders")
    request = pb.HeartbeatRequest(
        incarnation=incarnation, order_outcomes=[pb.OrderOutcome(order_id=order["id"], result="gone")]
    )
    if defect == "epoch_max":
        request.epoch_max = -1
    else:
        request.held.add()
    deps: Any = SimpleNamespace(pool=world.pool, reports=None, server_time=world, clock=None)
    gateway: Any = SimpleNamespace(sessions=ExecutorSessions(deps=deps), keys=Verified(), verifier=None)
    with pytest.raises(TobanError, match=defect) as refused:
        await Gateway(deps=gateway).Heartbeat(request, EXECUTOR)
    assert refused.value.code is ErrorCode.INVALID_ARGUMENT
    [stored] = await world.sql("SELECT result, done_at IS NOT NULL AS done FROM scheduler.executor_orders")
    assert stored == {"result": "gone", "done": True}
