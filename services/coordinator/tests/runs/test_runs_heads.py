"""Starts look a definition up once; a change of it in between is seen by the write itself."""

from typing import Any

import pytest

from toban_coordinator.loops.payloads import Payloads
from toban_coordinator.server.start_runs import StartRuns
from toban_domain.errors import ErrorCode, TobanError
from toban_proto.v1 import coordinator_pb2 as pb


@pytest.fixture
def service(world: Any) -> StartRuns:
    return StartRuns(pool=world.pool, definitions=world.definitions, payloads=Payloads(), desk=world.desk)


async def start(service: StartRuns, key: str = "") -> int:
    request = pb.StartRunsRequest(runs=[pb.StartRunRequest(job="hello", idempotency_key=key)])
    return int((await service.start(request, "tester")).runs[0].run_id)


@pytest.mark.parametrize("key", ["", "once"])
async def test_a_new_version_is_taken(world: Any, make: Any, service: StartRuns, key: str) -> None:
    await world.apply(make.job())
    first = await start(service)
    await world.apply(make.job(timeout_seconds=7))
    second = await start(service, key)
    versions = [(await world.run(run))["definition_version"] for run in (first, second)]
    assert versions == [1, 2]
    assert (await world.run(second))["timeout_seconds"] == 7


async def test_a_job_that_was_disabled_meanwhile_is_refused(world: Any, make: Any, service: StartRuns) -> None:
    await world.apply(make.job())
    await start(service)
    await world.apply(make.job(enabled=False))
    with pytest.raises(TobanError) as caught:
        await start(service)
    assert caught.value.code is ErrorCode.JOB_DISABLED
    assert len(await world.sql("SELECT 1 FROM scheduler.job_runs")) == 1
