"""Accounts on a running stack: from a password to a token, over all coordinators; the first administrator by the one-time secret."""

import json
import signal
import urllib.error
from collections.abc import Callable
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
from toban_testing.stack_fixtures import admin_of, running_stack, toban_process
from toban_transport.person_rules import CREDENTIAL
from toban_transport.replica_client import Fleet
from toban_transport.tls import TlsFiles

pytestmark = pytest.mark.e2e
PASSWORD = "correct horse battery"
SECONDS = 60.0


def authenticate(stack: Stack, *, without: str = "", **given: str) -> pb.AuthenticateResponse:
    with admin_of(stack, without=without) as admin:
        answer: pb.AuthenticateResponse = admin.call(
            rpc.AccountsStub, "Authenticate", pb.AuthenticateRequest(address="192.0.2.1", **given)
        )
        return answer


def test_from_a_password_to_a_token(stack: Stack, toban_json: Callable[..., Any], tmp_path: Path) -> None:
    manifest = tmp_path / "backup.yaml"
    manifest.write_text(
        "apiVersion: toban/v1\nkind: Job\nmetadata: {name: backup, labels: {team: backup}}\n"
        "spec: {steps: [{id: run, argv: [/bin/true]}]}\n"
    )
    toban_json("apply", "-f", str(manifest))
    toban_json("user", "add", "bob", "--password", typed=f"{PASSWORD}\n")
    assert toban_json("user", "may", "bob", "run", "backup", code=1)["reason"] == "no rule gives bob operator for this"
    toban_json("user", "grant", "bob", "operator", "--label", "team=backup")
    assert toban_json("user", "may", "bob", "run", "backup")["allowed"]

    session = authenticate(stack, user="bob", password=PASSWORD).session
    token = toban_json("token", "add", "bob", "ci", "--role", "viewer")["secret"]
    assert [job["name"] for job in toban_json("job", "list", TOBAN_TOKEN=token)] == ["backup"]
    assert "may not run" in str(toban_json("run", "start", "backup", TOBAN_TOKEN=token, code=77))
    assert toban_json("--direct", "run", "start", "backup", TOBAN_TOKEN=token)
    for name in ("coordinator-1", "coordinator-2"):
        assert authenticate(stack, without=name, session=session).user == "bob", "each coordinator knows the session"
        assert authenticate(stack, without=name, token=token).role == "viewer"
    toban_json("user", "sign-out", "bob")
    toban_json("user", "disable", "bob", "--reason", "left the team")
    for given in ({"session": session}, {"token": token}):
        with pytest.raises(TobanError, match=r"ended|revoked"):
            authenticate(stack, **given)
    audit = toban_json("audit", "list", "--limit", "50")
    assert {"add_user", "add_rule", "create_token", "sign_in", "disable_user"} <= {one["action"] for one in audit}
    logs = "".join(path.read_text(errors="replace") for path in stack.home.logs.glob("*"))
    for hidden in (PASSWORD, token, session):
        assert hidden not in json.dumps(audit) and hidden not in logs


def test_output_is_for_those_who_may_see_its_job(stack: Stack, toban_json: Callable[..., Any]) -> None:
    """Over real coordinators and log-archivers: a read, a search, and a ticket of one person for a run of others."""
    with admin_of(stack) as admin:
        for name in ("ops", "web"):
            metadata = {"name": f"speaks-{name}", "labels": {"team": name}}
            spec = {"steps": [{"id": "run", "argv": ["/bin/echo", f"of {name}"]}]}
            admin.apply({"apiVersion": "toban/v1", "kind": "Job", "metadata": metadata, "spec": spec})
        [ops], [web] = admin.start("speaks-ops"), admin.start("speaks-web")
        for run, name in ((ops, "ops"), (web, "web")):
            admin.until(lambda run=run, name=name: admin.log(run) == [f"of {name}"], of=f"output of {run}")  # type: ignore[misc]
    toban_json("user", "add", "eve", "--password", typed=f"{PASSWORD}\n")
    toban_json("user", "grant", "eve", "viewer", "--label", "team=ops")
    token = toban_json("token", "add", "eve", "cli", "--role", "viewer")["secret"]
    assert toban_json("run", "logs", str(ops), TOBAN_TOKEN=token)["text"] == "of ops"
    assert toban_json("job", "logs", "speaks-ops", TOBAN_TOKEN=token)["run"] == ops
    for words in (("run", "logs", str(web)), ("job", "logs", "speaks-web")):
        assert "eve may not view" in str(toban_json(*words, TOBAN_TOKEN=token, code=77))
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


