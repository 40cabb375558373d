"""A whole coordinator over real servers and mTLS: what an executor, a peer and an operator get from it."""

import asyncio
import json
from contextlib import suppress

import psycopg
import pytest
import redis.asyncio

from toban_coordinator.config import CoordinatorConfig
from toban_coordinator.main.run import run
from toban_domain.errors import ErrorCode, TobanError
from toban_proto.v1 import coordinator_pb2 as pb
from toban_proto.v1 import coordinator_pb2_grpc as rpc
from toban_proto.v1 import executor_pb2 as worker
from toban_proto.v1.common_pb2 import ATTEMPT_STATE_FINISHED, ATTEMPT_STATE_RUNNING, AttemptKey
from toban_runtime.clock import SystemClock
from toban_runtime.ids import IdSource
from toban_runtime.lifecycle import Stop
from toban_testing.admin_port import token_file
from toban_testing.coordinator_calls import health, registration
from toban_testing.waiting import until_async
from toban_transport.channel import ChannelPool
from toban_transport.client_calls import stream
from toban_transport.tls import TlsFiles

DOMAIN = "toban.internal"
CLOCK = SystemClock()
IDS = IdSource()


async def test_register_and_heartbeat(call, executor, pg_url, process):
    incarnation, metadata, registered = executor
    assert (registered.lease_ms, registered.lease_margin_ms) == (10_000, 300)
    assert len(registered.incarnation_key) == 64
    said = ((1, 2, ATTEMPT_STATE_RUNNING), (3, 4, ATTEMPT_STATE_FINISHED))
    held = [worker.HeldAttempt(key=AttemptKey(run_id=run, token=token), state=state) for run, token, state in said]
    beat = pb.HeartbeatRequest(incarnation=incarnation, held=held, free_slots=4)
    answer = await call("executor", rpc.ExecutorGatewayStub, "Heartbeat", beat, metadata)
    assert (answer.granted, answer.grant_seq, answer.state, answer.epoch > 1 << 51) == (True, 1, "on", True)
    assert list(answer.coordinators) == [answer.leader_address] == [f"127.0.0.1:{process['grpc_port']}"]
    assert [(key.run_id, key.token) for key in answer.not_held] == [(1, 2)]
    for left, attests in ((held, False), ([], True)):
        last = pb.HeartbeatRequest(incarnation=incarnation, held=left, stopped=True)
        answer = await call("executor", rpc.ExecutorGatewayStub, "Heartbeat", last, metadata)
        assert (answer.granted, answer.grant_seq) == (False, 0), "the last word moves no row"
        with psycopg.connect(pg_url) as connection:
            assert connection.execute("SELECT attested_reason <> '' FROM scheduler.executors").fetchall() == [
                (attests,)
            ]


@pytest.mark.seed(6, 67, 92)
async def test_redis_shows_a_worker_and_the_run_that_it_executes(call, executor, redis_url):
    incarnation, metadata, registered = executor
    key = f"scheduler:worker:{registered.worker_id}"

    async def beat_until(current, held):
        beat = pb.HeartbeatRequest(incarnation=incarnation, held=held, free_slots=4)
        await call("executor", rpc.ExecutorGatewayStub, "Heartbeat", beat, metadata)
        return await until_async(lambda: client.hgetall(key), lambda shown: shown.get("current_job_run_id") == current)

    async with redis.asyncio.Redis.from_url(redis_url, decode_responses=True) as client:
        running = worker.HeldAttempt(key=AttemptKey(run_id=7, token=8), state=ATTEMPT_STATE_RUNNING)
        shown = await beat_until("7", [running])
        fields = {"node_id", "pid", "grpc_host", "grpc_port", "role", "last_heartbeat_ts", "load", "detached"}
        assert fields <= set(shown) and (shown["role"], shown["detached"]) == ("worker", "0")
        await beat_until("", [])


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ("no metadata", ErrorCode.INVALID_ARGUMENT),
        ("wrong key", ErrorCode.UNAUTHENTICATED),
        ("other incarnation", ErrorCode.WRONG_INCARNATION),
        ("unknown", ErrorCode.INCARNATION_UNKNOWN),
    ],
)
async def test_a_heartbeat_needs_the_key_of_its_incarnation(call, executor, change, code):
    incarnation, metadata, answer = executor
    claimed = incarnation
    if change == "no metadata":
        metadata = ()
    elif change == "wrong key":
        metadata = (("toban-incarnation", incarnation), ("toban-incarnation-key", answer.incarnation_key[:-1] + "x"))
    elif change == "other incarnation":
        claimed = IDS.uuid()
    else:
        claimed = IDS.uuid()
        metadata = (("toban-incarnation", claimed), ("toban-incarnation-key", answer.incarnation_key))
    with pytest.raises(TobanError) as caught:
        request = pb.HeartbeatRequest(incarnation=claimed)
        await call("executor", rpc.ExecutorGatewayStub, "Heartbeat", request, metadata)
    assert caught.value.code is code


