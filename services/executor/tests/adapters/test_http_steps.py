"""Steps of type http in a real executor, against a real server: requests, tries, refusals, ends."""

import contextlib
import json
import ssl
import subprocess
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from toban_domain.errors import ErrorCode, TobanError
from toban_domain.outcome import AttemptKey
from toban_domain.secret import SecretFile
from toban_executor.adapters.http_steps import HttpSteps
from toban_executor.decide.models import StartOrder, StepOrder
from toban_proto.v1 import common_pb2, executor_pb2

SUCCEEDED, FAILED = common_pb2.OUTCOME_KIND_SUCCEEDED, common_pb2.OUTCOME_KIND_FAILED
CANCELED, TIMED_OUT = common_pb2.OUTCOME_KIND_CANCELED, common_pb2.OUTCOME_KIND_TIMED_OUT


class Site(ThreadingHTTPServer):
    """Answers with what is prepared for a path; keeps the requests."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        # Path to responses, the last one repeated: status, headers, body.
        self.answers: dict[str, list[tuple[int, dict[str, str], bytes]]] = {}
        self.requests: list[tuple[str, str, dict[str, str], bytes]] = []
        self.arrived = threading.Event()
        self.released = threading.Event()
        self.scheme = "http"
        self._thread = threading.Thread(target=self.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()

    @property
    def port(self) -> int:
        return int(self.server_address[1])

    def url(self, path: str, host: str = "127.0.0.1") -> str:
        return f"{self.scheme}://{host}:{self.port}{path}"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that was killed is no error."""

    def forget(self) -> None:
        """As it was made."""
        self.released.set()
        self.released = threading.Event()
        for records in (self.answers, self.requests):
            records.clear()
        self.arrived.clear()

    def close(self) -> None:
        self.released.set()
        self.shutdown()
        self.server_close()
        self._thread.join()