def test_people_keep_their_own_account(stack: Stack, toban_json: Callable[..., Any]) -> None:
    toban_json("user", "add", "carl", "--password", typed=f"{PASSWORD}\n")
    toban_json("user", "grant", "carl", "operator")
    token = toban_json("token", "add", "carl", "cli", "--role", "operator")["secret"]
    session = authenticate(stack, user="carl", password=PASSWORD).session
    [listed] = toban_json("user", "sessions", TOBAN_TOKEN=token)
    toban_json("user", "end-session", str(listed["id"]), TOBAN_TOKEN=token)
    with pytest.raises(TobanError, match="ended"):
        authenticate(stack, session=session)
    made = toban_json("token", "add-own", "ci", TOBAN_TOKEN=token)
    assert authenticate(stack, token=made["secret"]).role == "viewer"
    assert "narrower than the account" in str(toban_json("token", "own", TOBAN_TOKEN=made["secret"], code=77))
    assert [one["name"] for one in toban_json("token", "own", TOBAN_TOKEN=token)] == ["ci", "cli"]
    toban_json("token", "revoke-own", str(made["id"]), TOBAN_TOKEN=token)
    toban_json("token", "add-own", "all", "--role", "admin", TOBAN_TOKEN=token, code=77)
    authenticate(stack, user="carl", password=PASSWORD)
    changed = "another horse battery"
    assert toban_json("user", "passwd", typed=f"{PASSWORD}\n{changed}\n", TOBAN_TOKEN=token)["ended"] == 1
    assert authenticate(stack, user="carl", password=changed).user == "carl"
    assert "a certificate has no account" in str(toban_json("--direct", "user", "sessions", TOBAN_TOKEN=token, code=77))


@pytest.mark.long
def test_the_one_time_secret_is_for_the_first_administrator(tmp_path: Path) -> None:
    """By command, over two coordinators; what they know outlives one of them."""
    with running_stack(tmp_path / "home", executors=1) as stack:

        def toban(*words: str, typed: str = "", code: int = 0) -> Any:
            done = toban_process(stack, *words, "-o", "json", typed=typed)
            assert done.returncode == code, (done.stdout, done.stderr)
            return json.loads(done.stdout or done.stderr)

        secret = toban("user", "bootstrap")["secret"]
        toban("user", "first", "ada", typed=f"{secret}\n{PASSWORD}\n")
        toban("user", "first", "eve", typed=f"{secret}\n{PASSWORD}\n", code=74)
        toban("user", "disable", "ada", code=74)
        session = authenticate(stack, user="ada", password=PASSWORD).session
        token = toban("token", "add", "ada", "ci", "--role", "viewer")["secret"]
        name = next(name for name, record in stack.processes().items() if record.role == "coordinator")
        record = stack.processes()[name]
        stack.kill(name, signal.SIGKILL)
        assert wait_until(lambda: not processes.alive(record), SECONDS)
        assert authenticate(stack, session=session).user == "ada", "another coordinator knows the session"
        assert authenticate(stack, token=token).role == "viewer"
        stack.start(name)
        audit = toban("audit", "list", "--limit", "50")
        assert {"first_admin", "create_token", "sign_in"} <= {one["action"] for one in audit}
        logs = "".join(path.read_text(errors="replace") for path in stack.home.logs.glob("*"))
        for hidden in (PASSWORD, secret, token, session):
            assert hidden not in json.dumps(audit) and hidden not in logs


@pytest.mark.long
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
