"""External workers over mTLS with a whole coordinator: its loops offer, notifications wake claims, and certificates decide who may call."""

import asyncio
import json
import os
import sys
from pathlib import Path

import pytest
import yaml

from toban_domain.errors import ErrorCode, TobanError
from toban_proto.v1 import coordinator_pb2 as pb
from toban_proto.v1 import coordinator_pb2_grpc as rpc
from toban_stack.certs import issue
from toban_testing.waiting import until_async
from toban_transport.person_rules import CREDENTIAL

EXAMPLE = Path(__file__).resolve().parents[3] / "examples" / "external-worker"
JOB = {
    "apiVersion": "toban/v1",
    "kind": "Job",
    "metadata": {"name": "outside"},
    "spec": {"steps": [{"type": "external", "worker_type": "transcode", "lock_ttl_seconds": 1}], "max_lost": 5},
}


@pytest.fixture
async def work(call):
    """`await work(method, request)` as an external worker."""
    manifest = pb.Manifest(json=json.dumps(JOB))
    await call("admin-cli", rpc.JobControlStub, "Apply", pb.ApplyRequest(manifests=[manifest]))

    async def one(method, request):
        return await call("external-worker", rpc.ExternalWorkStub, method, request)

    return one


@pytest.fixture
def start(call):
    async def one():
        wanted = pb.StartRunsRequest(runs=[pb.StartRunRequest(job="outside")])
        made = await call("admin-cli", rpc.JobControlStub, "StartRuns", wanted)
        return made.runs[0].run_id

    return one


@pytest.fixture
def get(call):
    async def one(run_id):
        return await call("admin-cli", rpc.JobReaderStub, "GetRun", pb.GetRunRequest(id=run_id))

    return one


def claim(worker="w1", wait=4.0, limit=1):
    return pb.ClaimRequest(worker=worker, worker_type="transcode", limit=limit, wait_seconds=wait)


def append(key, worker="w1"):
    return pb.AppendLogRequest(worker=worker, key=key, first_seq=1, lines=[pb.OutputLine(text="a")])


@pytest.mark.seed(137)
async def test_a_worker_that_waits_gets_the_step_and_completes_it(work, start, get):
    waiting = asyncio.create_task(work("Claim", claim()))
    run_id = await start()
    (step,) = (await waiting).steps
    assert (step.key.run_id, step.job, step.lock_ttl_ms, step.lock_margin_ms) == (run_id, "outside", 1000, 300)
    run = await get(run_id)
    assert (run.state, run.external.worker_type, run.external.worker) == ("WAITING_WORKER", "transcode", "w1")
    assert "external worker w1 has claimed its step" in run.waiting
    beat = await work("Heartbeat", pb.ExternalHeartbeatRequest(worker="w1", keys=[step.key]))
    assert (list(beat.lost), list(beat.cancel)) == ([], [])
    progress = pb.UpdateProgressRequest(worker="w1", key=step.key, percentage=40, summary="half way")
    assert not (await work("UpdateProgress", progress)).cancel_requested
    assert json.loads((await get(run_id)).progress_json)["percentage"] == 40
    done = pb.CompleteRequest(worker="w1", steps=[pb.CompletedStep(key=step.key, result_json='{"a": 1}')])
    assert [(a.key, a.result) for a in (await work("Complete", done)).answers] == [(step.key, "accepted")]
    run = await get(run_id)
    assert (run.state, json.loads(run.result_json), run.attempts[0].executor) == ("SUCCEEDED", {"a": 1}, "w1")


async def test_an_offer_explains_itself(work, start, call):
    run_id = await start()
    why = await until_async(
        lambda: call("admin-cli", rpc.JobReaderStub, "ExplainRun", pb.GetRunRequest(id=run_id)),
        lambda found: found.state == "WAITING_WORKER",
    )
    assert "offered to external workers of type transcode" in why.reasons[0]
    assert "none has claimed it" in why.reasons[0]
    assert (len(why.reasons), why.at_worker, list(why.executors)) == (1, True, [])


async def test_the_leader_ends_the_lock_of_a_silent_worker_and_another_one_takes_over(work, start, get):
    run_id = await start()
    (first,) = (await work("Claim", claim())).steps
    steps = (await until_async(lambda: work("Claim", claim("w2")), lambda found: found.steps)).steps
    assert (steps[0].key.run_id, steps[0].key.token > first.key.token) == (run_id, True)
    late = pb.CompleteRequest(worker="w1", steps=[pb.CompletedStep(key=first.key)])
    (answer,) = (await work("Complete", late)).answers
    assert (answer.result, answer.code) == ("refused", "CLAIM_LOST")
    with pytest.raises(TobanError) as caught:
        await work("Fail", pb.FailRequest(worker="w1", key=first.key, error="late"))
    assert caught.value.code is ErrorCode.CLAIM_LOST
    failed = await work("Fail", pb.FailRequest(worker="w2", key=steps[0].key, error="broken", retryable=False))
    assert failed.result == "accepted"
    run = await get(run_id)
    assert (run.state, run.error_summary, run.lost_count) == ("FAILED", "broken", 1)


