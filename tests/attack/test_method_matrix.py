"""Every method of the proto by every certificate and by every role that may not call it, at every server."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf.descriptor import MethodDescriptor

from toban_domain.access import MINIMUM, Role
from toban_domain.errors import ErrorCode, TobanError
from toban_proto.v1 import coordinator_pb2 as pb
from toban_proto.v1 import coordinator_pb2_grpc as rpc
from toban_transport.authz import METHOD_RULES, SERVICES, service_of
from toban_transport.person_rules import CREDENTIAL, PERSON_RULES
from toban_transport.rules import About

SERVED = {
    "WorkerService": "executor",
    "LogIngest": "log-archiver",
    "LogReader": "log-archiver",
    "LogArchive": "log-archiver",
    "Signer": "signer",
}
"""Service of the proto → who serves it; a coordinator the others."""
CERTIFICATES = {
    **{name: name for name in sorted(SERVICES)},
    "executor-pci": "executor/pci",
    "external-worker.gpu": "external-worker/gpu",
    "shared-all": "shared/all",
}
"""Folder of a certificate → what it names."""
STRANGE = (
    "/toban_proto.v1.jobreader/ListJobs",
    "/toban_proto.v1.JobReader/listjobs",
    "/toban_proto.v1.JobReader/ListJobs/",
    "/toban_proto.v1.JobReader/../JobControl/Apply",
    "//toban_proto.v1.JobReader/ListJobs",
    "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
    "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
    "/grpc.channelz.v1.Channelz/GetServers",
)
ROLES = ("none", *(str(role) for role in Role))
SECONDS = 20.0


def methods() -> Iterator[MethodDescriptor]:
    """All of our services'."""
    folder = Path(import_module("toban_proto.v1").__path__[0])
    for file in sorted(folder.glob("*_pb2.py")):
        for service in import_module(f"toban_proto.v1.{file.stem}").DESCRIPTOR.services_by_name.values():
            yield from service.methods


def path_of(method: MethodDescriptor) -> str:
    return f"/{method.containing_service.full_name}/{method.name}"


def raw(channel: grpc.Channel, path: str, data: bytes = b"", **given: Any) -> Callable[[], bytes]:
    """A call with these bytes; a stream of the server is refused in the same way as a single answer."""
    return lambda: channel.unary_unary(path)(data, timeout=SECONDS, **given)


def token(admin: Any, name: str, role: str, **selector: str) -> str:
    """The API token of a new account that has this role."""
    admin.call(rpc.AccountsStub, "AddUser", pb.AddUserRequest(name=name))
    chosen = pb.AccessSelector(**selector)
    if role != "none":
        rule = pb.AccessRule(user=name, effect="allow", role=role, selector=chosen)
        admin.call(rpc.AccountsStub, "AddRule", pb.AddRuleRequest(rule=rule))
    request = pb.CreateTokenRequest(user=name, name="attack", role="admin", days=1)
    return str(admin.call(rpc.AccountsStub, "CreateToken", request).secret)


@pytest.mark.parametrize("folder", CERTIFICATES)
def test_no_certificate_calls_what_its_service_may_not(attacks: Any, channel: Any, servers: Any, folder: str) -> None:
    caller = service_of(CERTIFICATES[folder])
    for method in methods():
        path = path_of(method)
        for server in servers:
            served = SERVED.get(method.containing_service.name, "coordinator") == server
            if served and caller in METHOD_RULES[path]:
                continue
            # What a server does not serve has no rule there that could fail; it says so to everybody.
            codes = (ErrorCode.PERMISSION_DENIED,) if served else (ErrorCode.PERMISSION_DENIED, ErrorCode.UNIMPLEMENTED)
            attacks.call(f"{path} of {server} as {folder}", raw(channel(server, folder), path), *codes)


