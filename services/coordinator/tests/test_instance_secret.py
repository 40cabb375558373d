"""A real coordinator over mTLS: who has an executor's certificate, and only knows the name of an instance, speaks for none of its incarnations."""

import pytest

from toban_domain.errors import ErrorCode, TobanError
from toban_domain.outcome import AttemptKey, Outcome, OutcomeKind
from toban_proto.v1 import coordinator_pb2 as pb
from toban_proto.v1 import coordinator_pb2_grpc as rpc
from toban_runtime.clock import SystemClock
from toban_testing.coordinator_calls import health, registration
from toban_testing.executor_rows import hold, run_state
from toban_transport.convert import key_to_pb, outcome_to_pb

SECRET = "5ec4e7" * 10
TOKEN = 77


@pytest.fixture
async def register(call):
    """`await register(...)` registers an incarnation; the request and the metadata of its later calls."""

    async def one(**changes):
        request = registration(**changes)
        answer = await call("executor", rpc.ExecutorGatewayStub, "Register", request)
        return request, (
            ("toban-incarnation", request.incarnation),
            ("toban-incarnation-key", answer.incarnation_key),
        )

    return one


async def attested(sql, incarnation):
    rows = await sql("SELECT attested_reason FROM scheduler.executors WHERE incarnation = %s", incarnation)
    return rows[0][0]


def outcome_of(run_id):
    now = SystemClock().wall()
    outcome = Outcome(kind=OutcomeKind.SUCCEEDED, finished_at=now, started_at=now, tree_empty=True, exit_code=0)
    return pb.AttemptReport(key=key_to_pb(AttemptKey(run_id, TOKEN)), seq=2, outcome=outcome_to_pb(outcome))


REFUSALS = "toban_instance_secret_refusals_total"
ATTESTED = 'toban_attestations_total{source="%s"}'


async def counted(process, name):
    """The value of a counter: this process had other coordinators before."""
    lines = (await health(process, "/metrics")).splitlines()
    return float(next(line for line in lines if line.startswith(name + " ")).rpartition(" ")[2])


@pytest.mark.parametrize("presented", ["", "another secret"])
async def test_the_name_of_an_instance_is_not_enough(call, register, sql, process, presented):
    """It does not take the place of an executor that lives, nor attest its death by another boot id, nor end its runs."""
    mine, _ = await register(instance_secret=SECRET)
    run, before = await hold(sql, mine.incarnation, "RUNNING", TOKEN), await counted(process, REFUSALS)
    claims = {
        "boot_id": "b2",
        "previous_incarnation": mine.incarnation,
        "previous_verified_empty": True,
        "reports": [outcome_of(run)],
    }
    with pytest.raises(TobanError, match="instance-secret") as refused:
        await register(instance_secret=presented, **claims)
    assert refused.value.code is ErrorCode.UNAUTHENTICATED
    assert (await attested(sql, mine.incarnation), await run_state(sql, run)) == ("", "RUNNING")
    assert await counted(process, REFUSALS) == before + 1
    # When the lease has ended, a lost secret keeps nobody out: but it speaks for no other incarnation.
    await sql("UPDATE scheduler.executors SET state = 'off', off_at = now()")
    other, metadata = await register(instance_secret=presented, **claims)
    request = pb.ReportRequest(incarnation=other.incarnation, reports=[outcome_of(run)])
    answer = await call("executor", rpc.ExecutorGatewayStub, "Report", request, metadata)
    assert [one.result for one in answer.results] == ["not_held"]
    assert await attested(sql, mine.incarnation) == ""
    assert await run_state(sql, run), "it has not ended"


async def test_the_successor_with_the_secret_reports_and_attests(register, sql, process):
    mine, _ = await register(instance_secret=SECRET)
    run, before = await hold(sql, mine.incarnation, "RUNNING", TOKEN), await counted(process, ATTESTED % "successor")
    await register(
        instance_secret=SECRET,
        previous_incarnation=mine.incarnation,
        previous_verified_empty=True,
        reports=[outcome_of(run)],
    )
    assert await attested(sql, mine.incarnation) == "its successor found its processes gone"
    assert await sql("SELECT 1 FROM scheduler.runs_live WHERE id = %s", run) == []
    assert await counted(process, ATTESTED % "successor") == before + 1


async def test_an_upgraded_executor_speaks_for_its_incarnations_before_secrets(register, sql):
    old, _ = await register()
    await register(instance_secret=SECRET, previous_incarnation=old.incarnation, previous_verified_empty=True)
    assert await attested(sql, old.incarnation) == "its successor found its processes gone"


@pytest.mark.parametrize(
    ("registered", "presented", "accepted"),
    [(SECRET, SECRET, True), (SECRET, "another secret", False), (SECRET, "", False), ("", "", True)],
    ids=["its secret", "another secret", "no secret", "a registration before secrets"],
)
async def test_a_witness_needs_the_secret_and_the_key(call, register, sql, process, registered, presented, accepted):
    mine, metadata = await register(instance_secret=registered)
    before = await counted(process, ATTESTED % "witness")
    word = pb.HeartbeatRequest(incarnation=mine.incarnation, stopped=True, witnessed=True, instance_secret=presented)
    with pytest.raises(TobanError) as refused:
        await call("executor", rpc.ExecutorGatewayStub, "Heartbeat", word, (metadata[0], (metadata[1][0], "no key")))
    assert refused.value.code is ErrorCode.UNAUTHENTICATED
    if accepted:
        for _twice in range(2):
            await call("executor", rpc.ExecutorGatewayStub, "Heartbeat", word, metadata)
    else:
        with pytest.raises(TobanError) as refused:
            await call("executor", rpc.ExecutorGatewayStub, "Heartbeat", word, metadata)
        assert refused.value.code is ErrorCode.UNAUTHENTICATED
    assert await attested(sql, mine.incarnation) == ("its witness found its processes gone" if accepted else "")
    assert await counted(process, ATTESTED % "witness") == before + accepted


async def test_the_secret_is_stored_as_a_hash_and_never_logged(register, sql, capsys):
    await register(instance_secret=SECRET)
    ((stored,),) = await sql("SELECT secret_hash FROM scheduler.executors")
    assert len(stored) == 32 and SECRET.encode() not in bytes(stored)
    out = capsys.readouterr()
    assert SECRET not in out.out + out.err