@pytest.mark.seed(161)
async def test_a_cancel_is_told_and_acknowledged(work, start, get, call):
    run_id = await start()
    (step,) = (await work("Claim", claim())).steps
    await call("admin-cli", rpc.JobControlStub, "CancelRun", pb.CancelRunRequest(id=run_id, reason="not needed"))
    beat = await work("Heartbeat", pb.ExternalHeartbeatRequest(worker="w1", keys=[step.key]))
    assert list(beat.cancel) == [step.key]
    answer = await work("AcknowledgeCancel", pb.AcknowledgeCancelRequest(worker="w1", key=step.key))
    assert (answer.result, (await get(run_id)).state) == ("accepted", "CANCELED")


@pytest.fixture
def typed(call, tls):
    """`await typed(worker_type, method, request)` as a worker whose certificate is for that type."""

    async def one(worker_type, method, request):
        folder = issue(tls / "ca", f"external-worker/{worker_type}", tls / f"external-worker.{worker_type}")
        return await call(folder.name, rpc.ExternalWorkStub, method, request)

    return one


async def test_a_certificate_for_one_type_does_its_steps(work, start, get, typed):
    run_id = await start()
    (step,) = (await typed("transcode", "Claim", claim())).steps
    assert not (await typed("transcode", "Heartbeat", pb.ExternalHeartbeatRequest(worker="w1", keys=[step.key]))).lost
    await typed("transcode", "UpdateProgress", pb.UpdateProgressRequest(worker="w1", key=step.key, percentage=1))
    done = pb.CompleteRequest(worker="w1", steps=[pb.CompletedStep(key=step.key)])
    for expected in ("accepted", "already_accepted"):
        (answer,) = (await typed("transcode", "Complete", done)).answers
        assert answer.result == expected
    assert (await get(run_id)).state == "SUCCEEDED"


async def test_a_certificate_for_another_type_does_nothing(work, start, get, typed):
    """Not even with the token and the name of the worker that has the claim."""
    run_id = await start()
    (step,) = (await work("Claim", claim())).steps
    for method, request in (
        ("Claim", claim(wait=0)),
        ("Heartbeat", pb.ExternalHeartbeatRequest(worker="w1", keys=[step.key])),
        ("UpdateProgress", pb.UpdateProgressRequest(worker="w1", key=step.key, percentage=1)),
        ("AppendLog", append(step.key)),
        ("Complete", pb.CompleteRequest(worker="w1", steps=[pb.CompletedStep(key=step.key)])),
        ("Fail", pb.FailRequest(worker="w1", key=step.key, error="x")),
        ("AcknowledgeCancel", pb.AcknowledgeCancelRequest(worker="w1", key=step.key)),
    ):
        with pytest.raises(TobanError) as caught:
            await typed("other", method, request)
        assert (caught.value.code, "worker_type 'other'" in str(caught.value)) == (ErrorCode.PERMISSION_DENIED, True)
    run = await get(run_id)
    assert (run.state, run.progress_json) == ("WAITING_WORKER", "")
    assert (
        await typed("other", "Claim", pb.ClaimRequest(worker="w1", worker_type="other", wait_seconds=0))
    ).steps == []


async def test_a_certificate_for_a_type_calls_nothing_else(call, typed, tls):
    issue(tls / "ca", "external-worker/transcode", tls / "external-worker.transcode")
    with pytest.raises(TobanError) as caught:
        await call("external-worker.transcode", rpc.JobReaderStub, "GetRun", pb.GetRunRequest(id=1))
    assert caught.value.code is ErrorCode.PERMISSION_DENIED


async def test_only_external_workers_may_claim(work, call):
    with pytest.raises(TobanError) as caught:
        await call("admin-cli", rpc.ExternalWorkStub, "Claim", claim(wait=0))
    assert caught.value.code is ErrorCode.PERMISSION_DENIED


