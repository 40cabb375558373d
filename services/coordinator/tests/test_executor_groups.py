"""Executors with the key of one group against a coordinator: they reach nothing of another group (docs/executor-groups.md)."""

import json

import pytest

from toban_domain.errors import ErrorCode, TobanError
from toban_domain.incarnation_key import hash_key, key_metadata
from toban_domain.outcome import AttemptKey, Outcome, OutcomeKind
from toban_observability import metrics
from toban_proto.v1 import coordinator_pb2 as pb
from toban_proto.v1 import coordinator_pb2_grpc as rpc
from toban_runtime.clock import SystemClock
from toban_stack import certs
from toban_testing.coordinator_calls import registration
from toban_testing.executor_rows import hold, run_state
from toban_transport.convert import key_to_pb, outcome_to_pb
from toban_transport.log_ticket import TicketHolder, TicketSigner, TicketVerifier
from toban_transport.tls import TlsFiles

SECRET = "5" * 64
TOKEN = 77


@pytest.fixture(scope="module")
def groups(tls):
    """Certificates of groups pci and web, as services of `call`."""
    for group in ("pci", "web"):
        certs.issue(tls / "ca", f"executor/{group}", tls / f"executor-{group}")


@pytest.fixture
async def operate(call, groups):
    """`await operate(method, request)` as an operator; groups pci and web are there."""

    async def ask(method, request):
        return await call("admin-cli", rpc.OperationsStub, method, request)

    for group in ("pci", "web"):
        await ask("SetExecutorGroup", pb.SetExecutorGroupRequest(name=group, labels={"pool": group}, create=True))
    return ask


@pytest.fixture
def register(call, operate):
    """`await register(group, **changes)`: (incarnation, metadata); "" is the default group."""

    async def ask(group, **changes):
        request = registration(**changes)
        service = f"executor-{group}" if group else "executor"
        answer = await call(service, rpc.ExecutorGatewayStub, "Register", request)
        return request.incarnation, key_metadata(request.incarnation, answer.incarnation_key)

    return ask


async def refused(work, code=ErrorCode.PERMISSION_DENIED):
    with pytest.raises(TobanError) as caught:
        await work
    assert caught.value.code is code
    return caught.value.message


def refusals():
    """Of registrations with a label; other tests of this process count too."""
    found = metrics.samples("toban_registrations_refused_total")
    return next(value for labels, value in found if labels.get("reason") == "label")


async def labels_of(call, incarnation):
    found = await call("admin-cli", rpc.JobReaderStub, "ListExecutors", pb.ListExecutorsRequest())
    return next((one.group, dict(one.labels)) for one in found.executors if one.incarnation == incarnation)


@pytest.mark.parametrize("group", ["", "web"])
async def test_a_rogue_executor_does_not_get_another_groups_labels(register, group):
    before = refusals()
    message = await refused(register(group, labels={"pool": "pci"}))
    assert "pool=pci" in message
    assert refusals() == before + 1


async def test_an_executor_has_the_labels_of_its_group_and_those_that_it_may_claim(register, operate, call):
    mine, _ = await register("pci")
    assert await labels_of(call, mine) == ("pci", {"pool": "pci"})
    assert "may not claim label zone" in await refused(register("pci", instance="x2", labels={"zone": "a"}))
    change = pb.SetExecutorGroupRequest(name="pci", labels={"pool": "pci"}, claims=["zone"])
    await operate("SetExecutorGroup", change)
    zoned, _ = await register("pci", instance="x2", labels={"zone": "a"})
    assert await labels_of(call, zoned) == ("pci", {"pool": "pci", "zone": "a"})


async def test_the_default_group_claims_what_no_group_has_reserved(register, call):
    mine, _ = await register("", labels={"pool": "batch", "anything": "1"})
    assert await labels_of(call, mine) == ("default", {"pool": "batch", "anything": "1"})


async def test_a_group_that_does_not_exist_registers_nothing(register, tls):
    certs.issue(tls / "ca", "executor/other", tls / "executor-other")
    assert "toban group add other" in await refused(register("other"))


