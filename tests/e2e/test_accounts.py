"""Accounts on a running stack, by the command line: from the one-time secret to a token, over all coordinators and a restart of one."""

import json
import os
import signal
import subprocess
import sys
import urllib.error
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from toban_domain.errors import TobanError
from toban_proto.v1 import coordinator_pb2 as pb
from toban_proto.v1 import coordinator_pb2_grpc as rpc
from toban_proto.v1 import logs_pb2, logs_pb2_grpc
from toban_stack import processes
from toban_stack.certs import TRUST_DOMAIN
from toban_stack.stack import Stack
from toban_stack.wait import wait_until
from toban_testing.site_client import SiteClient
from toban_testing.stack_fixtures import admin_of, running_stack
from toban_transport.person_rules import CREDENTIAL
from toban_transport.replica_client import Fleet
from toban_transport.tls import TlsFiles

pytestmark = pytest.mark.e2e
PASSWORD = "correct horse battery"
SECONDS = 60.0


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    with running_stack(tmp_path_factory.mktemp("accounts") / "home", executors=1) as stack:
        yield stack


@pytest.fixture
def toban(stack: Stack) -> Callable[..., Any]:
    """Runs a command; its data. `code` is the expected exit code, `typed` its standard input."""
    environment = os.environ | {
        "SCHEDULER_COORDINATORS": ",".join(stack.coordinators),
        "SCHEDULER_LOG_ARCHIVERS": ",".join(stack.log_archivers),
        "SCHEDULER_TLS_DIR": str(stack.home.tls),
        "SCHEDULER_TRUST_DOMAIN": TRUST_DOMAIN,
    }

    def call(*words: str, typed: str = "", code: int = 0, token: str = "") -> Any:
        command = [sys.executable, "-m", "toban_cli", *words, "-o", "json"]
        env = environment | ({"TOBAN_TOKEN": token} if token else {})
        done = subprocess.run(command, input=typed, capture_output=True, text=True, env=env, check=False)
        assert done.returncode == code, (done.stdout, done.stderr)
        return json.loads(done.stdout or done.stderr)

    return call


def authenticate(stack: Stack, **given: str) -> pb.AuthenticateResponse:
    with admin_of(stack) as admin:
        answer: pb.AuthenticateResponse = admin.call(
            rpc.AccountsStub, "Authenticate", pb.AuthenticateRequest(address="192.0.2.1", **given)
        )
        return answer


def test_from_the_one_time_secret_to_a_token(stack: Stack, toban: Callable[..., Any], tmp_path: Path) -> None:
    secret = toban("user", "bootstrap")["secret"]
    toban("user", "first", "ada", typed=f"{secret}\n{PASSWORD}\n")
    toban("user", "first", "eve", typed=f"{secret}\n{PASSWORD}\n", code=74)
    toban("user", "disable", "ada", code=74)
    manifest = tmp_path / "backup.yaml"
    manifest.write_text(
        "apiVersion: toban/v1\nkind: Job\nmetadata: {name: backup, labels: {team: ops}}\n"
        "spec: {steps: [{id: run, argv: [/bin/true]}]}\n"
    )
    toban("apply", "-f", str(manifest))
    toban("user", "add", "bob", "--password", typed=f"{PASSWORD}\n")
    assert toban("user", "may", "bob", "run", "backup", code=1)["reason"] == "no rule gives bob operator for this"
    toban("user", "grant", "bob", "operator", "--label", "team=ops")
    assert toban("user", "may", "bob", "run", "backup")["allowed"]

    session = authenticate(stack, user="bob", password=PASSWORD).session
    token = toban("token", "create", "bob", "ci", "--role", "viewer")["secret"]
    assert [job["name"] for job in toban("job", "list", token=token)] == ["backup"]
    assert "may not run" in str(toban("run", "start", "backup", token=token, code=77))
    assert toban("--direct", "run", "start", "backup", token=token)
    leader = next(name for name, record in stack.processes().items() if record.role == "coordinator")
    record = stack.processes()[leader]
    stack.kill(leader, signal.SIGKILL)
    assert wait_until(lambda: not processes.alive(record), SECONDS)
    assert authenticate(stack, session=session).user == "bob", "another coordinator knows the session"
    assert authenticate(stack, token=token).role == "viewer"
    stack.start(leader)
    toban("user", "sign-out", "bob")
    toban("user", "disable", "bob", "--reason", "left the team")
    for given in ({"session": session}, {"token": token}):
        with pytest.raises(TobanError, match=r"ended|revoked"):
            authenticate(stack, **given)
    audit = toban("audit", "list", "--limit", "50")
    assert {"first_admin", "add_user", "add_rule", "create_token", "sign_in", "disable_user"} <= {
        one["action"] for one in audit
    }
    logs = "".join(path.read_text(errors="replace") for path in stack.home.logs.glob("*"))
    for hidden in (PASSWORD, secret, token, session):
        assert hidden not in json.dumps(audit) and hidden not in logs


