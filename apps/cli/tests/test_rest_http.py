"""What commands over REST make of sites and proxies that refuse, break, or are something else."""

from __future__ import annotations

import json
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest

from toban.client.transport import transport_error
from toban_cli.rest.client import RestClient
from toban_cli.rest.site import Site
from toban_domain.errors import ErrorCode, TobanError
from toban_proto.v1 import coordinator_pb2 as pb
from toban_testing.http_server import ScriptServer
from toban_testing.tls_proxy import server_context

TOKEN = "toban_pat_" + "0" * 64
BROKEN = "the connection ends without an answer"
GOOD = (200, {"Content-Type": "application/json"}, b'{"runs": [{"id": 5}], "next_cursor": ""}')


class Scripted(BaseHTTPRequestHandler):
    """Gives the next of `server.answers` to each request, and keeps what was asked."""

    protocol_version = "HTTP/1.1"
    server: Any

    def _answer(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.server.asked.append((self.command, self.path, dict(self.headers), body))
        answer = self.server.answers.pop(0)
        if answer is BROKEN:
            self.close_connection = True
            return
        status, headers, content = answer
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(content))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)

    do_GET = do_POST = do_PUT = do_DELETE = do_PATCH = _answer

    def log_message(self, *arguments: object) -> None:
        """Nothing."""


