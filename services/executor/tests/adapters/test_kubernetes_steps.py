"""Steps of type kubernetes in a real executor, against a fake API (toban_testing.fake_kubernetes): ends, cancels, lease, faults of the API."""

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from toban_domain.outcome import AttemptKey
from toban_executor.decide.kubernetes_job import INCARNATION, OWNER, RUN, TOKEN, job_name, labels
from toban_executor.guard.process_tree import descendants, has_argument
from toban_proto.v1 import common_pb2, executor_pb2
from toban_testing.fake_cluster import waiting_job
from toban_testing.fake_kubernetes import FakeKubernetes

SUCCEEDED, FAILED = common_pb2.OUTCOME_KIND_SUCCEEDED, common_pb2.OUTCOME_KIND_FAILED
CANCELED, TIMED_OUT = common_pb2.OUTCOME_KIND_CANCELED, common_pb2.OUTCOME_KIND_TIMED_OUT


@pytest.fixture(scope="module")
def executor_variables(variables: dict[str, str]) -> dict[str, str]:
    return variables


@pytest.fixture
def opened(shared_world: Any) -> Any:
    return shared_world


def step(*words: str, timeout_seconds: int = 0, cancelable: bool = True, **more: Any) -> Any:
    spec = json.dumps({"kubernetes": {"image": "registry.example.com/team/report:1", "argv": words, **more}})
    return executor_pb2.Step(
        id="pod", type="kubernetes", body_json=spec, timeout_seconds=timeout_seconds, cancelable=cancelable
    )


async def start(world: Any, number: int, *steps: Any, **fields: Any) -> None:
    [answer] = await world.start(world.order(number, steps=list(steps), **fields))
    assert answer.accepted, answer.message


async def run(world: Any, number: int, *steps: Any, **fields: Any) -> tuple[Any, str]:
    await start(world, number, *steps, **fields)
    return await world.ended(number)


async def shown(world: Any, number: int, wanted: str) -> None:
    """Until its log has this."""
    await world.until(lambda: wanted.encode() in b"\n".join(world.archiver.text(world.key(number))), 30)


def own_lines(text: str) -> list[str]:
    """Lines of the job. Those of the step's program come by another stream: nothing defines their order among these."""
    return [line for line in text.splitlines() if not line.startswith("toban:")]


def runner(world: Any) -> int:
    """The process of the step's program."""
    everything = descendants(world.executor.pid)
    return next(pid for pid in everything if has_argument(pid, b"toban_executor.adapters.kubernetes_step_runner"))


async def test_output_and_exit_code(opened: Any, api: FakeKubernetes) -> None:
    outcome, text = await run(opened, 1, step("say:one\ntwo", "exit:0"))
    assert (outcome.kind, outcome.tree_empty) == (SUCCEEDED, True)
    assert own_lines(text) == ["one", "two"]
    assert "toban: Job batch/toban-1-1-" in text and "runs on node node-1" in text
    outcome, text = await run(opened, 2, step("say:three", "exit:7"))
    assert (outcome.kind, outcome.exit_code) == (FAILED, 7)
    assert api.cluster.all("jobs") == [] == api.cluster.all("pods"), "they are removed when the log is taken"