async def test_the_class_of_an_executor_is_what_it_registered_as(register, call):
    details = ["uids 61000-61003", "pid namespace"]
    given = [
        await register("", instance="x1", isolation="isolated", isolation_details=details),
        await register("", instance="x2", isolation="shared"),
        await register("", instance="of the release before", labels={"isolation": "isolated"}),
        await register("", instance="of the next release", isolation="sealed"),
    ]
    found = (await call("admin-cli", rpc.JobReaderStub, "ListExecutors", pb.ListExecutorsRequest())).executors
    stored = {one.incarnation: (one.isolation, list(one.isolation_details)) for one in found}
    assert [stored[one] for one, _ in given] == [("isolated", details), *[("shared", [])] * 3]
    for wrong in (["x"] * 17, ["x" * 101], [""], ["a\nb"]):
        message = await refused(register("", isolation_details=wrong), ErrorCode.INVALID_ARGUMENT)
        assert "isolation_details must be at most 16 texts" in message


@pytest.mark.parametrize("thief", ["", "web"])
async def test_an_instance_stays_with_the_group_that_registered_it(register, sql, thief):
    await register("pci", instance="victim", instance_secret=SECRET)
    await sql("UPDATE scheduler.executors SET state = 'off', off_reason = 'x', off_at = now()")
    # The secret of the instance does not help, nor a forged boot id, nor that the victim is off.
    stolen = {"instance": "victim", "instance_secret": SECRET, "boot_id": "b2"}
    assert "belongs to executor group 'pci'" in await refused(register(thief, **stolen))
    await register("pci", instance="victim", instance_secret=SECRET)


async def test_an_instance_of_before_groups_is_of_the_default_group(register, sql):
    await register("", instance="old")
    await sql("DELETE FROM scheduler.executor_instances")
    assert "belongs to executor group 'default'" in await refused(register("web", instance="old"))


async def test_a_forged_boot_id_attests_no_death_of_another_group(register, sql):
    victim, _ = await register("pci", instance="victim")
    await sql(
        "UPDATE scheduler.executors SET last_heartbeat_at = now() - interval '1 h', granted_at = now() - interval '1 h'"
    )
    await refused(
        register("web", instance="victim", boot_id="b2", previous_incarnation=victim, previous_verified_empty=True)
    )
    ((reason, state),) = await sql(
        "SELECT attested_reason, state FROM scheduler.executors WHERE incarnation = %s", victim
    )
    assert (reason, state) == ("", "on")


@pytest.mark.parametrize("method", ["Heartbeat", "Report", "ConfirmContinuation", "RenewLogTickets"])
async def test_a_stolen_key_is_of_no_use_with_the_certificate_of_another_group(register, call, method):
    victim, stolen = await register("pci")
    given = {"keys": [key_to_pb(AttemptKey(1, TOKEN))]} if method == "ConfirmContinuation" else {}
    request = getattr(pb, f"{method}Request")(incarnation=victim, **given)
    await call("executor-pci", rpc.ExecutorGatewayStub, method, request, stolen)
    for thief in ("executor", "executor-web"):
        message = await refused(call(thief, rpc.ExecutorGatewayStub, method, request, stolen))
        assert "executor group 'pci'" in message


async def test_a_group_forges_no_outcome_of_a_run_of_another_group(register, call, sql):
    victim, _ = await register("pci", instance="victim")
    run = await hold(sql, victim, "RUNNING", TOKEN)
    now = SystemClock().wall()
    outcome = Outcome(kind=OutcomeKind.SUCCEEDED, finished_at=now, started_at=now, tree_empty=True, exit_code=0)
    report = pb.AttemptReport(key=key_to_pb(AttemptKey(run, TOKEN)), seq=2, outcome=outcome_to_pb(outcome))
    # With its own incarnation, and among the reports of a registration.
    mine, metadata = await register("web", instance="thief", reports=[report])
    request = pb.ReportRequest(incarnation=mine, reports=[report])
    answer = await call("executor-web", rpc.ExecutorGatewayStub, "Report", request, metadata)
    assert [result.result for result in answer.results] != ["accepted"]
    assert await run_state(sql, run) == "RUNNING"


async def test_a_change_of_a_group_counts_for_running_executors_at_once(register, operate, call):
    mine, _ = await register("", labels={"pool": "batch", "zone": "a"})
    reserve = pb.SetExecutorGroupRequest(name="batch", labels={"pool": "batch"}, create=True, reason="reserved")
    await operate("SetExecutorGroup", reserve)
    assert await labels_of(call, mine) == ("default", {"zone": "a"})
    await operate("SetExecutorGroup", pb.SetExecutorGroupRequest(name="default", labels={"site": "x"}))
    assert await labels_of(call, mine) == ("default", {"site": "x"})
    log = await call("admin-cli", rpc.OperationsStub, "ListAudit", pb.ListAuditRequest())
    assert [(one.actor, one.action, one.target) for one in log.entries[:2]] == [
        ("certificate admin-cli", "group.set", "executor group default"),
        ("certificate admin-cli", "group.set", "executor group batch"),
    ]
    assert log.entries[1].reason == "reserved"


