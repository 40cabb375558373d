"""Attacks on the site: its names, its forms, its sign-in, its REST interface, its hooks, and addresses that webhooks must not reach."""

from __future__ import annotations

import http.client
import json
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from toban_domain.errors import ErrorCode, TobanError
from toban_proto.v1 import coordinator_pb2 as pb
from toban_proto.v1 import coordinator_pb2_grpc as rpc
from toban_proto.v1 import webhooks_pb2, webhooks_pb2_grpc
from toban_testing.admin_client import AdminClient
from toban_testing.site_client import PASSWORD, USER, signed_in
from toban_testing.stack_fixtures import admin_of
from toban_transport.client_calls import unary_sync

SECONDS = 30.0


@pytest.fixture(scope="module")
def browser(stack: Any) -> Any:
    return signed_in(stack)


@pytest.fixture
def ask(stack: Any, browser: Any) -> Any:
    """`ask(method, path, body, headers)`: the status, headers and text of one request, with the cookie of a signed-in person."""
    cookie = "; ".join(f"{one.name}={one.value}" for one in browser.cookies)

    def send(method: str, path: str, body: str = "", **headers: str) -> tuple[int, dict[str, str], str]:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        connection = http.client.HTTPConnection(stack.sites[0], timeout=SECONDS)
        try:
            connection.request(method, path, body or None, {"Cookie": cookie, **named})
            answer = connection.getresponse()
            return answer.status, dict(answer.getheaders()), answer.read().decode("utf-8", "replace")
        finally:
            connection.close()

    return send


HOSTS = (
    "evil.example",
    "127.0.0.1.evil.example",
    "localhost.evil.example",
    "0.0.0.0",
    "169.254.169.254",
    "[::]",
    "a b",
    "127.0.0.1@evil.example",
)


def test_other_names_of_the_site_are_refused(attacks: Any, ask: Any) -> None:
    assert ask("GET", "/jobs")[0] == 200
    for host in HOSTS:
        status, _, text = ask("GET", "/jobs", Host=host)
        attacks.expect(f"Host: {host}", refused=status in (400, 421) and "//evil" not in text, instead=status)
    status, headers, text = ask(
        "GET", "/jobs", X_Forwarded_Host="evil.example", X_Forwarded_For="10.0.0.1", Forwarded="host=evil.example"
    )
    attacks.expect("X-Forwarded-Host", refused="evil.example" not in text + str(headers), instead=status)


def test_no_change_without_the_form_of_the_site(attacks: Any, ask: Any, stack: Any) -> None:
    ours = f"http://{stack.sites[0]}"
    for path in (
        "/sign-out",
        "/account/password",
        "/jobs/plain/start",
        "/executors/1/drain",
        "/settings/log_retention_days_archive",
    ):
        for what, headers in {
            "another origin": {"Origin": "https://evil.example"},
            "the origin null": {"Origin": "null"},
            "another port": {"Origin": "http://127.0.0.1:1"},
            "no origin": {},
            "another site": {"Sec_Fetch_Site": "cross-site"},
            "no token of the form": {"Origin": ours},
        }.items():
            kind = {"Content_Type": "application/x-www-form-urlencoded", **headers}
            status, _, _ = ask("POST", path, "x=1", **kind)
            attacks.expect(f"POST {path} with {what}", refused=400 <= status < 500, instead=status)
        for method in ("GET", "PUT", "DELETE", "PATCH", "TRACE", "CONNECT"):
            status, _, _ = ask(method, path, Origin=ours)
            attacks.expect(f"{method} {path}", refused=status in (303, 302, 501) or 400 <= status < 500, instead=status)
    assert ask("GET", "/jobs")[0] == 200, "the session is still there"


def test_paths_lead_to_no_file_and_to_no_other_site(attacks: Any, ask: Any) -> None:
    for path in (
        "/static/../../../../etc/passwd",
        "/static/%2e%2e/%2e%2e/%2e%2e/etc/passwd",
        "/static/..%2f..%2f..%2fetc/passwd",
        "/static//etc/passwd",
        "/static/..\\..\\etc\\passwd",
        "/runs/1/log/../../../../etc/passwd",
    ):
        status, _, text = ask("GET", path)
        attacks.expect(path, refused=300 <= status < 500 and "root:" not in text, instead=status)
    for target in (
        "//evil.example",
        "https://evil.example",
        "/\\evil.example",
        "javascript:alert(1)",
        "/%09/evil.example",
    ):
        status, headers, text = ask("GET", f"/sign-in?next={target}")
        place = headers.get("Location", "")
        attacks.expect(f"next={target}", refused="evil" not in place and f'href="{target}"' not in text, instead=place)


@pytest.fixture(scope="module")
def guesser(stack: Any) -> str:
    """An account that nobody else signs in to, so that its failures stop no other test."""
    with admin_of(stack) as admin:
        admin.call(rpc.AccountsStub, "AddUser", pb.AddUserRequest(name="guessed", password=PASSWORD))
    return "guessed"