@pytest.fixture
def server() -> Iterator[Any]:
    """A server whose `answers` a test sets; `asked` is what came."""
    made: Any = ScriptServer(("127.0.0.1", 0), Scripted)
    made.answers, made.asked = [], []
    thread = threading.Thread(target=made.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield made
    made.shutdown()
    thread.join()
    made.server_close()


@pytest.fixture
def client(server: Any) -> Iterator[RestClient]:
    """A client of that server."""
    made = RestClient(Site(url=f"http://127.0.0.1:{server.server_port}", token=TOKEN))
    yield made
    made.close()


def problem(status: int, code: str, detail: str, **more: Any) -> tuple[int, dict[str, str], bytes]:
    document = {"status": status, "code": code, "detail": detail, "errors": [], "context": {}} | more
    return status, {"Content-Type": "application/problem+json"}, json.dumps(document).encode()


def list_runs(client: RestClient) -> Any:
    return client.call("JobReader.ListRuns", pb.ListRunsRequest())


@pytest.mark.parametrize(
    ("answer", "code", "message"),
    [
        (problem(401, "UNAUTHENTICATED", "the API token is revoked; sign in"), ErrorCode.UNAUTHENTICATED, "is revoked; `toban login` makes a new"),
        (problem(403, "PERMISSION_DENIED", "ada has role viewer"), ErrorCode.PERMISSION_DENIED, "^ada has role viewer$"),
        (problem(404, "JOB_NOT_FOUND", "there is no job"), ErrorCode.JOB_NOT_FOUND, "there is no job"),
        (problem(412, "CONFLICT", "it has version 4"), ErrorCode.CONFLICT, "it has version 4"),
        (problem(405, "METHOD_NOT_ALLOWED", "not here"), ErrorCode.INVALID_ARGUMENT, "not here"),
        (problem(421, "MISDIRECTED_REQUEST", "add the name"), ErrorCode.CONFIG_INVALID, "add the name"),
        (problem(429, "RESOURCE_EXHAUSTED", "too many", context={"retry_after_seconds": 40}), ErrorCode.RESOURCE_EXHAUSTED, "too many"),
        (problem(500, "INTERNAL", "unexpected error 7f"), ErrorCode.INTERNAL, "unexpected error 7f"),
        (problem(503, "UNAVAILABLE", "no coordinator"), ErrorCode.UNAVAILABLE, "no coordinator"),
        (problem(504, "DEADLINE_EXCEEDED", "no answer"), ErrorCode.DEADLINE_EXCEEDED, "no answer"),
        (problem(500, "NEW_CODE", "of a later version"), ErrorCode.INTERNAL, "of a later version"),
        ((200, {"Content-Type": "text/html"}, b"<html>"), ErrorCode.CONFIG_INVALID, "not from Toban: status 200 with text/html"),
        ((502, {"Content-Type": "text/html"}, b"<html>"), ErrorCode.UNAVAILABLE, "status 502.*proxy in front"),
        ((404, {"Content-Type": "text/plain"}, b"no"), ErrorCode.CONFIG_INVALID, "status 404"),
        ((200, {"Content-Type": "application/json"}, b"{"), ErrorCode.CONFIG_INVALID, "not from Toban"),
        ((500, {"Content-Type": "application/json"}, b"{}"), ErrorCode.CONFIG_INVALID, "status 500"),
        ((200, {"Content-Type": "application/json"}, b'{"runs": 3}'), ErrorCode.INTERNAL, "unexpected form"),
        ((302, {"Location": "https://sso.example"}, b""), ErrorCode.CONFIG_INVALID, "sends requests on to https://sso.example"),
    ],
)  # fmt: skip
def test_answers_that_are_no_success(
    server: Any, client: RestClient, answer: Any, code: ErrorCode, message: str
) -> None:
    server.answers = [answer]
    with pytest.raises(TobanError, match=message) as caught:
        list_runs(client)
    assert caught.value.code is code and TOKEN not in str(caught.value) and len(server.asked) == 1


def test_mistakes_in_manifests_are_named_by_their_files(server: Any, client: RestClient) -> None:
    errors = [{"where": "manifests.1.spec.cron", "message": "never fires"}, {"where": "manifests.0", "message": "no"}]
    server.answers = [problem(400, "MANIFEST_INVALID", "manifests.1.spec.cron: never fires", errors=errors)]
    manifests = [pb.Manifest(json="{}", source=source) for source in ("a.yaml", "b.yaml")]
    with pytest.raises(TobanError, match=r"b\.yaml.spec\.cron: never fires") as caught:
        client.call("JobControl.Apply", pb.ApplyRequest(manifests=manifests))
    assert caught.value.detail["errors"] == [
        {"source": "b.yaml", "path": "spec.cron", "message": "never fires"},
        {"source": "a.yaml", "path": "", "message": "no"},
    ]


def test_a_request_has_the_token_and_asks_for_json(server: Any, client: RestClient) -> None:
    server.answers = [GOOD]
    assert [run.id for run in list_runs(client).runs] == [5]
    [(verb, path, headers, _)] = server.asked
    assert (verb, path) == ("GET", "/api/v1/runs") and headers["Authorization"] == f"Bearer {TOKEN}"
    assert headers["Accept"] == "application/json" and headers["User-Agent"].startswith("toban/")


def test_a_read_whose_connection_breaks_is_sent_once_more(server: Any, client: RestClient) -> None:
    server.answers = [BROKEN, GOOD]
    assert [run.id for run in list_runs(client).runs] == [5]
    server.answers = [BROKEN, BROKEN]
    with pytest.raises(TobanError, match="cannot reach the site") as caught:
        list_runs(client)
    assert caught.value.code is ErrorCode.UNAVAILABLE and len(server.asked) == 4


def test_a_write_is_sent_once_unless_it_has_a_key(server: Any, client: RestClient) -> None:
    server.answers = [BROKEN]
    with pytest.raises(TobanError, match="cannot reach the site"):
        client.call("JobControl.CancelRun", pb.CancelRunRequest(id=5))
    assert len(server.asked) == 1
    started = (201, {"Content-Type": "application/json"}, b'{"runs": [{"run_id": 6, "created": true}]}')
    server.answers = [BROKEN, started]
    start = pb.StartRunRequest(job="a", payload_json="{}", idempotency_key="cli-1")
    assert client.call("JobControl.StartRuns", pb.StartRunsRequest(runs=[start])).runs[0].run_id == 6
    sent = [json.loads(body) for _, _, _, body in server.asked[1:]]
    assert sent[0] == sent[1] == {"runs": [{"job": "a", "payload": {}, "idempotency_key": "cli-1"}]}


def test_a_short_wait_of_a_full_site_is_waited_for(server: Any, client: RestClient) -> None:
    status, headers, body = problem(429, "RESOURCE_EXHAUSTED", "too many")
    server.answers = [(status, headers | {"Retry-After": "0"}, body), GOOD]
    assert [run.id for run in list_runs(client).runs] == [5]
    server.answers = [(status, headers | {"Retry-After": "60"}, body)]
    with pytest.raises(TobanError, match=r"too many \(try again after 60 s\)"):
        list_runs(client)


def test_a_site_that_asks_for_no_wait_is_not_asked_without_end(server: Any, client: RestClient) -> None:
    status, headers, body = problem(429, "RESOURCE_EXHAUSTED", "too many")
    server.answers = [(status, headers | {"Retry-After": "0"}, body)] * 500
    with pytest.raises(TobanError, match="too many"):
        list_runs(client)
    assert 1 < len(server.asked) < 500


def test_versions_are_conditions(server: Any, client: RestClient) -> None:
    setting = (200, {"Content-Type": "application/json"}, b'{"name": "x", "value": 3, "version": 5}')
    server.answers = [setting, setting, setting]
    for version in (4, 0, None):
        client.call("Operations.UpdateSetting", pb.UpdateSettingRequest(name="x", value_json="3", version=version))
    sent = [(headers.get("If-Match"), headers.get("If-None-Match")) for _, _, headers, _ in server.asked]
    assert sent == [('"4"', None), (None, "*"), (None, None)]


def test_a_group_is_changed_with_its_reason(server: Any, client: RestClient) -> None:
    server.answers = [(200, {"Content-Type": "application/json"}, b"{}")]
    client.call("Accounts.UpdateGroup", pb.UpdateGroupRequest(name="ops", change="join", user="bob", reason="new here"))
    [(verb, path, _, body)] = server.asked
    assert (verb, path, body) == ("PUT", "/api/v1/groups/ops/members/bob?reason=new+here", b"")


def test_names_cannot_leave_their_place_in_the_path(server: Any, client: RestClient) -> None:
    server.answers = [(200, {"Content-Type": "application/json"}, b"{}")] * 2
    client.call("JobReader.GetJob", pb.GetJobRequest(name="../users?x=1#"))
    client.call("Operations.GetLimit", pb.GetLimitRequest(name="scope:account/17"))
    assert [path for _, path, _, _ in server.asked] == [
        "/api/v1/jobs/..%2Fusers%3Fx%3D1%23",
        "/api/v1/limits/scope%3Aaccount%2F17",
    ]


def test_a_site_that_is_not_there(free_port: int) -> None:
    client = RestClient(Site(url=f"http://127.0.0.1:{free_port}", token=TOKEN))
    with pytest.raises(
        TobanError, match=r"cannot reach the site at http://127.* \(connection refused\); check the address"
    ) as caught:
        list_runs(client)
    assert caught.value.code is ErrorCode.UNAVAILABLE


def test_what_does_not_speak_http() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=_hang_up, args=(listener, b"220 mail.example ESMTP\r\n"))
        thread.start()
        client = RestClient(Site(url=f"http://127.0.0.1:{listener.getsockname()[1]}", token=TOKEN))
        with pytest.raises(TobanError, match="does not speak HTTP") as caught:
            list_runs(client)
        thread.join()
    assert caught.value.code is ErrorCode.UNAVAILABLE