class Handler(BaseHTTPRequestHandler):
    server: Site

    def handle_request(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        body = self.rfile.read(length)
        self.server.requests.append((self.command, self.path, dict(self.headers), body))
        self.server.arrived.set()
        if self.path == "/hangs":
            self.server.released.wait()
            return
        answers = self.server.answers.get(self.path.partition("?")[0], [(200, {}, b"fine")])
        status, headers, text = answers.pop(0) if len(answers) > 1 else answers[0]
        if status == 0:
            # The connection ends without a response.
            return
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    do_GET = do_POST = do_PUT = do_DELETE = handle_request

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture(scope="module")
def _site() -> Iterator[Site]:
    made = Site()
    yield made
    made.close()


@pytest.fixture
def site(_site: Site) -> Iterator[Site]:
    yield _site
    _site.forget()


@pytest.fixture(scope="module")
def executor_variables(_site: Site) -> dict[str, str]:
    """Its http steps may reach the site."""
    return {"SCHEDULER_HTTP_STEP_ALLOW": f"public,127.0.0.1:{_site.port}"}


@pytest.fixture
def opened(shared_world: Any) -> Any:
    return shared_world


def call(url: str, *, timeout_seconds: int = 0, cancelable: bool = True, **request: Any) -> Any:
    spec = json.dumps({"http": {"url": url, **request}})
    return executor_pb2.Step(
        id="call", type="http", body_json=spec, timeout_seconds=timeout_seconds, cancelable=cancelable
    )


async def run(world: Any, number: int, step: Any, **fields: Any) -> tuple[Any, str]:
    """The outcome and the output of an attempt with this step."""
    [answer] = await world.start(world.order(number, steps=[step], **fields))
    assert answer.accepted, answer.message
    found: tuple[Any, str] = await world.ended(number)
    return found


def carry_out(site: Site, request: Any, *, allow: str = "", ca_file: Path | None = None) -> tuple[int, str]:
    """Exit code and output of the program of such a step."""
    step = StepOrder(type="http", argv=(), id="call", stdin=json.dumps(request))
    steps = HttpSteps(allow=allow or f"public,127.0.0.1:{site.port}", ca_file=ca_file)
    [step] = steps.complete(StartOrder(key=AttemptKey(1, 1), steps=(step,))).steps
    done = subprocess.run(step.argv, input=step.stdin, capture_output=True, text=True, timeout=60, env={})
    return done.returncode, done.stdout + done.stderr


def command_lines() -> list[bytes]:
    lines = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            lines.append((folder / "cmdline").read_bytes() + (folder / "environ").read_bytes())
    return lines


async def test_a_request_and_its_result(opened: Any, site: Site) -> None:
    site.answers["/reports"] = [(201, {"Content-Type": "application/json"}, b'{"id": 7}')]
    step = call(
        site.url("/reports?key=hidden"), method="POST", body={"day": "é"}, headers={"X-Api-Key": "k"}, result="body"
    )
    env = {"LD_PRELOAD": "/no/such.so", "http_proxy": "http://127.0.0.1:1"}
    outcome, text = await run(opened, 5, step, attempt=3, env=env)
    assert (outcome.kind, json.loads(outcome.result_json)) == (SUCCEEDED, {"id": 7})
    [(method, path, headers, body)] = site.requests
    assert (method, path, json.loads(body)) == ("POST", "/reports?key=hidden", {"day": "é"})
    assert (headers["X-Api-Key"], headers["Content-Type"]) == ("k", "application/json")
    assert headers["Idempotency-Key"] == "toban-1-5-3-call"
    assert headers["Toban-Fence"] == str(opened.key(5)[1])
    assert headers["User-Agent"].startswith("toban/")
    assert headers["Host"] == f"127.0.0.1:{site.port}"
    assert f"POST {site.url('/reports')}: 201, 9 bytes, " in text
    assert "hidden" not in text
    assert "LD_PRELOAD" not in text, "variables of the definition do not reach the program"


async def test_nothing_of_the_request_is_on_a_command_line(opened: Any, site: Site) -> None:
    await opened.start(opened.order(1, steps=[call(site.url("/hangs"), headers={"Authorization": "Bearer sesame"})]))
    await opened.until(site.arrived.is_set, 30)
    lines = command_lines()
    assert any(b"http_step_runner" in line for line in lines)
    assert not any(b"sesame" in line for line in lines)
    await opened.cancel(1, grace=5)
    await opened.outcome(1)


AUTHORIZED: dict[str, Any] = {"secret_headers": {"Authorization": ["Bearer ", {"file": "api.key"}, ""]}}


def api_key(value: bytes = b"sesame-open\n") -> dict[str, Any]:
    return {"secrets": [executor_pb2.SecretFile(file="api.key", value=value)]}


async def test_a_secret_in_a_header_is_sent_and_nowhere_else(opened: Any, site: Site) -> None:
    site.answers["/a"] = [(200, {}, b"{}")]
    site.answers["/echo"] = [(400, {}, b"you sent Bearer sesame-open")]
    outcome, _ = await run(
        opened, 5, call(site.url("/a"), headers={"X-A": "${{ secrets.api }}"}, **AUTHORIZED), **api_key()
    )
    assert outcome.kind == SUCCEEDED
    assert (site.requests[0][2]["Authorization"], site.requests[0][2]["X-A"]) == (
        "Bearer sesame-open",
        "${{ secrets.api }}",
    )
    outcome, text = await run(opened, 6, call(site.url("/echo"), **AUTHORIZED), **api_key())
    assert outcome.kind == FAILED and "you sent Bearer ***" in text and "sesame" not in text
    await opened.start(opened.order(7, steps=[call(site.url("/hangs"), **AUTHORIZED)], **api_key()))
    await opened.until(lambda: site.requests[-1][1] == "/hangs", 30)
    assert not any(b"sesame" in line for line in command_lines())
    await opened.cancel(7, grace=5)
    await opened.outcome(7)


def test_a_secret_in_a_header_follows_no_redirect_to_another_host(site: Site) -> None:
    other = f"http://localhost:{site.port}/there"
    site.answers["/here"] = [(302, {"Location": other}, b"")]
    request = {"url": site.url("/here"), "follow_redirects": 2, **AUTHORIZED}
    step = StepOrder(type="http", argv=(), id="call", stdin=json.dumps(request))
    secrets = (SecretFile(file="api.key", file_env="", value=b"sesame-open"),)
    steps = HttpSteps(allow=f"127.0.0.1,::1,localhost:{site.port}", ca_file=None)
    [step] = steps.complete(StartOrder(key=AttemptKey(1, 1), steps=(step,), secrets=secrets)).steps
    subprocess.run(step.argv, input=step.stdin, capture_output=True, text=True, timeout=60, env={}, check=True)
    assert [(path, headers.get("Authorization")) for _, path, headers, _ in site.requests] == [
        ("/here", "Bearer sesame-open"),
        ("/there", None),
    ]


@pytest.mark.parametrize("headers", [{"A": [{"file": "none"}]}, {"A": [5]}, [], "x"])
def test_a_secret_that_there_is_not_leaves_the_step_without_a_program(headers: Any) -> None:
    step = StepOrder(type="http", argv=(), id="call", stdin=json.dumps({"url": "http://a/", "secret_headers": headers}))
    order = StartOrder(key=AttemptKey(1, 1), steps=(step,))
    [made] = HttpSteps(allow="public", ca_file=None).complete(order).steps
    assert made.argv == () and made.stdin == ""


async def test_a_cancel_ends_a_request(opened: Any, site: Site) -> None:
    await opened.start(opened.order(1, steps=[call(site.url("/hangs"))]))
    await opened.until(site.arrived.is_set, 30)
    await opened.cancel(1, grace=5)
    outcome = await opened.outcome(1)
    assert (outcome.kind, outcome.tree_empty) == (CANCELED, True)


async def test_a_cooperative_cancel_is_obeyed_between_two_tries(opened: Any, site: Site) -> None:
    site.answers["/a"] = [(503, {}, b"")]
    step = call(site.url("/a"), retry={"attempts": 2, "backoff_seconds": [3600]})
    await opened.start(opened.order(1, steps=[step]))
    await opened.until(lambda: any(b"next in 3600 s" in line for line in opened.archiver.text(opened.key(1))), 30)
    await opened.cancel(1, grace=600, mode="cooperative")
    outcome = await opened.outcome(1)
    assert (outcome.kind, outcome.exit_code) == (CANCELED, 143)


async def test_a_cancel_waits_for_the_tries_of_a_step_that_is_not_cancelable(opened: Any, site: Site) -> None:
    site.answers["/a"] = [(503, {}, b""), (200, {}, b"")]
    tried = call(site.url("/a"), retry={"attempts": 2, "backoff_seconds": [4]}, cancelable=False)
    await opened.start(opened.order(1, steps=[tried, call(site.url("/second"))]))
    await opened.until(lambda: any(b"next in 4 s" in line for line in opened.archiver.text(opened.key(1))), 30)
    await opened.cancel(1, grace=600, mode="cooperative")
    outcome = await opened.outcome(1, 30)
    assert (outcome.kind, outcome.exit_code) == (CANCELED, 0)
    assert [path for _, path, _, _ in site.requests] == ["/a", "/a"]


async def test_the_timeout_of_the_step_bounds_all_tries(opened: Any, site: Site) -> None:
    site.answers["/a"] = [(503, {}, b"")]
    step = call(site.url("/a"), timeout_seconds=5, retry={"attempts": 20, "backoff_seconds": [3600]})
    outcome, _ = await run(opened, 1, step)
    assert (outcome.kind, len(site.requests)) == (TIMED_OUT, 1)


async def test_a_response_that_is_too_large_for_a_result(opened: Any, site: Site) -> None:
    site.answers["/a"] = [(200, {}, b'"' + b"x" * 40_000 + b'"')]
    outcome, text = await run(opened, 1, call(site.url("/a"), result="body"))
    assert (outcome.kind, "the limit is 32768" in text) == (FAILED, True)


@pytest.mark.parametrize("body", [{"body_json": "{"}, {"body_json": "{}"}, {"http_json": "{"}, {}])
async def test_a_request_that_is_no_json_is_refused(opened: Any, body: dict[str, str]) -> None:
    [answer] = await opened.start(opened.order(1, steps=[executor_pb2.Step(type="http", **body)]))
    assert (answer.accepted, answer.refusal) == (False, "UNSUPPORTED_STEP")


@pytest.mark.parametrize(
    ("answers", "request_", "kind", "tries", "words"),
    [
        ([(503, {}, b"later"), (0, {}, b""), (200, {}, b"")], {"retry": {"attempts": 3}}, SUCCEEDED, 3, "try 2 of 3"),
        ([(500, {}, b"no\x1b[31m")], {"retry": {"attempts": 2}}, FAILED, 2, "responded with 500; 2 tries"),
        ([(404, {}, b"nothing here")], {"retry": {"attempts": 9}}, FAILED, 1, "response: nothing here"),
        ([(404, {}, b"")], {"expected_status": [200, "400-404"]}, SUCCEEDED, 1, ": 404, 0 bytes"),
        ([(503, {}, b"")], {"expected_status": [503], "retry": {"attempts": 2}}, SUCCEEDED, 1, ": 503"),
        ([(302, {"Location": "/b"}, b"")], {}, FAILED, 1, "responded with 302"),
        ([(302, {"Location": "/b"}, b"")], {"follow_redirects": 1}, SUCCEEDED, 2, "/b: 200"),
        ([(302, {"Location": "/a"}, b"")], {"follow_redirects": 2}, FAILED, 3, "more than 2 redirects"),
        ([(302, {"Location": "http://[::1"}, b"")], {"follow_redirects": 1}, FAILED, 1, "toban: Invalid IPv6 URL"),
        ([], {"expected_status": ["many"]}, FAILED, 0, "toban: invalid literal"),
        ([(200, {}, b"text")], {"result": "body"}, FAILED, 1, "the response is not JSON"),
        ([(200, {}, b"1" * 1_100_000)], {"result": "body"}, FAILED, 1, "more than 1048576 bytes"),
        ([(200, {}, b"1" * 1_100_000)], {}, SUCCEEDED, 1, "1048576 bytes"),
        (
            [(200, {}, b'"%s"' % (b"x" * 40_000))],
            {"result": "body"},
            FAILED,
            1,
            "has 40002 bytes, the limit is 32768",
        ),
        ([(200, {}, b"{}")], {"result": "body"}, FAILED, 1, "there is no TOBAN_SOCKET"),
    ],
)
def test_responses(site: Site, answers: Any, request_: Any, kind: Any, tries: int, words: str) -> None:
    site.answers["/a"] = answers
    if "retry" in request_:
        request_["retry"]["backoff_seconds"] = [0]
    code, text = carry_out(site, {"url": site.url("/a"), **request_})
    assert (code == 0) is (kind == SUCCEEDED), text
    assert words in text
    assert "\x1b" not in text
    assert len(site.requests) == tries
    assert len({headers["Idempotency-Key"] for _, _, headers, _ in site.requests}) <= 1


@pytest.mark.parametrize(
    ("host", "shown"),
    [
        ("127.0.0.2", "loopback address 127.0.0.2"),
        ("localhost", "loopback address"),
        ("2130706434", "loopback address 127.0.0.2"),
        ("0177.0.0.2", "loopback address 127.0.0.2"),
        ("0x7f.2", "loopback address 127.0.0.2"),
        ("[::ffff:127.0.0.2]", "loopback address"),
        ("[::ffff:169.254.169.254]", "metadata service"),
        ("[64:ff9b::a9fe:a9fe]", "metadata service"),
        ("169.254.169.254", "metadata service"),
        ("10.1.2.3", "private address 10.1.2.3"),
        ("0.0.0.0", "reserved address 0.0.0.0"),
        ("[fe80::1]", "link-local address fe80::1"),
    ],
)
def test_addresses_that_the_executor_does_not_allow(site: Site, host: str, shown: str) -> None:
    code, text = carry_out(site, {"url": site.url("/", host), "retry": {"attempts": 5}}, allow="public,127.0.0.1:1")
    assert code == 1
    assert shown in text and f"port {site.port}" in text and "SCHEDULER_HTTP_STEP_ALLOW" in text
    assert "try 1" not in text
    assert site.requests == []


async def test_an_address_that_is_not_allowed_fails_the_run(world: Any, site: Site) -> None:
    outcome, text = await run(world, 1, call(site.url("/")))
    assert (outcome.kind, site.requests) == (FAILED, [])
    assert f"'127.0.0.1' port {site.port} is the loopback address 127.0.0.1" in text


def test_a_redirect_is_judged_like_a_request(site: Site) -> None:
    other = f"http://169.254.169.254:{site.port}/latest"
    site.answers["/a"] = [(302, {"Location": other}, b"")]
    code, text = carry_out(site, {"url": site.url("/a"), "follow_redirects": 3})
    assert (code, "metadata service of a cloud at 169.254.169.254" in text) == (1, True)


def test_a_server_that_is_silent_fails_the_try(site: Site) -> None:
    code, text = carry_out(site, {"url": site.url("/hangs"), "response_timeout_seconds": 1})
    assert (code, "response_timeout_seconds = 1" in text) == (1, True)


def test_a_certificate_of_another_authority_or_name_is_refused(tls: Path) -> None:
    site = Site()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tls / "coordinator" / "tls.crt", tls / "coordinator" / "tls.key")
    site.socket = context.wrap_socket(site.socket, server_side=True)
    site.scheme = "https"
    request = {"url": site.url("/"), "retry": {"attempts": 3}}
    with contextlib.closing(site):
        for ca_file, words in ((None, "local issuer certificate"), (tls / "coordinator" / "ca.crt", "127.0.0.1")):
            code, text = carry_out(site, request, ca_file=ca_file)
            assert (code, site.requests) == (1, [])
            assert "the certificate of the server is not accepted" in text and words in text
            assert "try 1" not in text


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda tmp: {"allow": "10.0.0.0/99", "ca_file": None}, "SCHEDULER_HTTP_STEP_ALLOW: '10.0.0.0/99'"),
        (lambda tmp: {"allow": "public", "ca_file": tmp / "none.pem"}, "SCHEDULER_HTTP_STEP_CA_FILE: "),
    ],
)
def test_settings_that_cannot_be_used(make: Callable[[Path], Any], words: str, tmp_path: Path) -> None:
    with pytest.raises(TobanError) as caught:
        HttpSteps(**make(tmp_path))
    assert caught.value.code == ErrorCode.CONFIG_INVALID
    assert words in caught.value.message
