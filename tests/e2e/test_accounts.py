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
from toban_stack import processes
from toban_stack.certs import TRUST_DOMAIN
from toban_stack.stack import Stack
from toban_stack.wait import wait_until
from toban_testing.site_client import SiteClient
from toban_testing.stack_fixtures import admin_of, running_stack

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(240)]
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