async def test_an_instance_passes_to_another_group_when_its_executor_is_off(register, operate, sql):
    await register("", instance="mover")
    move = pb.SetExecutorGroupRequest(name="pci", labels={"pool": "pci"}, instances=["mover"])
    assert "drain and stop it first" in await refused(
        operate("SetExecutorGroup", move), ErrorCode.RESOURCE_INVALID_STATE
    )
    await sql("UPDATE scheduler.executors SET state = 'off', off_reason = 'x', off_at = now()")
    await operate("SetExecutorGroup", move)
    await register("pci", instance="mover")
    assert "belongs to executor group 'pci'" in await refused(register("", instance="mover"))


async def test_a_group_runs_only_jobs_with_its_job_labels(register, operate, call):
    def job(labels, selector):
        spec = {"steps": [{"id": "run", "argv": ["/bin/true"]}], "selector": {"labels": selector}}
        manifest = {
            "apiVersion": "toban/v1",
            "kind": "Job",
            "metadata": {"name": "pay", "labels": labels},
            "spec": spec,
        }
        return pb.ApplyRequest(manifests=[pb.Manifest(json=json.dumps(manifest))])

    def apply(labels, selector):
        return call("admin-cli", rpc.JobControlStub, "Apply", job(labels, selector))

    only = pb.SetExecutorGroupRequest(name="pci", labels={"pool": "pci"}, job_labels={"team": "pay"})
    assert dict((await operate("SetExecutorGroup", only)).job_labels) == {"team": "pay"}
    log = await call("admin-cli", rpc.OperationsStub, "ListAudit", pb.ListAuditRequest())
    assert '"job_labels": {"team": "pay"}' in log.entries[0].after_json
    said = await refused(apply({"team": "web"}, {"pool": "pci"}), ErrorCode.MANIFEST_INVALID)
    assert "spec.selector.labels.pool: pool=pci is a label of executor group 'pci'" in said
    assert "jobs with the labels team=pay only" in said
    await apply({"team": "pay"}, {"pool": "pci"})
    await apply({"team": "web"}, {"pool": "web"})
    await register("pci")
    await apply({"team": "web"}, {})
    [run] = (
        await call(
            "admin-cli", rpc.JobControlStub, "StartRuns", pb.StartRunsRequest(runs=[pb.StartRunRequest(job="pay")])
        )
    ).runs
    why = await call("admin-cli", rpc.JobReaderStub, "ExplainRun", pb.GetRunRequest(id=run.run_id))
    assert [one.message for one in why.executors] == ["its group 'pci' runs jobs with the labels team=pay only"]


async def test_job_labels_that_a_change_does_not_name_stay(operate):
    """A script of a release without them must not open the group to every job."""
    for given, kept in (
        ({"job_labels": {"team": "pay"}}, {"team": "pay"}),
        ({}, {"team": "pay"}),
        ({"job_labels": {"team": "web"}}, {"team": "web"}),
        ({"no_job_labels": True}, {}),
        ({}, {}),
    ):
        change = pb.SetExecutorGroupRequest(name="pci", labels={"pool": "pci"}, **given)
        assert dict((await operate("SetExecutorGroup", change)).job_labels) == kept, given
    made = pb.SetExecutorGroupRequest(name="new", create=True)
    assert dict((await operate("SetExecutorGroup", made)).job_labels) == {}


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"name": "A b"}, ErrorCode.INVALID_ARGUMENT),
        ({"name": "pci", "create": True}, ErrorCode.ALREADY_EXISTS),
        ({"name": "pcy"}, ErrorCode.NOT_FOUND),
        ({"name": "pci", "version": 7}, ErrorCode.CONFLICT),
        ({"name": "pci", "labels": {"a": "1"}, "claims": ["a"]}, ErrorCode.INVALID_ARGUMENT),
        ({"name": "pci", "labels": {"": "1"}}, ErrorCode.INVALID_ARGUMENT),
        ({"name": "pci", "labels": {"*": "1"}}, ErrorCode.INVALID_ARGUMENT),
        ({"name": "pci", "claims": ["a\n"]}, ErrorCode.INVALID_ARGUMENT),
        ({"name": "pci", "job_labels": {"a": ""}}, ErrorCode.INVALID_ARGUMENT),
        ({"name": "pci", "instances": ["unknown"]}, ErrorCode.NOT_FOUND),
    ],
)
async def test_a_bad_change_is_refused(operate, change, code):
    await refused(operate("SetExecutorGroup", pb.SetExecutorGroupRequest(**change)), code)
    found = await operate("ListExecutorGroups", pb.ListExecutorGroupsRequest())
    assert [(one.name, one.version) for one in found.groups] == [("default", 1), ("pci", 1), ("web", 1)]