async def test_registering_twice_is_refused(call, executor):
    with pytest.raises(TobanError) as caught:
        await call("executor", rpc.ExecutorGatewayStub, "Register", registration(incarnation=executor[0]))
    assert caught.value.code is ErrorCode.ALREADY_EXISTS


@pytest.mark.parametrize(
    "change", [{"incarnation": "x"}, {"slots": -1}, {"grpc_port": 70_000}, {"instance": ""}, {"epoch_max": -1}]
)
async def test_a_registration_that_makes_no_sense_is_refused(call, change):
    with pytest.raises(TobanError) as caught:
        await call("executor", rpc.ExecutorGatewayStub, "Register", registration(**change))
    assert caught.value.code is ErrorCode.INVALID_ARGUMENT


async def test_a_storm_of_reads_does_not_make_heartbeats_wait(call, executor, pg_url, at_most):
    """Every connection of the common pool waits for a locked table; grants go on."""
    incarnation, metadata, _answer = executor
    async with await psycopg.AsyncConnection.connect(pg_url) as connection:
        await connection.execute("LOCK TABLE scheduler.job_definitions IN ACCESS EXCLUSIVE MODE")
        reads = [
            asyncio.create_task(call("admin-cli", rpc.JobReaderStub, "ListJobs", pb.ListJobsRequest()))
            for _ in range(80)
        ]
        await asyncio.sleep(0.2)
        took = []
        for echo in range(3):
            begun = asyncio.get_running_loop().time()
            beat = pb.HeartbeatRequest(incarnation=incarnation, echo=echo, free_slots=4)
            assert (await call("executor", rpc.ExecutorGatewayStub, "Heartbeat", beat, metadata)).granted
            took.append(asyncio.get_running_loop().time() - begun)
        assert min(took) < at_most(1.0), "one that waits for the common pool waits until the reads give up"
        assert not any(read.done() for read in reads)
    await asyncio.gather(*reads, return_exceptions=True)


async def test_a_question_about_continuation_is_answered_with_a_grant_for_what_is_held(call, executor, pg_url):
    incarnation, metadata, _answer = executor
    with psycopg.connect(pg_url, autocommit=True) as connection:
        [(run,)] = connection.execute(
            "INSERT INTO scheduler.runs_live (definition_id, definition_version, job_name, origin, scheduled_for, state, token, log_day,"
            " assigned_incarnation, assigned_worker_id, dispatched_at, started_at)"
            " VALUES (1, 1, 'j', 'demand', now(), 'RUNNING', 71, current_date, %s, 1, now(), now()) RETURNING id",
            (incarnation,),
        ).fetchall()
    beat = pb.HeartbeatRequest(incarnation=incarnation, echo=0)
    granted = await call("executor", rpc.ExecutorGatewayStub, "Heartbeat", beat, metadata)
    nonce, echo = granted.nonce, granted.grant_seq
    for token, confirmed in ((71, True), (71, True), (70, False)):
        keys = [AttemptKey(run_id=run, token=token)]
        question = pb.ConfirmContinuationRequest(incarnation=incarnation, echo=echo, nonce=nonce, keys=keys)
        found = await call("executor", rpc.ExecutorGatewayStub, "ConfirmContinuation", question, metadata)
        assert (found.confirmed, found.HasField("signed_epoch")) == (confirmed, confirmed)
        assert [item.reason for item in found.refused] == ([] if confirmed else ["not_held"])
        nonce, echo = found.nonce or nonce, found.grant_seq


