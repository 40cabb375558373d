"""Jobs that speak on their sockets, over a real executor between a fake coordinator and a fake archiver."""

import json
import os
import signal
import sys
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from toban_proto.v1 import common_pb2, executor_pb2

SDK = str(Path(__file__).parents[3] / "libs/sdk/src")


@pytest.fixture
def world(shared_world: Any) -> Any:
    return shared_world


def python(script: str, **fields: Any) -> Any:
    """A step that runs this program."""
    argv = [sys.executable, "-c", f"import toban, time\njob = toban.current_job()\n{script}"]
    return executor_pb2.Step(type="command", body_json=json.dumps({"argv": argv}), **{"cancelable": True, **fields})


def order(world: Any, number: int, *steps: Any, **fields: Any) -> Any:
    return world.order(number, steps=list(steps), env={"PYTHONPATH": SDK}, **fields)


async def test_what_a_job_says_comes_with_heartbeats_and_with_its_outcome(world: Any) -> None:
    script = "job.progress(done=1, total=4); job.output([1]); job.log_ref('s3://b/k'); time.sleep(0.6)"
    await world.start(order(world, 1, python(script), python("raise SystemExit(3)"), result_expected=True))
    outcome = await world.outcome(1)
    assert (outcome.result_json, outcome.log_ref, outcome.result_expected) == ("[1]", "s3://b/k", True)
    assert [(step.index, step.exit_code) for step in outcome.steps] == [(0, 0), (1, 3)]
    held = [item for beat in world.coordinator.beats for item in beat.held]
    assert [len(item.steps) for item in held if item.steps][:1] == [1]
    said = [json.loads(item.progress_json) for item in held if item.progress_json]
    assert said[0]["steps"] == {"done": 1, "total": 4}


async def test_a_job_knows_its_run(world: Any) -> None:
    """Of a schedule, with a timeout and parameters of all types; then of a run on demand that has none of these."""
    script = "print(json.dumps([job.payload, job.run_id, job.attempt, job.fence, *map(str, (job.slot, job.deadline))]))"
    payload = {"name": "x é", "deep": {"n": 3, "on": True}, "none": None, "list": [1.5]}
    one = order(
        world, 1, python(f"import json\n{script}"), payload_json=json.dumps(payload), attempt=2, timeout_seconds=60
    )
    one.slot.FromJsonString("2026-11-21T10:00:00Z")
    await world.start(one, order(world, 2, python(f"import json\n{script}")))
    outcomes = [await world.outcome(number) for number in (1, 2)]
    assert [outcome.exit_code for outcome in outcomes] == [0, 0]
    await world.until(lambda: world.archiver.text(world.key(1)) and world.archiver.text(world.key(2)))
    *scheduled, deadline = json.loads(world.archiver.text(world.key(1))[0])
    assert scheduled == [payload, 1, 2, world.key(1)[1], "2026-11-21 10:00:00+00:00"]
    assert datetime.fromisoformat(deadline).tzinfo is not None
    assert json.loads(world.archiver.text(world.key(2))[0]) == [{}, 2, 1, world.key(2)[1], "None", "None"]


async def test_a_checkpoint_waits_for_coordinators_and_is_not_lost(world: Any) -> None:
    """None can store it at first. The job goes on only when one has."""
    world.coordinator.storing = False
    script = "print(job.checkpoint(), flush=True); job.save_checkpoint({'at': 2}); print('kept')"
    await world.start(order(world, 1, python(script), checkpoint_json='{"at":1}'))
    key = world.key(1)
    await world.until(lambda: world.archiver.text(key))
    assert world.archiver.text(key) == [b"{'at': 1}"]
    world.coordinator.storing = True
    assert (await world.outcome(1, 20)).exit_code == 0
    assert world.coordinator.checkpoints[key][-1] == '{"at":2}'


async def test_a_cooperative_cancel_reaches_the_job(world: Any) -> None:
    script = "print('go', flush=True)\nwhile True: job.stop_if_cancelled(); time.sleep(0.02)"
    await world.start(order(world, 1, python(script), grace_seconds=600.0))
    key = common_pb2.AttemptKey(run_id=1, token=world.key(1)[1])
    await world.until(lambda: world.archiver.text(world.key(1)))
    cancel = executor_pb2.CancelOrder(key=key, mode="cooperative", grace_seconds=600.0, reason="asked")
    request = executor_pb2.CancelJobRequest(header=world.header(), orders=[cancel])
    assert [one.result for one in (await world.worker.CancelJob(request, timeout=60)).results] == ["cancelling"]
    outcome = await world.outcome(1)
    assert (outcome.kind, outcome.exit_code, outcome.tree_empty) == (common_pb2.OUTCOME_KIND_CANCELED, 143, True)


async def test_what_a_job_said_outlives_an_executor_that_hangs_and_dies(own_world: Any, tmp_path: Path) -> None:
    """The job ends while its executor is stopped: the guard keeps the output for the next incarnation."""
    world = own_world
    end = tmp_path / "end"
    script = f"""
import os
print(os.getpid(), flush=True)
while not os.path.exists({str(end)!r}): time.sleep(0.02)
job.output({{'kept': True}})
"""
    await world.start(order(world, 1, python(script)))
    key = world.key(1)
    await world.until(lambda: world.archiver.text(key))
    job = Path(f"/proc/{int(world.archiver.text(key)[0])}")
    os.kill(world.executor.pid, signal.SIGSTOP)
    end.touch()
    await world.until(lambda: not job.exists())
    world.executor.kill_without_witness()
    world.executor.start()
    await world.granted(2)
    [told] = world.coordinator.registered[1].reports
    assert (told.outcome.kind, told.outcome.result_json) == (common_pb2.OUTCOME_KIND_SUCCEEDED, '{"kept":true}')
