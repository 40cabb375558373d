"""Executors that are lost while a kubernetes step runs, against a fake API: Jobs end by themselves, or by the next executor before it registers."""

import json
import os
import signal
from typing import Any

import pytest

from toban_executor.decide.kubernetes_job import INCARNATION, OWNER, RUN, TOKEN
from toban_proto.v1 import executor_pb2
from toban_testing.fake_cluster import waiting_job
from toban_testing.fake_coordinator import EPOCH
from toban_testing.fake_kubernetes import FakeKubernetes


def step(*words: str, timeout_seconds: int = 0, cancelable: bool = True, **more: Any) -> Any:
    spec = json.dumps({"kubernetes": {"image": "registry.example.com/team/report:1", "argv": words, **more}})
    return executor_pb2.Step(
        id="pod", type="kubernetes", body_json=spec, timeout_seconds=timeout_seconds, cancelable=cancelable
    )


async def start(world: Any, number: int, *steps: Any, **fields: Any) -> None:
    [answer] = await world.start(world.order(number, steps=list(steps), **fields))
    assert answer.accepted, answer.message


async def shown(world: Any, number: int, wanted: str) -> None:
    """Until its log has this."""
    await world.until(lambda: wanted.encode() in b"\n".join(world.archiver.text((number, EPOCH | number))), 30)


@pytest.mark.long
async def test_a_lost_executor_leaves_a_job_that_ends_by_itself(
    world_maker: Any, variables: dict[str, str], api: FakeKubernetes
) -> None:
    """While the lease holds its deadline moves; when the program is frozen at the end of the lease, it comes."""
    world = world_maker(lease_ms=4000)
    try:
        await world.open(**variables | {"SCHEDULER_KUBERNETES_MARGIN_SECONDS": "10"})
        await start(world, 1, step("say:begun", "wait"), on_lease_loss="freeze")
        await shown(world, 1, "begun")
        await world.until(lambda: api.calls("PATCH", "/jobs/toban-1-1-"), 30)
        before = api.cluster.made[0]["spec"]["activeDeadlineSeconds"]
        [found] = api.cluster.all("jobs")
        assert found["spec"]["activeDeadlineSeconds"] > before
        world.coordinator.granting = False
        await world.until(lambda: "job frozen" in world.executor.log(), 30)
        patched = len(api.calls("PATCH", "/jobs/"))
        await world.until(lambda: api.cluster.all("pods") == [], 40)
        [found] = api.cluster.all("jobs")
        assert [one["reason"] for one in found["status"]["conditions"]] == ["DeadlineExceeded"]
        assert len(api.calls("PATCH", "/jobs/")) == patched, "nothing is extended without a lease"
    finally:
        await world.close()


async def test_a_killed_executor_deletes_its_jobs_when_it_starts_again(opened: Any, api: FakeKubernetes) -> None:
    await start(opened, 1, step("say:begun", "wait"))
    await shown(opened, 1, "begun")
    opened.executor.kill_without_witness()
    opened.executor.start()
    await opened.granted(2)
    assert api.cluster.all("pods") == [] == api.cluster.all("jobs"), "before it registers"
    assert opened.coordinator.registered[-1].previous_verified_empty


async def test_an_executor_does_not_register_before_old_pods_have_ended(opened: Any, api: FakeKubernetes) -> None:
    """Its registration attests the end of the earlier incarnation, whose runs then start elsewhere. A Job of another executor goes on."""
    await start(opened, 1, step("say:begun", "wait"))
    await shown(opened, 1, "begun")
    api.cluster.create(waiting_job("other", {OWNER: "toban", RUN: "7", TOKEN: str(EPOCH | 7), INCARNATION: "another"}))
    api.cluster.set_node(down=True)
    opened.executor.kill_without_witness()
    looked = len(api.calls("GET", "/pods?labelSelector"))
    opened.executor.start()
    await opened.until(lambda: len(api.calls("GET", "/pods?labelSelector")) > looked + 4, 40)
    assert len(opened.coordinator.registered) == 1 and len(api.cluster.all("pods")) == 2
    api.cluster.set_node(down=False)
    await opened.granted(2)
    assert opened.coordinator.registered[-1].previous_verified_empty
    assert [job["metadata"]["name"] for job in api.cluster.all("jobs")] == ["other"]


@pytest.mark.long
async def test_old_pods_that_do_not_end_are_not_attested(
    world_maker: Any, variables: dict[str, str], api: FakeKubernetes
) -> None:
    """Their runs go elsewhere when the lease has ended."""
    world = world_maker()
    try:
        await world.open(**variables | {"SCHEDULER_KUBERNETES_MARGIN_SECONDS": "10"})
        await start(world, 1, step("say:begun", "wait"))
        await shown(world, 1, "begun")
        api.cluster.set_node(down=True)
        world.executor.kill_without_witness()
        world.executor.start()
        await world.granted(2)
        assert not world.coordinator.registered[-1].previous_verified_empty
        assert "pods of an earlier incarnation are not known to have ended" in world.executor.log()
    finally:
        await world.close()


@pytest.mark.long
async def test_an_executor_that_waits_for_old_pods_can_be_stopped(opened: Any, api: FakeKubernetes) -> None:
    """It has not registered yet, and would wait for the margin."""
    await start(opened, 1, step("say:begun", "wait"))
    await shown(opened, 1, "begun")
    api.cluster.set_node(down=True)
    opened.executor.kill_without_witness()
    looked = len(api.calls("GET", "/pods?labelSelector"))
    opened.executor.start()
    await opened.until(lambda: len(api.calls("GET", "/pods?labelSelector")) > looked + 4, 40)
    os.kill(opened.executor.pid, signal.SIGTERM)
    await opened.until(lambda: "stop requested" in opened.executor.log(), 15)
    await opened.until(lambda: "incarnation ended" in opened.executor.log(), 40)
    assert len(opened.coordinator.registered) == 1