async def test_the_archive_asks_which_attempts_have_ended(call):
    keys = [AttemptKey(run_id=1, token=2)]
    request = pb.ListSealedRequest(log_day="2026-01-01", keys=keys, off_seconds=60)
    (found,) = (await call("log-archiver", rpc.ArchiveGatewayStub, "ListSealed", request)).attempts
    assert (found.key, found.complete) == (keys[0], False), "nobody here knows it any more"
    for wrong in (pb.ListSealedRequest(log_day="today"), pb.ListSealedRequest(log_day="2026-01-01", keys=keys * 1001)):
        with pytest.raises(TobanError) as caught:
            await call("log-archiver", rpc.ArchiveGatewayStub, "ListSealed", wrong)
        assert caught.value.code is ErrorCode.INVALID_ARGUMENT


async def test_peers_hear_who_leads(call, process):
    status = await until_async(
        lambda: call("coordinator", rpc.PeerStub, "GetStatus", pb.PeerStatusRequest()), lambda found: found.ticking
    )
    assert status.role == "leader"
    assert (await call("coordinator", rpc.PeerStub, "Ping", pb.PeerPingRequest())).incarnation == status.incarnation
    stub = rpc.PeerStub(call.pools["coordinator"].get(f"127.0.0.1:{process['grpc_port']}", "coordinator"))
    beats = []
    async for message in stream(stub.Watch, pb.PeerWatchRequest(), timeout=60):
        beats.append(message)
        if len(beats) == 2:
            break
    assert all(message.leading and message.epoch == status.epoch for message in beats)
    assert beats[-1].beat > beats[0].beat


@pytest.mark.seed(187)
async def test_health_and_metrics(process):
    document = await health(process)
    assert document["checks"]["coordinator"]["value"] == f"127.0.0.1:{process['grpc_port']}"
    assert document["status"] in ("ok", "warning")
    assert document["checks"]["postgresql"]["status"] == "ok"
    text = await health(process, "/metrics")
    for name in ("toban_is_leader 1.0", "toban_takeovers_total", "toban_grants_total", "toban_fences_total"):
        assert name in text
    assert "ok" in await health(process, "/livez")


@pytest.fixture
async def watched(process, tls):
    """`await watched(service, stub, metadata)` opens a stream of settings; `await anext(...)` is its next message."""
    pools, streams = [], []

    async def open_stream(service, stub, metadata=()):
        pool = ChannelPool(tls=TlsFiles(tls / service), trust_domain=DOMAIN)
        pools.append(pool)
        method = stub(pool.get(f"127.0.0.1:{process['grpc_port']}", "coordinator")).WatchSettings
        streams.append(stream(method, pb.WatchSettingsRequest(), timeout=30.0, metadata=metadata))
        return streams[-1]

    yield open_stream
    for one in streams:
        await one.aclose()
    for pool in pools:
        await pool.close()


async def test_a_changed_setting_reaches_every_stream_within_two_seconds(call, executor, watched, at_most):
    incarnation, metadata, _answer = executor
    streams = [
        await watched("executor", rpc.ExecutorGatewayStub, metadata),
        await watched("log-archiver", rpc.ArchiveGatewayStub),
    ]
    first = [await anext(one) for one in streams]
    assert [(one.version, one.values_json["heartbeat_interval_seconds"]) for one in first] == [(0, "1.0")] * 2
    change = pb.UpdateSettingRequest(name="heartbeat_interval_seconds", value_json="0.5")
    assert (await call("admin-cli", rpc.OperationsStub, "UpdateSetting", change)).version == 1
    async with asyncio.timeout(at_most(2)):
        second = [await anext(one) for one in streams]
    assert [(one.version, one.values_json["heartbeat_interval_seconds"]) for one in second] == [(1, "0.5")] * 2
    beat = pb.HeartbeatRequest(incarnation=incarnation, free_slots=4)
    assert (await call("executor", rpc.ExecutorGatewayStub, "Heartbeat", beat, metadata)).settings_version == 1
    later = await call("executor", rpc.ExecutorGatewayStub, "Register", registration())
    assert later.heartbeat_interval_seconds == 0.5


async def test_a_stream_of_settings_needs_the_key_too(executor, watched):
    metadata = (executor[1][0], ("toban-incarnation-key", "0" * 64))
    with pytest.raises(TobanError) as caught:
        await anext(await watched("executor", rpc.ExecutorGatewayStub, metadata))
    assert caught.value.code is ErrorCode.UNAUTHENTICATED


