"""Starts look a definition up once; a change of it in between is seen by the write itself."""

from typing import Any

import pytest
from cachetools import LRUCache

from toban_coordinator.app import payload_validator
from toban_coordinator.app.definition_cache import DefinitionCache
from toban_coordinator.app.large_payload import LargePayloads
from toban_coordinator.app.payload_validator import PayloadValidator
from toban_coordinator.app.runs.start_runs import RunRequest, StartRuns
from toban_domain.errors import ErrorCode, TobanError


@pytest.fixture
def service(world: Any) -> StartRuns:
    return StartRuns(
        pool=world.pool, definitions=world.definitions, payloads=PayloadValidator(), fast_path=world.fast_path
    )


async def start(service: StartRuns, key: str = "") -> int:
    [started] = await service.start([RunRequest(job="hello", idempotency_key=key)], "tester")
    return started.run_id


@pytest.mark.seed(135)
@pytest.mark.parametrize("key", ["", "once"])
async def test_a_new_version_is_taken(world: Any, make: Any, service: StartRuns, key: str) -> None:
    await world.apply(make.job())
    first = await start(service)
    await world.apply(make.job(timeout_seconds=7))
    second = await start(service, key)
    versions = [(await world.run(run))["definition_version"] for run in (first, second)]
    assert versions == [1, 2]
    assert (await world.run(second))["timeout_seconds"] == 7


@pytest.mark.seed(139)
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
    sent = [(order.key.run_id, order.steps[0].body["argv"][1]) for _, order in world.orders.starts]
    assert sorted(sent) == [(first, "old"), (first, "old"), (second, "new")]


async def test_a_start_is_refused_by_the_current_version_alone(world: Any, make: Any, service: StartRuns) -> None:
    """What is remembered of a job may be an earlier version, with another schema and with secrets that are gone."""

    def taking(kind: str) -> dict[str, Any]:
        return make.job(payload_schema={"properties": {"a": {"type": kind}}})

    given = RunRequest(job="hello", payload_json='{"a": "text"}')
    await world.apply(taking("integer"))
    await start(service)
    for _ in range(2):
        with pytest.raises(TobanError, match=r"payload\.a: "):
            await service.start([given], "tester")
    await world.apply(taking("string"))
    [run] = await service.start([given], "tester")
    assert (await world.run(run.run_id))["definition_version"] == 2
    await world.sql(
        "INSERT INTO scheduler.secrets (name, key_id, nonce, ciphertext, jobs, created_by, updated_by)"
        " VALUES ('db', '0123456789abcdef', decode(repeat('00', 12), 'hex'), decode(repeat('00', 17), 'hex'), '{}', 'x', 'x')"
    )
    await world.apply(make.job(secrets=[{"name": "db"}]))
    await start(service)
    await world.apply(make.job())
    await world.sql("DELETE FROM scheduler.secrets")
    assert (await world.run(await start(service)))["definition_version"] == 4


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


async def test_a_schema_that_refers_to_an_address_is_refused_at_apply(world: Any, make: Any) -> None:
    schema = {"properties": {"a": {"$ref": "http://127.0.0.1:9/a"}}}
    with pytest.raises(TobanError) as caught:
        await world.apply(make.job(payload_schema=schema))
    assert caught.value.code is ErrorCode.MANIFEST_INVALID
    assert "spec.payload_schema.properties.a.$ref: 'http://127.0.0.1:9/a' refers to" in caught.value.message
    assert "write that part into `$defs`" in caught.value.message


async def test_a_stored_schema_that_refers_to_an_address_refuses_its_starts(
    world: Any, make: Any, service: StartRuns
) -> None:
    await world.apply(make.job(payload_schema={"type": "object"}))
    await world.sql(
        "UPDATE scheduler.job_definition_versions SET spec = jsonb_set(spec, '{payload_schema}', '{\"$ref\": \"http://127.0.0.1:9/a\"}')"
    )
    with pytest.raises(TobanError, match=r"spec\.payload_schema\.\$ref") as caught:
        await start(service)
    assert caught.value.code is ErrorCode.MANIFEST_INVALID


async def test_a_large_check_is_done_outside_of_the_transaction(
    world: Any, make: Any, service: StartRuns, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its transaction would be ended after half a second."""
    monkeypatch.setattr(payload_validator, "CHECKED_HERE", 0)
    monkeypatch.setattr(payload_validator, "EXPLAINED_HERE", 0)
    monkeypatch.setattr(payload_validator, "PROCESS_WIDE", LargePayloads(limit_seconds=60))
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}}
    service = StartRuns(
        pool=world.pool, definitions=world.definitions, payloads=PayloadValidator(), fast_path=world.fast_path
    )
    await world.apply(make.job(payload_schema=schema), make.schedule(payload={"n": 3}))
    [started] = await service.start([RunRequest(job="hello", payload_json='{"n": 1}', idempotency_key="k")], "tester")
    assert (await world.run(started.run_id))["payload"] == {"n": 1}
    with pytest.raises(TobanError, match=r"payload\.n"):
        await service.start([RunRequest(job="hello", payload_json='{"n": "x"}')], "tester")
    await world.turn("fire")
    [slot, *_] = await world.sql("SELECT payload FROM scheduler.job_runs WHERE origin = 'slot'")
    assert slot["payload"] == {"n": 3}
