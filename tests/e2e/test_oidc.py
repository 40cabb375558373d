"""Sign-in with an OpenID provider on a running stack: two coordinators, two sites, passwords switched off."""

import json
import urllib.error
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from toban_domain.errors import TobanError
from toban_proto.v1 import coordinator_pb2 as pb
from toban_proto.v1 import coordinator_pb2_grpc as rpc
from toban_testing.oidc_provider import CLIENT, SECRET, Provider
from toban_testing.site_client import SiteClient
from toban_testing.stack_fixtures import admin_of, running_stack

pytestmark = [pytest.mark.e2e, pytest.mark.long]
PASSWORD = "correct horse battery"


@pytest.fixture
def provider() -> Iterator[Provider]:
    made = Provider()
    made.start()
    yield made
    made.stop()


def enter(browser: SiteClient) -> str:
    """By the button of the page, to the provider and back: the page where that ends."""
    page = browser.get("/")
    path = page.partition('class="button" href="')[2].partition('"')[0]
    assert urlsplit(path).path == "/sign-in/oidc", page
    return browser.get(path)


def problem(browser: SiteClient) -> str:
    with pytest.raises(urllib.error.HTTPError) as caught:
        enter(browser)
    with caught.value as refused:
        return refused.read().decode()


def test_from_the_button_to_a_session(tmp_path: Path, provider: Provider) -> None:
    secret = tmp_path / "client-secret"
    secret.write_text(SECRET + "\n")
    environment = {
        "SCHEDULER_OIDC_ISSUER": provider.issuer,
        "SCHEDULER_OIDC_CLIENT_ID": CLIENT,
        "SCHEDULER_OIDC_NAME": "Example",
        "SCHEDULER_OIDC_GROUPS": json.dumps({"admins": "admin", "staff": "viewer"}),
        "SCHEDULER_OIDC_CREATE_ACCOUNTS": "true",
        "SCHEDULER_OIDC_CLIENT_SECRET_FILE": str(secret),
        "SCHEDULER_PASSWORD_SIGN_IN": "false",
    }
    with (
        running_stack(tmp_path / "home", executors=1, admin_webs=2, environment=environment) as stack,
        admin_of(stack) as admin,
    ):
        one = SiteClient(stack.sites[0])
        # The first administrator, without a one-time link.
        provider.user = {"sub": "s-1", "preferred_username": "ada", "groups": ["admins"]}
        assert "ada" in enter(one)
        provider.user = {"sub": "s-2", "preferred_username": "bob", "groups": ["staff"]}
        bob = SiteClient(stack.sites[1])
        assert "bob" in enter(bob) and "bob" in bob.get("/runs")
        assert 'name="password"' not in SiteClient(stack.sites[0]).get("/sign-in")
        admin.call(rpc.AccountsStub, "AddUser", pb.AddUserRequest(name="eve", password=PASSWORD))
        with pytest.raises(TobanError, match="passwords are switched off"):
            admin.call(rpc.AccountsStub, "Authenticate", pb.AuthenticateRequest(user="eve", password=PASSWORD))

        provider.user = {"sub": "s-3", "preferred_username": "eve", "groups": []}
        stranger = SiteClient(stack.sites[0])
        assert "subject s-3" in problem(stranger)
        admin.call(rpc.AccountsStub, "LinkUser", pb.LinkUserRequest(name="eve", subject="s-3"))
        # Eve is known, and has no role.
        assert "no rule gives eve viewer" in problem(stranger)
        admin.call(rpc.AccountsStub, "UpdateUser", pb.UpdateUserRequest(name="eve", enabled=False))
        assert "the account eve is disabled" in problem(SiteClient(stack.sites[0]))
        provider.claims = {"aud": "other"}
        assert "for another client" in problem(SiteClient(stack.sites[0]))
        provider.down = True
        assert "bob" in bob.get("/runs"), "sessions go on"
        logs = "".join(path.read_text(errors="replace") for path in stack.home.logs.glob("*"))
        assert SECRET not in logs and "eyJ" not in logs