def test_a_site_that_never_answers() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        client = RestClient(Site(url=f"http://127.0.0.1:{listener.getsockname()[1]}", token=TOKEN))
        with pytest.raises(TobanError, match=r"did not answer within 0\.2 s") as caught:
            client.call("JobReader.ListRuns", pb.ListRunsRequest(), timeout=0.2)
    assert caught.value.code is ErrorCode.DEADLINE_EXCEEDED


def _hang_up(listener: socket.socket, greeting: bytes) -> None:
    """To both tries."""
    for _ in range(2):
        connection, _ = listener.accept()
        with connection:
            connection.sendall(greeting)


@pytest.fixture
def tls_server(server: Any, tmp_path: Path) -> str:
    """The same server with a certificate of the CA in `tmp_path`."""
    server.socket = server_context(tmp_path).wrap_socket(server.socket, server_side=True)
    return f"https://127.0.0.1:{server.server_port}"


def test_the_ca_of_a_context_is_enough_and_needed(server: Any, tls_server: str, tmp_path: Path) -> None:
    server.answers = [GOOD]
    trusting = RestClient(Site(url=tls_server, token=TOKEN, ca_file=str(tmp_path / "ca.crt")))
    assert [run.id for run in list_runs(trusting).runs] == [5]
    trusting.close()
    with pytest.raises(
        TobanError, match=r"certificate of https://.* is not trusted .*--ca-file.*TOBAN_CA_FILE"
    ) as caught:
        list_runs(RestClient(Site(url=tls_server, token=TOKEN)))
    assert caught.value.code is ErrorCode.CONFIG_INVALID and len(server.asked) == 1


