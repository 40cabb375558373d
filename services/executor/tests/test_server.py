"""The executor as a process: orders over mTLS, outcomes, output, environment."""

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest

from toban_proto.v1 import common_pb2, coordinator_pb2, executor_pb2
from toban_testing.admin_port import ask

OK = common_pb2.OUTCOME_KIND_SUCCEEDED
FAILED = common_pb2.OUTCOME_KIND_FAILED


@pytest.fixture
def world(shared_world: Any) -> Any:
    return shared_world


def key(world: Any, number: int) -> Any:
    run, token = world.key(number)
    return common_pb2.AttemptKey(run_id=run, token=token)


@pytest.mark.seed(7)
async def test_runs_jobs_and_reports_outcomes_and_output(world: Any) -> None:
    results = await world.start(
        world.order(1, "/bin/echo", "hello"),
        world.order(2, "sh", "-c", "echo to err >&2; exit 3"),
        world.order(3, "no-such-program"),
    )
    assert [(result.accepted, result.refusal) for result in results] == [(True, "")] * 3
    good, bad, missing = [await world.outcome(number) for number in (1, 2, 3)]
    assert (good.kind, good.exit_code, good.last_line, good.last_seq, good.tree_empty) == (OK, 0, "hello", 1, True)
    assert (bad.kind, bad.exit_code, bad.reason, bad.error_summary) == (FAILED, 3, "exit_code", "exit code 3")
    assert (missing.kind, missing.reason, missing.HasField("started_at")) == (FAILED, "spawn_failed", False)
    assert missing.error_summary.startswith("program 'no-such-program' not found in PATH /usr/local/sbin:")
    await world.until(lambda: world.archiver.seals.get(world.key(2)) == 1)
    await world.until(lambda: world.archiver.text(world.key(1)) == [b"hello"])
    assert world.archiver.text(world.key(2)) == [b"to err"]
    assert set(world.archiver.tickets) == {b"ticket-1", b"ticket-2"}