@pytest.mark.parametrize("path", STRANGE)
def test_paths_that_are_nearly_a_method_lead_nowhere(attacks: Any, channel: Any, servers: Any, path: str) -> None:
    for server in servers:
        for folder in ("admin-cli", "executor"):
            codes = (ErrorCode.PERMISSION_DENIED, ErrorCode.UNIMPLEMENTED)
            attacks.call(f"{path} of {server} as {folder}", raw(channel(server, folder), path), *codes)


@pytest.mark.parametrize("role", ROLES[:-1])
def test_no_role_does_what_needs_a_higher_one(attacks: Any, channel: Any, admin: Any, role: str) -> None:
    credential = ((CREDENTIAL, token(admin, f"matrix-{role}", role)),)
    site = channel("coordinator", "admin-web")
    for path, rule in PERSON_RULES.items():
        needed = ROLES.index(str(MINIMUM[rule.action]))
        served = SERVED.get(path.split(".")[-1].split("/")[0], "coordinator")
        if rule.about is About.OWN or needed <= ROLES.index(role) or served != "coordinator":
            continue
        attacks.call(f"{path} as {role}", raw(site, path, metadata=credential), ErrorCode.PERMISSION_DENIED)


def test_the_site_does_nothing_for_people_without_their_credential(attacks: Any, channel: Any, admin: Any) -> None:
    site = channel("coordinator", "admin-web")
    ended = token(admin, "matrix-ended", "admin")
    admin.call(rpc.AccountsStub, "UpdateUser", pb.UpdateUserRequest(name="matrix-ended", enabled=False))

    def known() -> bool:
        try:
            raw(site, "/toban_proto.v1.JobReader/ListJobs", metadata=((CREDENTIAL, ended),))()
        except (TobanError, grpc.RpcError):
            return False
        return True

    admin.until(lambda: not known(), of="the coordinators know that the account is disabled")
    for credential in ("", ended, "x" * 43, "' OR 1=1 --", ended[:-1], ended.swapcase()):
        metadata = ((CREDENTIAL, credential),) if credential else ()
        for path in PERSON_RULES:
            refusals = (ErrorCode.UNAUTHENTICATED, ErrorCode.PERMISSION_DENIED)
            attacks.call(f"{path} with {credential[:12]!r}", raw(site, path, metadata=metadata), *refusals)


def test_a_role_for_some_jobs_reaches_no_other_job(attacks: Any, channel: Any, admin: Any) -> None:
    for name in ("mine", "theirs"):
        spec = {"steps": [{"argv": ["true"]}]}
        admin.apply({"apiVersion": "toban/v1", "kind": "Job", "metadata": {"name": name}, "spec": spec})
    [run] = admin.start("theirs")
    admin.until_ended(run)
    credential = ((CREDENTIAL, token(admin, "matrix-some", "editor", job="mine")),)
    site = channel("coordinator", "admin-web")
    reader, control = rpc.JobReaderStub(site), rpc.JobControlStub(site)
    reader.GetJob(pb.GetJobRequest(name="mine"), timeout=SECONDS, metadata=credential)
    for work, request in (
        (reader.GetJob, pb.GetJobRequest(name="theirs")),
        (reader.GetRun, pb.GetRunRequest(id=run)),
        (reader.ExplainRun, pb.GetRunRequest(id=run)),
        (reader.GetReadTicket, pb.GetReadTicketRequest(run_ids=[run])),
        (control.StartRuns, pb.StartRunsRequest(runs=[pb.StartRunRequest(job="theirs")])),
        (control.RerunRun, pb.RerunRunRequest(id=run)),
        (control.CancelRun, pb.CancelRunRequest(id=run)),
        (control.DeleteJob, pb.DeleteJobRequest(name="theirs")),
        (control.DisableJob, pb.DisableJobRequest(name="theirs")),
        (control.EmitEvent, pb.EmitEventRequest(event_type="x")),
    ):
        call = lambda work=work, request=request: work(request, timeout=SECONDS, metadata=credential)  # noqa: E731
        attacks.call(type(request).__name__, call, ErrorCode.PERMISSION_DENIED)
