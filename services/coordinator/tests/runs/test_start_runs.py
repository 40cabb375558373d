"""Starts look a definition up once; a change of it in between is seen by the write itself."""

from typing import Any

import pytest
from cachetools import LRUCache

from toban_coordinator.app.definition_cache import DefinitionCache
from toban_coordinator.app.payload_validator import PayloadValidator
from toban_coordinator.app.start_runs import RunRequest, StartRuns
from toban_domain.errors import ErrorCode, TobanError


@pytest.fixture
def service(world: Any) -> StartRuns:
    return StartRuns(
        pool=world.pool, definitions=world.definitions, payloads=PayloadValidator(), fast_path=world.fast_path
    )


async def start(service: StartRuns, key: str = "") -> int:
    [started] = await service.start([RunRequest(job="hello", idempotency_key=key)], "tester")
    return started.run_id


@pytest.mark.parametrize("key", ["", "once"])
async def test_a_new_version_is_taken(world: Any, make: Any, service: StartRuns, key: str) -> None:
    await world.apply(make.job())
    first = await start(service)
    await world.apply(make.job(timeout_seconds=7))
    second = await start(service, key)
    versions = [(await world.run(run))["definition_version"] for run in (first, second)]
    assert versions == [1, 2]
    assert (await world.run(second))["timeout_seconds"] == 7


async def test_a_run_is_sent_as_the_version_that_it_was_made_from(world: Any, make: Any, service: StartRuns) -> None:
    def saying(word: str) -> dict[str, Any]:
        return make.job(steps=[{"argv": ["/bin/echo", word]}], retry={"max_retries": 1})

    await world.apply(saying("old"))
    first = await start(service)
    await world.apply(saying("new"))
    second = await start(service)
    await world.executor()
    await world.turn("assign")
    await world.report(world.key(first), make.outcome("FAILED"))
    await world.turn("assign")
    sent = [(order.key.run_id, order.steps[0].argv[1]) for _, order in world.orders.starts]
    assert sorted(sent) == [(first, "old"), (first, "old"), (second, "new")]


async def test_a_job_that_was_disabled_meanwhile_is_refused(world: Any, make: Any, service: StartRuns) -> None:
    await world.apply(make.job())
    await start(service)
    await world.apply(make.job(enabled=False))
    with pytest.raises(TobanError) as caught:
        await start(service)
    assert caught.value.code is ErrorCode.JOB_DISABLED
    assert len(await world.sql("SELECT 1 FROM scheduler.job_runs")) == 1


async def test_a_call_with_more_jobs_than_are_kept_finds_all_of_them(world: Any, make: Any) -> None:
    await world.apply(make.job("a"), make.job("b"))
    service = StartRuns(
        pool=world.pool,
        definitions=DefinitionCache(kept=1),
        payloads=PayloadValidator(),
        fast_path=world.fast_path,
        heads=LRUCache(1),
    )
    for names in (["a"], ["a", "b"], ["b", "a"]):
        started = await service.start([RunRequest(job=name) for name in names], "tester")
        assert [(await world.run(one.run_id))["job_name"] for one in started] == names