async def test_a_start_is_reported_before_its_outcome(world: Any, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    await world.start(world.order(1, "cat", str(gate)))
    await world.until(lambda: any(report.HasField("started") for report in world.coordinator.reports))
    started = world.coordinator.reports[0]
    assert (started.key.run_id, started.seq, started.pid > 0) == (1, 1, True)
    held = await world.until(lambda: world.coordinator.beats[-1].held)
    assert (held[0].key.run_id, held[0].state) == (1, common_pb2.ATTEMPT_STATE_RUNNING)
    gate.write_text("done\n")
    assert (await world.outcome(1)).kind == OK


async def test_the_same_order_twice_runs_once(world: Any, tmp_path: Path) -> None:
    file = tmp_path / "count"
    one = world.order(1, "sh", "-c", f"echo x >> {file}")
    twice = await world.start(one, one)
    again = await world.start(one)
    await world.outcome(1)
    after = await world.start(one)
    assert [result.accepted for result in (*twice, *again, *after)] == [True] * 4
    assert after[0].state == common_pb2.ATTEMPT_STATE_FINISHED
    await world.start(world.order(2, "true"))
    await world.outcome(2)
    assert file.read_text() == "x\n"


async def test_refusals_leave_tombstones(world: Any) -> None:
    many = [world.order(number, "sleep", "30") for number in range(1, 6)]
    results = await world.start(*many)
    assert [result.refusal for result in results] == ["", "", "", "", "NO_SLOT"]
    await cancel(world, 1, 2, 3, 4)
    for number in (1, 2, 3, 4):
        await world.outcome(number)
    assert [result.refusal for result in await world.start(many[4])] == ["TOMBSTONE"]
    old = await world.start(world.order(6, "true"), smallest_live=world.key(9)[1])
    assert old[0].refusal == "TOKEN_TOO_OLD"
    step = executor_pb2.Step(type="http", argv=["x"])
    assert (await world.start(world.order(10, steps=[step])))[0].refusal == "UNSUPPORTED_STEP"
    shell = await world.start(world.order(11, "sh", "-c", "true", allow_shell=False))
    assert (shell[0].refusal, "allow_shell" in shell[0].message) == ("PROGRAM_NOT_ALLOWED", True)


@pytest.mark.seed(30)
async def test_stale_epochs_serials_and_other_incarnations(world: Any) -> None:
    async def try_it(**header: Any) -> str:
        results = await world.start(world.order(50, "true"), header=world.header(**header))
        return str(results[0].refusal)

    epoch = world.coordinator.epoch
    assert await try_it(epoch=epoch - (1 << 27)) == "STALE_EPOCH"
    assert await try_it(incarnation="another") == "WRONG_INCARNATION"
    newer = epoch + (1 << 27)
    assert (await world.start(world.order(51, "true"), header=world.header(epoch=newer, serial=7)))[0].accepted
    assert await try_it(epoch=newer, serial=7) == "STALE_EPOCH"
    assert await try_it(epoch=epoch, serial=1000) == "STALE_EPOCH"
    revoke = executor_pb2.RevokeRequest(header=world.header(epoch=epoch, serial=1001), keys=[key(world, 52)])
    assert (await world.worker.Revoke(revoke, timeout=60)).results[0].result == "STALE_EPOCH"
    # Refused for its header alone: no tombstone, so the new leader may send it.
    assert (await world.start(world.order(50, "true"), header=world.header(epoch=newer, serial=8)))[0].accepted
    ping = await world.worker.Ping(executor_pb2.PingRequest(), timeout=60)
    assert ping.epoch_max == newer


async def cancel(world: Any, *numbers: int, mode: str = "kill", grace: float = 1.0) -> list[str]:
    orders = [
        executor_pb2.CancelOrder(key=key(world, number), mode=mode, grace_seconds=grace, reason="why")
        for number in numbers
    ]
    request = executor_pb2.CancelJobRequest(header=world.header(), orders=orders)
    return [result.result for result in (await world.worker.CancelJob(request, timeout=60)).results]


@pytest.mark.seed(22, 162)
async def test_cancel(world: Any, tmp_path: Path) -> None:
    deaf = tmp_path / "deaf"
    script = f"trap '' TERM; echo > {deaf}; while :; do sleep 0.05; done"
    await world.start(world.order(1, "sleep", "60"), world.order(2, "sh", "-c", script))
    await world.until(deaf.exists)
    assert await cancel(world, 1, 2, 3, grace=0.3) == ["cancelling", "cancelling", "unknown"]
    first, second = await world.outcome(1), await world.outcome(2)
    assert (first.kind, first.signal, first.error_summary) == (common_pb2.OUTCOME_KIND_CANCELED, 15, "why")
    assert (second.kind, second.signal, second.reason) == (common_pb2.OUTCOME_KIND_CANCELED, 9, "canceled")
    assert await cancel(world, 1) == ["finished"]


async def test_revoke(world: Any) -> None:
    await world.start(world.order(1, "sleep", "60"), world.order(2, "true"))
    await world.outcome(2)
    request = executor_pb2.RevokeRequest(header=world.header(), keys=[key(world, 1), key(world, 2), key(world, 3)])
    results = [result.result for result in (await world.worker.Revoke(request, timeout=60)).results]
    assert results == ["running", "finished", "gone"]
    assert (await world.start(world.order(3, "true")))[0].refusal == "TOMBSTONE"
    await cancel(world, 1)


@pytest.mark.seed(74)
async def test_a_row_that_drains_takes_no_work(world: Any) -> None:
    world.coordinator.state = "draining"
    await world.until(lambda: "executor state" in world.executor.log())
    assert (await world.start(world.order(1, "true")))[0].refusal == "DRAINING"
    world.coordinator.state = "on"
    await world.until(lambda: world.executor.log().count("executor state changed") == 2)
    assert (await world.start(world.order(2, "true")))[0].accepted


@pytest.mark.seed(47, 93, 95, 128, 150)
async def test_timeout_and_steps(world: Any) -> None:
    # As a coordinator of the release before sends them.
    steps = [
        executor_pb2.Step(type="command", argv=["echo", "one"]),
        executor_pb2.Step(type="command", argv=["false"]),
        executor_pb2.Step(type="command", argv=["echo", "three"]),
    ]
    await world.start(world.order(1, "sleep", "60", timeout_seconds=1), world.order(2, steps=steps))
    late, failed = await world.outcome(1), await world.outcome(2)
    assert (late.kind, late.reason) == (common_pb2.OUTCOME_KIND_TIMED_OUT, "timeout")
    assert (failed.error_summary, failed.last_line) == ("step 2 of 3: exit code 1", "one")
    assert not failed.error_lines, "the step that failed wrote nothing"


async def test_what_a_failed_attempt_says_of_its_error(world: Any) -> None:
    script = "echo begun; echo 'no such table: $TOKEN' >&2; echo more >&2; echo end; exit 3"
    broken = world.order(1, "sh", "-c", script)
    await world.start(broken, world.order(2, "sh", "-c", "echo warned >&2; echo done"))
    failed, good = await world.outcome(1), await world.outcome(2)
    assert failed.last_line == "more" and [line.text for line in failed.error_lines] == [
        "no such table: $TOKEN",
        "more",
    ]
    numbers = [line.seq for line in failed.error_lines]
    assert numbers == sorted(numbers) and set(numbers) <= {1, 2, 3, 4}
    assert not good.error_lines and good.last_line in ("warned", "done")


@pytest.mark.seed(42)
async def test_the_environment_of_a_job(world: Any) -> None:
    one = world.order(
        1, "env", env={"MINE": "1", "TOBAN_FENCE": "forged"}, payload_json='{"name": "x y", "n": 3, "on": true, "l": [1], "a-b": 1}',
        attempt=2, traceparent="00-aa-bb-01", timeout_seconds=60,
    )  # fmt: skip
    one.slot.FromJsonString("2026-11-21T10:00:00Z")
    await world.start(one, world.order(2, "env"))
    await world.outcome(1)
    await world.until(lambda: world.key(1) in world.archiver.seals and world.key(2) in world.archiver.seals)
    lines = [line.decode().split("=", 1) for line in world.archiver.text(world.key(1))]
    env = dict(lines)
    assert env.pop("TOBAN_DEADLINE").startswith("20")
    assert env.pop("TOBAN_PAYLOAD_FILE").endswith(".json")
    assert env.pop("TOBAN_SOCKET").endswith(".sock")
    assert env == {
        "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        "HOME": str(Path.home()),
        "LANG": "C.UTF-8",
        "MINE": "1",
        "TOBAN_PARAM_NAME": "x y",
        "TOBAN_PARAM_N": "3",
        "TOBAN_PARAM_ON": "true",
        "TOBAN_FENCE": str(world.key(1)[1]),
        "TOBAN_RUN_ID": "1",
        "TOBAN_ATTEMPT": "2",
        "TOBAN_SLOT": "2026-11-21T10:00:00+00:00",
        "TOBAN_INCARNATION": world.coordinator.registered[-1].incarnation,
        "TOBAN_LEASE_FD": "3",
        "TRACEPARENT": "00-aa-bb-01",
    }
    plain = dict(line.decode().split("=", 1) for line in world.archiver.text(world.key(2)))
    assert (plain["TOBAN_SLOT"], plain["TOBAN_DEADLINE"], "TRACEPARENT" in plain) == ("", "", False)


async def test_orders_relayed_by_heartbeats(world: Any) -> None:
    await world.start(world.order(1, "sleep", "60"))
    header = world.header()
    await world.start(world.order(2, "true"))
    orders = [executor_pb2.CancelOrder(key=key(world, 1), mode="kill", grace_seconds=1, reason="relayed")]
    relayed = executor_pb2.CancelJobRequest(header=header, orders=orders)
    revoke = executor_pb2.RevokeRequest(header=header, keys=[key(world, 3)])
    world.coordinator.open_orders = [
        coordinator_pb2.OpenOrder(order_id=11, cancel=relayed),
        coordinator_pb2.OpenOrder(order_id=12, revoke=revoke),
    ]
    assert (await world.outcome(1)).error_summary == "relayed"
    beats = world.coordinator.beats
    found = await world.until(lambda: [item for beat in beats for item in beat.order_outcomes])
    assert {(item.order_id, item.result) for item in found} == {(11, "cancelling"), (12, "gone")}


async def test_attempts_that_the_cluster_does_not_hold_are_ended(world: Any) -> None:
    await world.start(world.order(1, "sleep", "60"))
    world.coordinator.not_held = [key(world, 1), key(world, 99)]
    outcome = await world.outcome(1)
    assert (outcome.kind, outcome.reason) == (FAILED, "lease_lost")


@pytest.mark.seed(7)
async def test_only_a_coordinator_may_order(world: Any) -> None:
    import grpc

    from toban_proto.v1.executor_pb2_grpc import WorkerServiceStub
    from toban_transport.channel import ChannelPool
    from toban_transport.tls import TlsFiles

    pool = ChannelPool(tls=TlsFiles(world.tls / "executor"), trust_domain="toban.internal")
    stub: Any = WorkerServiceStub(pool.get(world.executor.address, "executor"))
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await stub.Ping(executor_pb2.PingRequest(), timeout=60)
    assert caught.value.code() is grpc.StatusCode.PERMISSION_DENIED
    await pool.close()


async def test_the_admin_port(world: Any) -> None:
    import json

    port = json.loads(world.executor.ready.read_text())["admin_port"]

    async def get(path: str) -> tuple[int, str]:
        return await asyncio.to_thread(ask, f"127.0.0.1:{port}", path)

    assert await get("/readyz") == (200, "ok\n")
    _, found = await get("/metrics")
    assert "toban_executor_slots 4.0" in found
    assert "toban_executor_lease_left_seconds" in found


async def test_three_hundred_jobs_under_a_live_grpc_server_and_none_is_lost(world: Any) -> None:
    """Guards are started before gRPC is loaded: no child is ever forked from a process with gRPC's threads."""
    waiting = list(range(1, 301))
    live: set[int] = set()
    while waiting or live:
        free = 4 - len(live)
        batch, waiting = waiting[:free], waiting[free:]
        if batch:
            results = await world.start(*(world.order(number, "/bin/true") for number in batch))
            refused = [number for number, result in zip(batch, results, strict=True) if not result.accepted]
            live |= set(batch) - set(refused)
            waiting = [number + 1000 for number in refused] + waiting
        live -= {number for number, _token in world.coordinator.outcomes}
        await asyncio.sleep(0.001)
    outcomes = world.coordinator.outcomes.values()
    assert len(outcomes) >= 300
    assert {outcome.kind for outcome in outcomes} == {OK}