async def test_a_group_without_executors_can_be_removed(register, operate, sql):
    await register("pci")

    def remove(name):
        return operate("RemoveExecutorGroup", pb.RemoveExecutorGroupRequest(name=name))

    assert "1 executors" in await refused(remove("pci"), ErrorCode.RESOURCE_INVALID_STATE)
    await refused(remove("default"), ErrorCode.RESOURCE_INVALID_STATE)
    await refused(remove("none"), ErrorCode.NOT_FOUND)
    await sql("UPDATE scheduler.executors SET state = 'off', off_reason = 'x', off_at = now()")
    await remove("pci")
    assert "does not exist" in await refused(register("pci"))
    assert await sql("SELECT 1 FROM scheduler.executor_instances WHERE executor_group = 'pci'") == []


def ticket(tls, **holder):
    signer = TicketSigner(TlsFiles(tls / "coordinator"))
    incarnation = "00000000-0000-4000-8000-000000000001"
    return signer.sign(run_id=1, token=5, incarnation=incarnation, log_day="2026-11-21", holder=TicketHolder(**holder))


async def test_the_next_incarnation_of_an_instance_gets_its_tickets_renewed(register, call, tls):
    mine, metadata = await register("pci", instance="mine", instance_secret=SECRET)
    old = ticket(tls, key_hash=b"k" * 32, instance_hash=hash_key(SECRET), group="pci")
    request = pb.RenewLogTicketsRequest(incarnation=mine, tickets=[old])
    answer = await call("executor-pci", rpc.ExecutorGatewayStub, "RenewLogTickets", request, metadata)
    [renewed] = answer.tickets
    body = TicketVerifier(TlsFiles(tls / "log-archiver"), "toban.internal").verify(
        renewed.ticket, now=SystemClock().wall()
    )
    assert (body.run_id, body.token, body.executor_group) == (1, 5, "pci")
    assert body.key_hash == hash_key(dict(metadata)["toban-incarnation-key"])
    assert body.incarnation == "00000000-0000-4000-8000-000000000001"


@pytest.mark.parametrize("holder", [{"instance_hash": b"x" * 32}, {}], ids=["another instance", "an unbound one"])
async def test_a_ticket_of_another_instance_is_not_renewed(register, call, tls, holder):
    mine, metadata = await register("web", instance_secret=SECRET)
    request = pb.RenewLogTicketsRequest(incarnation=mine, tickets=[ticket(tls, key_hash=b"k" * 32, **holder)])
    [answer] = (await call("executor-web", rpc.ExecutorGatewayStub, "RenewLogTickets", request, metadata)).tickets
    assert "of another instance" in answer.refusal and not answer.HasField("ticket")


async def test_what_an_executor_is_set_up_for_stays_while_it_runs(register, operate, call):
    """The proof that its pods have ended depends on it."""
    await operate("SetExecutorGroup", pb.SetExecutorGroupRequest(name="pci", claims=["toban.dev/steps", "zone"]))
    mine, _ = await register("pci", labels={"toban.dev/steps": "kubernetes", "zone": "a"})
    await operate("SetExecutorGroup", pb.SetExecutorGroupRequest(name="pci", labels={"pool": "pci"}))
    assert await labels_of(call, mine) == ("pci", {"pool": "pci", "toban.dev/steps": "kubernetes"})
    given = pb.SetExecutorGroupRequest(name="pci", labels={"toban.dev/steps": "kubernetes"})
    with pytest.raises(TobanError, match="a group may only allow it"):
        await operate("SetExecutorGroup", given)