def test_a_certificate_of_another_name_and_none_at_all(server: Any, tls_server: str, tmp_path: Path) -> None:
    other = tls_server.replace("127.0.0.1", "localhost")
    with pytest.raises(TobanError, match=r"is not trusted.*use a host name that the certificate has") as caught:
        list_runs(RestClient(Site(url=other, token=TOKEN, ca_file=str(tmp_path / "ca.crt"))))
    assert caught.value.code is ErrorCode.CONFIG_INVALID and server.asked == []


def test_https_where_there_is_none(server: Any) -> None:
    with pytest.raises(TobanError, match="does not answer with TLS; check its port") as caught:
        list_runs(RestClient(Site(url=f"https://127.0.0.1:{server.server_port}", token=TOKEN)))
    assert caught.value.code is ErrorCode.CONFIG_INVALID


@pytest.mark.parametrize(("number", "remedy"), [(9, "check the clock"), (10, "expired"), (20, "--ca-file")])
def test_each_fault_of_a_certificate_has_its_remedy(client: RestClient, number: int, remedy: str) -> None:
    fault = ssl.SSLCertVerificationError(1, "certificate verify failed")
    fault.verify_code, fault.verify_message = number, "as OpenSSL names it"
    found = str(transport_error(fault, client.site, 1))
    assert remedy in found and "as OpenSSL names it" in found


@pytest.mark.parametrize("content", [None, "no certificate"])
def test_a_ca_file_that_cannot_be_used(tmp_path: Path, content: str | None) -> None:
    file = tmp_path / "ca.pem"
    if content is not None:
        file.write_text(content)
    with pytest.raises(TobanError, match=rf"the CA file {file} cannot be used") as caught:
        RestClient(Site(url="https://a.example", token=TOKEN, ca_file=str(file)))
    assert caught.value.code is ErrorCode.CONFIG_INVALID


@pytest.mark.parametrize(
    ("argv", "reason"),
    [
        (("cluster", "adopt-epoch", "9", "--yes"), "certificate of admin-cli alone"),
        (("user", "bootstrap"), "certificate of admin-cli alone"),
        (("archive", "verify"), "checks one day at a time"),
        (("audit", "export"), "hash of an audit row is over its exact text"),
    ],
)
def test_what_has_no_route_names_direct(
    server: Any, toban: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, argv: tuple[str, ...], reason: str
) -> None:
    monkeypatch.setenv("TOBAN_URL", f"http://127.0.0.1:{server.server_port}")
    monkeypatch.setenv("TOBAN_TOKEN", TOKEN)
    code, out, err = toban(*argv)
    assert (code, out) == (70, "") and "`toban --direct`" in err and reason in err and server.asked == []