async def test_what_the_job_is_made_of(opened: Any, api: FakeKubernetes) -> None:
    pod = {
        "env": {"A": "$(B) $$"},
        "user": "7:8",
        "service_account": "report",
        "node_selector": {"disk": "ssd"},
        "requests": {"cpus": 0.25},
        "limits": {"memory_mb": 64},
        "namespace": "other",
        "working_dir": "/data",
    }
    await run(opened, 1, step("say:x$(Y)", **pod), env={"A": "b", "B": "c"}, payload_json='{"k": "v"}', grace_seconds=3)
    [made] = api.cluster.made
    marks = made["metadata"]["labels"]
    assert (marks[RUN], marks[TOKEN], marks[OWNER]) == ("1", str(opened.key(1)[1]), "toban")
    assert marks[INCARNATION] == opened.coordinator.registered[-1].incarnation
    assert [path for method, path, _ in api.requests if method == "POST"] == ["/apis/batch/v1/namespaces/other/jobs"]
    spec = made["spec"]
    assert (spec["backoffLimit"], spec["parallelism"], spec["template"]["metadata"]["labels"]) == (0, 1, marks)
    assert 30 < spec["activeDeadlineSeconds"] <= 40, "the margin and what is left of the lease"
    pod = spec["template"]["spec"]
    assert (pod["restartPolicy"], pod["terminationGracePeriodSeconds"]) == ("Never", 3)
    assert (pod["serviceAccountName"], pod["automountServiceAccountToken"]) == ("report", True)
    assert pod["nodeSelector"] == {"disk": "ssd"}
    assert pod["securityContext"] == {
        "seccompProfile": {"type": "RuntimeDefault"},
        "runAsUser": 7,
        "runAsGroup": 8,
        "runAsNonRoot": True,
    }
    [box] = pod["containers"]
    assert box["securityContext"] == {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    assert box["resources"] == {"requests": {"cpu": "250m"}, "limits": {"memory": "64Mi"}}
    assert (box["args"], box["workingDir"]) == (["say:x$$(Y)"], "/data")
    env = {one["name"]: one["value"] for one in box["env"]}
    assert (env["A"], env["B"], env["TOBAN_RUN_ID"], env["TOBAN_PAYLOAD"]) == ("$$(B) $$$$", "c", "1", '{"k": "v"}')
    assert not {"TOBAN_SOCKET", "TOBAN_INCARNATION", "PATH"} & env.keys()


async def test_what_the_executor_does_not_allow(opened: Any, api: FakeKubernetes) -> None:
    for number, more, words in (
        (1, {"image": "docker.io/x:1"}, "image 'docker.io/x:1' is not allowed: see SCHEDULER_KUBERNETES_IMAGES"),
        (2, {"namespace": "kube-system"}, "namespace 'kube-system' is not allowed"),
        (3, {"service_account": "admin"}, "service account 'admin' is not allowed"),
    ):
        outcome, text = await run(opened, number, step("exit:0", **more))
        assert (outcome.kind, outcome.exit_code) == (FAILED, 1)
        assert words in text
    assert api.cluster.made == []
    [answer] = await opened.start(opened.order(4, "true"))
    assert (answer.refusal, "a token for a cluster" in answer.message) == ("STEP_NOT_HERE", True)


async def test_ends_without_an_exit_code_of_the_program_say_why(opened: Any, api: FakeKubernetes) -> None:
    for number, words, more, code, said in (
        (1, "oom", {"limits": {"memory_mb": 9}}, 137, "(OOMKilled): it needed more than limits.memory_mb = 9"),
        (2, "pulls:ImagePullBackOff", {"start_timeout_seconds": 1}, 1, "start_timeout_seconds = 1; pod toban-2-1-"),
        (3, "pulls:InvalidImageName", {}, 1, "cannot start: InvalidImageName: no such image"),
    ):
        outcome, text = await run(opened, number, step(words, **more))
        assert (outcome.kind, outcome.exit_code) == (FAILED, code)
        assert said in text
    assert api.cluster.all("jobs") == []


async def test_a_cancel_ends_the_pods_first(opened: Any, api: FakeKubernetes) -> None:
    """Its program gets SIGTERM; its last lines are in the log."""
    for number, mode in ((1, "kill"), (2, "cooperative")):
        await start(opened, number, step("say:begun", "wait"))
        await shown(opened, number, "begun")
        await opened.cancel(number, grace=60, mode=mode)
        outcome, text = await opened.ended(number)
        assert (outcome.kind, outcome.exit_code) == (CANCELED, 143)
        assert "ended by a signal" in text
        assert api.cluster.all("pods") == [] == api.cluster.all("jobs")


@pytest.mark.asyncio(loop_scope="module")
async def test_a_cancel_waits_for_the_end_of_a_step_that_is_not_cancelable(
    world_maker: Any, variables: dict[str, str], api: FakeKubernetes
) -> None:
    """Its program goes on extending the deadline of the Job; no step follows."""
    world = world_maker()
    try:
        await world.open(**variables | {"SCHEDULER_KUBERNETES_MARGIN_SECONDS": "10", "SCHEDULER_SLOTS": "1"})
        for number, mode in ((1, "kill"), (2, "cooperative")):
            await start(world, number, step("say:begun", "wait", cancelable=False), step("say:second"))
            await shown(world, number, "begun")
            await world.cancel(number, grace=1, mode=mode)
            extended = len(api.calls("PATCH", "/jobs/"))
            await world.until(lambda extended=extended: len(api.calls("PATCH", "/jobs/")) > extended, 60)
            api.cluster.let_go()
            outcome, text = await world.ended(number)
            assert (outcome.kind, outcome.exit_code, len(api.cluster.made)) == (CANCELED, 0, 1)
            assert "second" not in text
            api.forget()
    finally:
        await world.close()


async def test_a_run_is_not_canceled_before_its_pods_have_ended(opened: Any, api: FakeKubernetes) -> None:
    """The guard has killed the program of the step; the pod is on a node that does not end it."""
    await start(opened, 1, step("say:begun", "wait"))
    await shown(opened, 1, "begun")
    api.cluster.set_node(down=True)
    program = runner(opened)
    await opened.cancel(1, grace=0.1)
    await opened.until(lambda: not Path(f"/proc/{program}").exists(), 20)
    looked = len(api.calls("GET", "/pods?labelSelector"))
    await opened.until(lambda: len(api.calls("GET", "/pods?labelSelector")) > looked + 2, 20)
    assert opened.key(1) not in opened.coordinator.outcomes
    assert [one.run_id for one in opened.coordinator.beats[-1].unanswered] == [1], "heartbeats name it meanwhile"
    api.cluster.set_node(down=False)
    outcome, _ = await opened.ended(1)
    assert outcome.kind == CANCELED
    assert api.cluster.all("pods") == []


async def test_a_timeout_ends_a_pod_that_ignores_sigterm(opened: Any, api: FakeKubernetes) -> None:
    outcome, _ = await run(opened, 1, step("deaf", "wait", timeout_seconds=2), grace_seconds=0.5)
    assert outcome.kind == TIMED_OUT
    assert api.cluster.all("pods") == []


async def test_a_repeated_attempt_waits_for_the_pods_of_an_earlier_one(opened: Any, api: FakeKubernetes) -> None:
    """Another executor is lost; its Job of the same run has a smaller token. Jobs of other runs are left alone."""
    for name, number in (("theirs", "5"), ("foreign", "6")):
        marks = {OWNER: "toban", RUN: number, TOKEN: str(opened.key(4)[1]), INCARNATION: "lost"}
        api.cluster.create(waiting_job(name, marks))
    api.cluster.set_node(down=True)
    await start(opened, 5, step("exit:0"))
    await shown(opened, 5, "waits for the end of an earlier attempt: Job batch/theirs")
    assert [job["metadata"]["name"] for job in api.cluster.made] == ["theirs", "foreign"]
    api.cluster.set_node(down=False)
    outcome, _ = await opened.ended(5)
    assert outcome.kind == SUCCEEDED
    assert [job["metadata"]["name"] for job in api.cluster.all("jobs")] == ["foreign"]


async def test_a_cancel_does_not_wait_for_the_pods_of_an_earlier_attempt(opened: Any, api: FakeKubernetes) -> None:
    """Its own Job was never made, so nothing of it runs."""
    api.cluster.create(
        waiting_job("theirs", {OWNER: "toban", RUN: "5", TOKEN: str(opened.key(4)[1]), INCARNATION: "lost"})
    )
    api.cluster.set_node(down=True)
    await start(opened, 5, step("exit:0"))
    await shown(opened, 5, "waits for the end of an earlier attempt")
    await opened.cancel(5, grace=600)
    outcome, _ = await opened.ended(5)
    assert (outcome.kind, outcome.exit_code, len(api.cluster.made)) == (CANCELED, 143, 1)


async def test_a_repeated_create_makes_no_second_job(opened: Any, api: FakeKubernetes) -> None:
    """The response to the first was lost. One that belongs to something else is left alone."""
    faults = ["late"]
    api.faults.append(lambda method, path: faults.pop() if method == "POST" and faults else None)
    outcome, text = await run(opened, 1, step("say:once"))
    assert (outcome.kind, text.count("once")) == (SUCCEEDED, 1)
    assert "was created by a request whose response was lost" in text
    assert (len(api.calls("POST", "/jobs")), len(api.cluster.made)) == (2, 1)


async def test_a_job_of_that_name_that_is_of_something_else_is_left_alone(opened: Any, api: FakeKubernetes) -> None:
    incarnation = opened.coordinator.registered[-1].incarnation
    marks = labels(owner="toban", key=AttemptKey(*opened.key(1)), attempt=1, step=0, incarnation=incarnation)
    api.cluster.create(waiting_job(job_name(marks), {}))
    outcome, text = await run(opened, 1, step("exit:0"))
    assert (outcome.kind, outcome.exit_code) == (FAILED, 1)
    assert "exists and is not of this attempt; remove it, or set SCHEDULER_KUBERNETES_OWNER" in text
    assert len(api.cluster.all("jobs")) == 1


async def test_an_api_that_fails_for_a_while_is_tried_again(opened: Any, api: FakeKubernetes) -> None:
    left: list[int | str] = []
    api.faults.append(lambda method, path: left.pop() if left else None)
    for number, fault in enumerate((503, 429, "drop"), start=1):
        left += [fault] * 3
        outcome, text = await run(opened, number, step("say:fine"))
        assert (outcome.kind, "fine" in text, "is tried again" in text) == (SUCCEEDED, True, True)
        assert len(api.cluster.made) == number


async def test_a_refusal_of_the_job_fails_the_step(opened: Any, api: FakeKubernetes) -> None:
    api.faults.append(lambda method, path: 403 if method == "POST" else None)
    outcome, text = await run(opened, 1, step("exit:0"))
    assert (outcome.kind, outcome.exit_code) == (FAILED, 1)
    assert "the cluster refused the Job: fault 403" in text


@pytest.mark.long
@pytest.mark.asyncio(loop_scope="module")
async def test_a_create_that_is_carried_out_after_a_cancel_leaves_nothing(
    world_maker: Any, variables: dict[str, str], api: FakeKubernetes
) -> None:
    """Its response never came, so the end waits until the API cannot carry it out any more: for 30 s, unless it is set."""
    world = world_maker()
    try:
        await world.open(**{name: value for name, value in variables.items() if "SETTLE" not in name})
        api.faults.append(lambda method, path: "hold" if method == "POST" else None)
        # What a job sets is no setting of its executor.
        await start(world, 1, step("say:begun", "wait"), env={"SCHEDULER_KUBERNETES_SETTLE_SECONDS": "0"})
        await world.until(lambda: api.held, 30)
        await world.cancel(1, grace=60)
        await shown(world, 1, "has had no response: the API may carry it out for 30 s")
        api.carry_out_held()
        outcome, _ = await world.ended(1)
        assert (outcome.kind, outcome.exit_code, len(api.cluster.made)) == (CANCELED, 143, 1)
        assert api.cluster.all("jobs") == [] == api.cluster.all("pods")
    finally:
        await world.close()


async def test_objects_that_may_not_be_watched_are_listed(opened: Any, api: FakeKubernetes) -> None:
    api.faults.append(lambda method, path: 403 if "watch=1" in path else None)
    await start(opened, 1, step("say:begun", "wait", "say:last"))
    await shown(opened, 1, "begun")
    api.cluster.let_go()
    outcome, text = await opened.ended(1)
    assert (outcome.kind, "last" in text) == (SUCCEEDED, True)
    for kind in ("jobs", "pods"):
        told = f"the cluster refuses to watch {kind} in namespace batch: fault 403; give the executor's service account"
        assert text.count(told) == 1


@pytest.mark.parametrize(
    "fault", [403, 429, *(pytest.param(fault, marks=pytest.mark.long) for fault in (401, 500, "drop"))]
)
async def test_a_list_that_is_refused_for_a_while_ends_no_step(
    opened: Any, api: FakeKubernetes, fault: int | str
) -> None:
    await start(opened, 1, step("say:begun", "wait", "say:last"))
    await shown(opened, 1, "begun")
    refused = [fault]
    api.faults.append(
        lambda method, path: refused[0] if refused and "/jobs/" not in path and "/log" not in path else None
    )
    before = len(api.requests)
    api.cluster.forget_events()
    for kind in ("jobs", "pods"):
        await opened.until(
            lambda kind=kind: sum(f"/{kind}?label" in path for _, path, _ in api.requests[before:]) > 2, 40
        )
    await shown(opened, 1, "watch of pods is tried again")
    api.cluster.let_go()
    refused.clear()
    outcome, text = await opened.ended(1)
    assert (outcome.kind, own_lines(text)) == (SUCCEEDED, ["begun", "last"])
    if fault in (401, 403):
        for kind in ("jobs", "pods"):
            told = f"the cluster refuses to list {kind} in namespace batch: fault {fault}; give the executor's service account the verb 'list'"
            assert text.count(told) == 1 and f"for {kind} there; the step goes on" in text


async def test_a_list_that_can_never_succeed_fails_the_step(opened: Any, api: FakeKubernetes) -> None:
    """Its Job is deleted when the API does what it should again: until then nothing shows that its pod has ended."""
    await start(opened, 1, step("say:begun", "wait"))
    await shown(opened, 1, "begun")
    refuse = [404]
    api.faults.append(lambda method, path: refuse[0] if refuse and "/jobs/" not in path and method == "GET" else None)
    api.cluster.forget_events()
    await shown(opened, 1, "the cluster refuses to list")
    refuse.clear()
    outcome, _ = await opened.ended(1)
    assert (outcome.kind, outcome.exit_code) == (FAILED, 1)
    assert api.cluster.all("pods") == [] == api.cluster.all("jobs")


async def test_a_watch_that_lags_lists_again(opened: Any, api: FakeKubernetes) -> None:
    await start(opened, 1, step("say:begun", "wait", "say:last"))
    await shown(opened, 1, "begun")
    lists = len(api.calls("GET", "/pods?labelSelector"))
    api.cluster.forget_events()
    await opened.until(lambda: len(api.calls("GET", "/pods?labelSelector")) > lists, 20)
    api.cluster.let_go()
    outcome, text = await opened.ended(1)
    assert (outcome.kind, own_lines(text)[-1]) == (SUCCEEDED, "last")


async def test_a_log_that_breaks_off_is_whole_at_the_end(opened: Any, api: FakeKubernetes) -> None:
    """Each line once, whichever the stream it came with."""
    api.cut_logs = [1, 2, 0, 3]
    lines = [f"line {number}" for number in range(6)]
    outcome, text = await run(opened, 1, step("say:" + "\n".join(lines), "say:end"))
    assert outcome.kind == SUCCEEDED
    assert own_lines(text) == [*lines, "end"]


async def test_a_job_that_something_else_deletes_fails_the_step(opened: Any, api: FakeKubernetes) -> None:
    await start(opened, 1, step("say:begun", "wait"))
    await shown(opened, 1, "begun")
    [found] = api.cluster.all("jobs")
    meta = found["metadata"]
    api.cluster.delete(meta["name"], {"propagationPolicy": "Background", "preconditions": {"uid": meta["uid"]}})
    outcome, text = await opened.ended(1)
    assert outcome.kind == FAILED
    assert "was deleted" in text


async def test_a_program_that_is_killed_leaves_nothing(opened: Any, api: FakeKubernetes) -> None:
    await start(opened, 1, step("say:begun", "wait"))
    await shown(opened, 1, "begun")
    os.kill(runner(opened), signal.SIGKILL)
    outcome, _ = await opened.ended(1)
    assert (outcome.kind, outcome.signal) == (FAILED, 9)
    assert api.cluster.all("pods") == []