async def test_the_example_of_a_worker_does_the_steps_of_its_job(process, tls, call):
    job = yaml.safe_load((EXAMPLE / "job.yaml").read_text())
    manifest = pb.Manifest(json=json.dumps(job))
    await call("admin-cli", rpc.JobControlStub, "Apply", pb.ApplyRequest(manifests=[manifest]))
    wanted = [pb.StartRunRequest(job="word-count", payload_json='{"text": "one two three"}') for _ in range(2)]
    made = await call("admin-cli", rpc.JobControlStub, "StartRuns", pb.StartRunsRequest(runs=wanted))
    worker = await asyncio.create_subprocess_exec(
        sys.executable,
        str(EXAMPLE / "worker.py"),
        f"127.0.0.1:1,127.0.0.1:{process['grpc_port']}",
        "2",
        env={**os.environ, "TOBAN_TLS_DIR": str(tls / "external-worker")},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    async with asyncio.timeout(60):
        said = (await worker.communicate())[0].decode()
    for one in made.runs:
        run = await call("admin-cli", rpc.JobReaderStub, "GetRun", pb.GetRunRequest(id=one.run_id))
        assert (run.state, json.loads(run.result_json or "{}")) == ("SUCCEEDED", {"words": 3}), said


@pytest.fixture
def with_token(call):
    """`await with_token(worker_type, method, request)` as the site, with an API token for that type."""
    secrets = {}

    async def make(worker_type):
        if not secrets:
            await call("admin-cli", rpc.AccountsStub, "AddUser", pb.AddUserRequest(name="gpu"))
            rule = pb.AccessRule(user="gpu", effect="allow", role="operator")
            await call("admin-cli", rpc.AccountsStub, "AddRule", pb.AddRuleRequest(rule=rule))
        selector = pb.AccessSelector(scope="worker", scope_id=worker_type)
        new = pb.CreateTokenRequest(user="gpu", name=worker_type, role="operator", selector=selector, days=1)
        return (await call("admin-cli", rpc.AccountsStub, "CreateToken", new)).secret

    async def one(worker_type, method, request, service="admin-web"):
        if worker_type not in secrets:
            secrets[worker_type] = await make(worker_type)
        given = ((CREDENTIAL, secrets[worker_type]),)
        return await call(service, rpc.ExternalWorkStub, method, request, given)

    return one


async def test_a_token_for_one_type_does_its_steps(work, start, get, with_token):
    run_id = await start()
    (step,) = (await with_token("transcode", "Claim", claim())).steps
    beat = await with_token("transcode", "Heartbeat", pb.ExternalHeartbeatRequest(worker="w1", keys=[step.key]))
    assert not beat.lost
    await with_token("transcode", "UpdateProgress", pb.UpdateProgressRequest(worker="w1", key=step.key, percentage=1))
    done = pb.CompleteRequest(worker="w1", steps=[pb.CompletedStep(key=step.key)])
    assert (await with_token("transcode", "Complete", done)).answers[0].result == "accepted"
    assert (await get(run_id)).state == "SUCCEEDED"


async def test_a_token_for_another_type_does_nothing(work, start, get, with_token):
    """Not even with the token and the name of the worker that has the claim."""
    run_id = await start()
    (step,) = (await work("Claim", claim())).steps
    for method, request in (
        ("Claim", claim(wait=0)),
        ("Heartbeat", pb.ExternalHeartbeatRequest(worker="w1", keys=[step.key])),
        ("UpdateProgress", pb.UpdateProgressRequest(worker="w1", key=step.key, percentage=1)),
        ("AppendLog", append(step.key)),
        ("Complete", pb.CompleteRequest(worker="w1", steps=[pb.CompletedStep(key=step.key)])),
        ("Fail", pb.FailRequest(worker="w1", key=step.key, error="x")),
        ("AcknowledgeCancel", pb.AcknowledgeCancelRequest(worker="w1", key=step.key)),
    ):
        with pytest.raises(TobanError, match="worker_type 'other'") as caught:
            await with_token("other", method, request)
        assert caught.value.code is ErrorCode.PERMISSION_DENIED
    run = await get(run_id)
    assert (run.state, run.progress_json) == ("WAITING_WORKER", "")


async def test_a_certificate_and_a_token_of_different_types_do_nothing(work, with_token, tls):
    folder = issue(tls / "ca", "external-worker/other", tls / "external-worker.other")
    with pytest.raises(TobanError, match="the certificate is for worker_type 'other' and the token for 'transcode'"):
        await with_token("transcode", "Claim", claim(wait=0), folder.name)
    # A token bounds a certificate without a type too.
    asked = pb.ClaimRequest(worker="w1", worker_type="transcode", wait_seconds=0)
    assert (await with_token("transcode", "Claim", asked, "external-worker")).steps == []
    with pytest.raises(TobanError, match="worker_type 'other' only"):
        await with_token("other", "Claim", asked, "external-worker")