def test_output_is_for_those_who_may_see_its_job(stack: Stack, toban: Callable[..., Any]) -> None:
    """Over real coordinators and log-archivers: a read, a search, and a ticket of one person for a run of others."""
    with admin_of(stack) as admin:
        for name in ("ops", "web"):
            metadata = {"name": f"speaks-{name}", "labels": {"team": name}}
            spec = {"steps": [{"id": "run", "argv": ["/bin/echo", f"of {name}"]}]}
            admin.apply({"apiVersion": "toban/v1", "kind": "Job", "metadata": metadata, "spec": spec})
        [ops], [web] = admin.start("speaks-ops"), admin.start("speaks-web")
        for run, name in ((ops, "ops"), (web, "web")):
            admin.until(lambda run=run, name=name: admin.log(run) == [f"of {name}"], seconds=60, of=f"output of {run}")  # type: ignore[misc]
    toban("user", "add", "eve", "--password", typed=f"{PASSWORD}\n")
    toban("user", "grant", "eve", "viewer", "--label", "team=ops")
    token = toban("token", "create", "eve", "cli", "--role", "viewer")["secret"]
    assert toban("run", "logs", str(ops), token=token)["text"] == "of ops"
    assert toban("job", "logs", "speaks-ops", token=token)["run"] == ops
    for words in (("run", "logs", str(web)), ("job", "logs", "speaks-web")):
        assert "eve may not view" in str(toban(*words, token=token, code=77))
    files = TlsFiles(stack.home.tls / "admin-cli")
    coordinators = Fleet(service="coordinator", addresses=stack.coordinators, tls=files, trust_domain=TRUST_DOMAIN)
    archivers = Fleet(service="log-archiver", addresses=stack.log_archivers, tls=files, trust_domain=TRUST_DOMAIN)
    try:
        answer = coordinators.call(
            lambda channel: rpc.JobReaderStub(channel).GetReadTicket,
            pb.GetReadTicketRequest(run_ids=[ops, web]),
            timeout=10,
            metadata=((CREDENTIAL, token),),
        )
        assert list(answer.run_ids) == [ops]
        stub = logs_pb2_grpc.LogReaderStub
        wanted = logs_pb2.SearchLogRequest(run_ids=[ops, web], ticket=answer.ticket)
        with pytest.raises(TobanError, match=f"user eve, token .* is not for run {web}"):
            list(archivers.stream(lambda channel: stub(channel).Search, wanted, timeout=10))
        wanted.run_ids[:] = answer.run_ids
        found = list(archivers.stream(lambda channel: stub(channel).Search, wanted, timeout=10))
        assert [hit.line.text for part in found for hit in part.hits] == [b"of ops"]
    finally:
        coordinators.close()
        archivers.close()


def test_people_keep_their_own_account(stack: Stack, toban: Callable[..., Any]) -> None:
    toban("user", "add", "carl", "--password", typed=f"{PASSWORD}\n")
    toban("user", "grant", "carl", "operator")
    token = toban("token", "create", "carl", "cli", "--role", "operator")["secret"]
    session = authenticate(stack, user="carl", password=PASSWORD).session
    [listed] = toban("user", "sessions", token=token)
    toban("user", "end-session", str(listed["id"]), token=token)
    with pytest.raises(TobanError, match="ended"):
        authenticate(stack, session=session)
    made = toban("token", "create-own", "ci", token=token)
    assert authenticate(stack, token=made["secret"]).role == "viewer"
    assert "narrower than the account" in str(toban("token", "own", token=made["secret"], code=77))
    assert [one["name"] for one in toban("token", "own", token=token)] == ["ci", "cli"]
    toban("token", "revoke-own", str(made["id"]), token=token)
    toban("token", "create-own", "all", "--role", "admin", token=token, code=77)
    authenticate(stack, user="carl", password=PASSWORD)
    changed = "another horse battery"
    assert toban("user", "passwd", typed=f"{PASSWORD}\n{changed}\n", token=token)["ended"] == 1
    assert authenticate(stack, user="carl", password=changed).user == "carl"
    assert "a certificate has no account" in str(toban("--direct", "user", "sessions", token=token, code=77))


def test_the_site_from_the_one_time_link_to_a_revoked_session(tmp_path: Path) -> None:
    """Two coordinators and two sites: what is taken away at one is gone at the other."""
    with running_stack(tmp_path / "home", executors=1, admin_webs=2) as stack, admin_of(stack) as admin:
        one, other = (SiteClient(address) for address in stack.sites)
        assert "First administrator" in one.get("/runs") and one.open("/").url.endswith("/first")
        secret = admin.call(rpc.AccountsStub, "CreateBootstrapLink", pb.CreateBootstrapLinkRequest()).secret
        path, page = one.submit("/first", "/first", link=secret, user="ada", password=PASSWORD, again=PASSWORD)
        assert path == "/" and "ada" in page
        assert other.sign_in("ada", PASSWORD) == "/" and "ada" in other.get("/executors")

        admin.call(rpc.AccountsStub, "AddUser", pb.AddUserRequest(name="bob", password=PASSWORD))
        bob = SiteClient(stack.sites[0])
        with pytest.raises(urllib.error.HTTPError) as caught:
            bob.sign_in("bob", PASSWORD)
        with caught.value as refused:
            assert refused.code == 403 and "no rule gives bob viewer" in refused.read().decode()

        path, _ = one.submit("/account", "/sign-out", everywhere="1")
        assert path == "/sign-in"
        assert wait_until(lambda: "/sign-in" in other.open("/runs").url, 30)
        actors = {
            (entry.action, entry.actor)
            for entry in admin.call(rpc.OperationsStub, "ListAudit", pb.ListAuditRequest()).entries
        }
        assert {("sign_in", "user ada"), ("sign_in", "user bob"), ("add_user", "certificate admin-cli")} <= actors