def test_guesses_are_throttled_and_tell_nothing(attacks: Any, admin: AdminClient, channel: Any, guesser: str) -> None:
    """Also many at the same time: an attempt counts before its password is looked at."""
    stub = rpc.AccountsStub(channel("coordinator", "admin-web"))

    def guess(user: str, password: str, address: str) -> TobanError:
        request = pb.AuthenticateRequest(user=user, password=password, address=address)
        with pytest.raises(TobanError) as caught:
            unary_sync(stub.Authenticate, request, timeout=60)
        return caught.value

    unknown, known = guess("nobody", "wrong password", "192.0.2.7"), guess(guesser, "wrong password", "192.0.2.8")
    attacks.expect("whether an account exists", refused=(unknown.code, unknown.message) == (known.code, known.message))
    with ThreadPoolExecutor(8) as threads:
        found = list(threads.map(lambda number: guess(guesser, f"wrong password {number}", "192.0.2.9"), range(40)))
    wrong = sum(one.message == known.message for one in found)
    # The delay doubles: twenty of them would take hours.
    attacks.expect("40 guesses at the same time", refused=wrong < 20, instead=f"{wrong} were looked at")
    for one in found:
        attacks.expect("a guess", refused=one.code in (known.code, ErrorCode.RESOURCE_EXHAUSTED), instead=one.message)


@pytest.mark.parametrize("password", ["", "x" * 100_000, "nul\0", "\ud7ff" * 300])
def test_what_is_no_password_is_refused_before_it_is_hashed(attacks: Any, channel: Any, password: str) -> None:
    stub = rpc.AccountsStub(channel("coordinator", "admin-web"))
    request = pb.AuthenticateRequest(user=USER, password=password, address="192.0.2.10")
    codes = (
        ErrorCode.UNAUTHENTICATED,
        ErrorCode.INVALID_ARGUMENT,
        ErrorCode.RESOURCE_EXHAUSTED,
        ErrorCode.PERMISSION_DENIED,
    )
    attacks.call(password[:5], lambda: stub.Authenticate(request, timeout=SECONDS), *codes)


def test_the_rest_interface_needs_a_credential_of_its_own(attacks: Any, ask: Any, stack: Any) -> None:
    document = json.dumps({"runs": [{"job": "plain"}]})
    for what, headers in {
        "no credential": {"Cookie": ""},
        "a wrong token": {"Cookie": "", "Authorization": "Bearer " + "x" * 43},
        "a basic password": {"Cookie": "", "Authorization": "Basic YTpi"},
        "a cookie and another origin": {"Origin": "https://evil.example"},
        "a cookie and no token of the form": {"Origin": f"http://{stack.sites[0]}"},
    }.items():
        status, headers_found, _ = ask("POST", "/api/v1/runs", document, Content_Type="application/json", **headers)
        attacks.expect(f"a run with {what}", refused=status in (400, 401, 403), instead=status)
        attacks.expect(f"{what} from another page", refused="Access-Control-Allow-Origin" not in headers_found)
    status, _, _ = ask("GET", "/api/v1/jobs?token=" + "x" * 43, Cookie="")
    attacks.expect("a token in the address", refused=status in (400, 401, 403), instead=status)


def test_hooks_take_nothing_that_is_not_signed(attacks: Any, ask: Any) -> None:
    answers = set()
    for path in ("/hooks/none", "/hooks/a%2fb", "/hooks/" + "x" * 200):
        for headers in ({}, {"webhook-id": "1", "webhook-timestamp": "1", "webhook-signature": "v1,AAAA"}):
            status, _, text = ask("POST", path, "{}", Content_Type="application/json", **headers)
            attacks.expect(f"{path[:20]} with {len(headers)} headers", refused=400 <= status < 500, instead=status)
            answers.add(text)
    status, _, _ = ask("POST", "/hooks/none", "x" * 1_000_000)
    attacks.expect("1 MB", refused=status in (401, 404, 413), instead=status)


@pytest.fixture
def canary() -> Iterator[tuple[int, list[object]]]:
    """A port of this machine that nothing may connect to, and who did."""
    seen: list[object] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def accept() -> None:
            while True:
                try:
                    connection, peer = listener.accept()
                except OSError:
                    return
                seen.append(peer)
                connection.close()

        thread = threading.Thread(target=accept, daemon=True)
        thread.start()
        yield listener.getsockname()[1], seen
        listener.shutdown(socket.SHUT_RDWR)
    thread.join()


def test_no_webhook_reaches_the_own_network(attacks: Any, admin: AdminClient, canary: tuple[int, list[object]]) -> None:
    port, seen = canary
    hosts = (
        "127.0.0.1",
        "localhost",
        "[::1]",
        "[::ffff:127.0.0.1]",
        "2130706433",
        "0x7f.1",
        "0.0.0.0",
        "127.1",
        "169.254.169.254",
    )
    for number, host in enumerate(hosts):
        name = f"inside-{number}"
        try:
            request = webhooks_pb2.SetWebhookRequest(name=name, url=f"https://{host}:{port}/")
            admin.call(webhooks_pb2_grpc.WebhooksStub, "SetWebhook", request)
            tested = webhooks_pb2.TestWebhookRequest(name=name)
            admin.call(webhooks_pb2_grpc.WebhooksStub, "TestWebhook", tested)
        except TobanError as error:
            attacks.expect(
                f"webhook to {host}", refused=error.code is ErrorCode.INVALID_ARGUMENT, instead=error.message
            )
            continue

        def ended(name: str = name) -> list[str]:
            asked = webhooks_pb2.ListDeliveriesRequest(webhook=name)
            found = admin.call(webhooks_pb2_grpc.WebhooksStub, "ListDeliveries", asked).deliveries
            return [str(one) for one in found if one.state != "pending" or one.error]

        text = admin.until(ended, of="the site has tried")
        attacks.expect(
            f"webhook to {host}", refused="SCHEDULER_WEBHOOK_ALLOW" in str(text) or "address" in str(text), instead=text
        )
        admin.call(webhooks_pb2_grpc.WebhooksStub, "RemoveWebhook", webhooks_pb2.RemoveWebhookRequest(name=name))
    attacks.expect("a connection to this machine", refused=not seen, instead=seen)