@pytest.mark.seed(62, 87)
async def test_an_executor_that_says_no_slots_gets_those_of_the_setting(call, executor, pg_url):
    assert executor[2].max_jobs_per_worker == 0, "it has said four"
    change = pb.UpdateSettingRequest(name="max_jobs_per_worker", value_json="7")
    await call("admin-cli", rpc.OperationsStub, "UpdateSetting", change)
    await until_async(
        lambda: call("executor", rpc.ExecutorGatewayStub, "Register", registration(slots=0)),
        lambda answer: answer.max_jobs_per_worker == 7,
    )

    async def registered(request):
        """What the answer says, and what the row says."""
        told = (await call("executor", rpc.ExecutorGatewayStub, "Register", request)).max_jobs_per_worker
        cursor = await connection.execute(
            "SELECT slots FROM scheduler.executors WHERE incarnation = %s", (request.incarnation,)
        )
        return told, (await cursor.fetchone())[0]

    async with await psycopg.AsyncConnection.connect(pg_url, autocommit=True) as connection:
        assert await registered(registration(slots=0)) == (7, 7)
        assert await registered(registration(slots=0, most_slots=5, ready_slots=3)) == (5, 5)
        await connection.execute("UPDATE scheduler.settings SET value = '99999' WHERE name = 'max_jobs_per_worker'")
        assert await registered(registration(slots=0, most_slots=50, ready_slots=3)) == (0, 3), "it keeps what it has"


async def test_actions_are_counted_by_outcome(call, process):
    for value in ("40", "x", "-1"):
        change = pb.UpdateSettingRequest(name="assign_ahead_seconds", value_json=value)
        try:
            await call("admin-cli", rpc.OperationsStub, "UpdateSetting", change)
        except TobanError as error:
            assert error.code is ErrorCode.INVALID_ARGUMENT
    text = await health(process, "/metrics")
    assert 'toban_admin_actions_total{action="update_setting",outcome="ok"}' in text
    assert 'toban_admin_actions_total{action="update_setting",outcome="INVALID_ARGUMENT"}' in text
    assert "toban_settings_version " in text
    [entry] = (await call("admin-cli", rpc.OperationsStub, "ListAudit", pb.ListAuditRequest())).entries
    assert (entry.actor, entry.action) == ("certificate admin-cli", "update_setting")


@pytest.mark.seed(185)
async def test_health_says_what_was_fired_last_and_how_much_fails(call, process, sql):
    checks = (await health(process))["checks"]
    assert checks["last_fire"]["value"] is None
    assert checks["errors_5_minutes"]["value"].keys() == {"rate", "errors", "of"}
    documents = [
        {
            "kind": "Job",
            "metadata": {"name": "j"},
            "spec": {"steps": [{"id": "s", "type": "command", "argv": ["true"]}]},
        },
        {"kind": "Schedule", "metadata": {"name": "s"}, "spec": {"job": "j", "interval_seconds": 1}},
    ]
    manifests = [pb.Manifest(json=json.dumps({"apiVersion": "toban/v1", **one})) for one in documents]
    await call("admin-cli", rpc.JobControlStub, "Apply", pb.ApplyRequest(manifests=manifests))
    shown = await until_async(lambda: health(process), lambda shown: shown["checks"]["last_fire"]["value"])
    found = shown["checks"]["last_fire"]["value"]
    await until_async(lambda: sql("SELECT 1 FROM scheduler.leader_beat WHERE last_fire_at >= %s", found))
    cluster = await call("admin-cli", rpc.JobReaderStub, "GetCluster", pb.GetClusterRequest())
    assert json.loads(cluster.health_json)["checks"]["last_fire"]["value"] >= found


@pytest.mark.seed(169)
@pytest.mark.usefixtures("production_bounds")
async def test_it_is_alive_and_not_ready_while_postgresql_has_never_been_there(redis_url, tls, free_port, tmp_path):
    stop, admin_port = Stop(), free_port
    config = CoordinatorConfig(
        database_url="postgresql://toban:x@127.0.0.1:1/toban",
        redis_url=redis_url,
        tls_dir=tls / "coordinator",
        admin_port=admin_port,
        admin_token_file=token_file(tmp_path),
        ready_file=tmp_path / "ready.json",
    )
    task = asyncio.create_task(run(config, stop, "test"))

    async def alive():
        with suppress(ConnectionRefusedError):
            return await health({"admin_port": admin_port}, "/livez")

    assert await until_async(alive) == "ok\n"
    assert await health({"admin_port": admin_port}, "/readyz") == "not ready: see /healthz\n"
    document = await health({"admin_port": admin_port})
    assert (document["status"], list(document["checks"])) == ("error", ["postgresql"])
    stop.request("test")
    await task
