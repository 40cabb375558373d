"""Webhooks as mail over a real SMTP server: what arrives, which answers are final, and that nothing goes out without TLS."""

import email
import email.policy
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from email.message import EmailMessage
from pathlib import Path
from typing import Any

import pytest
from aiosmtpd.controller import Controller
from aiosmtpd.smtp import AuthResult, Envelope, LoginPassword

from toban_admin_web.adapters import webhook_mail
from toban_admin_web.adapters.webhook_http import WebhookPoster
from toban_admin_web.ports.webhooks import Outgoing, PostResult
from toban_domain.mail_target import parse_mail

NAME = "coordinator.toban.internal"
ADDRESSES = "from=toban@example.com&to=ops@example.com"
TEXT = "Job load: run 7 failed (état)\nexit code 3\n"
HEADERS = {"webhook-id": "evt_1", "subject": "[Toban] Job load: run 7 failed (état)"}


class MailServer:
    """`refuse` by command (RCPT, DATA) gives its answer; everything else is taken. `mails` are what arrived."""

    def __init__(self, **how: Any) -> None:
        self.mails: list[tuple[Envelope, EmailMessage]] = []
        self.refuse: dict[str, str] = {}
        self.tls: list[bool] = []
        self.users: list[bytes] = []
        made = how.pop("auth", False)
        more = {"authenticator": self._login, "auth_require_tls": False} if made else {}
        self.controller = Controller(self, hostname="127.0.0.1", port=0, **more, **how)

    def start(self) -> None:
        # aiosmtpd asks its own port whether it serves, and has none of 0.
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.controller.port = free.getsockname()[1]
        self.controller.start()

    @property
    def port(self) -> int:
        return int(self.controller.port)

    async def handle_RCPT(self, server: Any, session: Any, envelope: Any, address: str, options: Any) -> str:
        if address in self.refuse:
            return self.refuse[address]
        envelope.rcpt_tos.append(address)
        return "250 OK"

    async def handle_DATA(self, server: Any, session: Any, envelope: Any) -> str:
        if "DATA" in self.refuse:
            return self.refuse["DATA"]
        self.tls.append(session.ssl is not None or self.controller.ssl_context is not None)
        parsed = email.message_from_bytes(envelope.content, policy=email.policy.default)
        assert isinstance(parsed, EmailMessage)
        self.mails.append((envelope, parsed))
        return "250 taken"

    def _login(self, server: Any, session: Any, envelope: Any, mechanism: str, given: Any) -> AuthResult:
        assert isinstance(given, LoginPassword)
        self.users.append(given.login)
        return AuthResult(success=given.password == b"p/w", handled=False)


@pytest.fixture
def serve() -> Iterator[Callable[..., MailServer]]:
    made: list[MailServer] = []

    def make(**how: Any) -> MailServer:
        made.append(MailServer(**how))
        made[-1].start()
        return made[-1]

    yield make
    for one in made:
        one.controller.stop()


@pytest.fixture
def named(monkeypatch: pytest.MonkeyPatch) -> None:
    """The name in the certificate of the test is this machine."""
    real = socket.getaddrinfo

    def resolve(host: Any, *given: Any, **more: Any) -> Any:
        return real("127.0.0.1" if host == NAME else host, *given, **more)

    monkeypatch.setattr(socket, "getaddrinfo", resolve)


@pytest.fixture
def tls_context(tls: Path) -> ssl.SSLContext:
    """Of a server whose certificate has NAME."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tls / "coordinator" / "tls.crt", tls / "coordinator" / "tls.key")
    return context


def post(
    url: str, *, allow: str = "public,127.0.0.1", ca_file: Path | None = None, seconds: float = 20.0
) -> PostResult:
    one = Outgoing(delivery=1, lease="l", webhook="mail", url=url, headers=HEADERS, body=TEXT.encode())
    return WebhookPoster(allow=allow, ca_file=ca_file, seconds=seconds).post(one)


def test_a_mail_has_the_text_and_the_id_of_its_event(serve: Any) -> None:
    there = serve()
    url = f"smtp://127.0.0.1:{there.port}/?{ADDRESSES}&to=boss@example.com"
    for _ in range(2):
        assert post(url) == PostResult(outcome="accepted", status=250)
    envelope, mail = there.mails[0]
    assert (envelope.mail_from, envelope.rcpt_tos) == ("toban@example.com", ["ops@example.com", "boss@example.com"])
    assert (mail["From"], mail["To"]) == ("toban@example.com", "ops@example.com, boss@example.com")
    assert mail["Subject"] == HEADERS["subject"] and mail.get_content().replace("\r\n", "\n") == TEXT
    assert mail["Auto-Submitted"] == "auto-generated" and mail["Date"]
    assert {mail["Message-ID"] for _, mail in there.mails} == {"<evt_1@example.com>"}, "of each try"


def test_answers_that_are_final_and_answers_that_are_not(serve: Any) -> None:
    there = serve()
    url = f"smtp://127.0.0.1:{there.port}/?{ADDRESSES}"
    for command, answer, permanent in (
        ("ops@example.com", "550 no such user", True),
        ("ops@example.com", "450 try later", False),
        ("DATA", "554 not this one", True),
        ("DATA", "451 try later", False),
    ):
        there.refuse = {command: answer}
        result = post(url)
        assert (result.outcome, result.status, result.permanent) == ("refused", int(answer[:3]), permanent)
        assert f"the mail server responded with {answer[:3]}: {answer[4:]}" in result.error
    there.refuse = {"ops@example.com": "550 no such user"}
    assert post(f"{url}&to=boss@example.com").outcome == "accepted", "the others would get it twice"
    assert there.mails[-1][0].rcpt_tos == ["boss@example.com"]


def test_a_login_and_one_that_is_refused(serve: Any) -> None:
    there = serve(auth=True)
    for password, outcome in (("p%2Fw", "accepted"), ("wrong", "refused")):
        result = post(f"smtp://ada:{password}@127.0.0.1:{there.port}/?{ADDRESSES}")
        assert (result.outcome, result.permanent) == (outcome, False)
        assert "wrong" not in result.error
    assert set(there.users) == {b"ada"} and len(there.mails) == 1


def test_tls_from_the_start_verifies_the_name(serve: Any, tls_context: ssl.SSLContext, tls: Path, named: None) -> None:
    there = serve(ssl_context=tls_context, server_hostname=None)
    good = f"smtps://{NAME}:{there.port}/?{ADDRESSES}"
    ca_file = tls / "coordinator" / "ca.crt"
    assert post(good, allow="127.0.0.1", ca_file=ca_file).outcome == "accepted"
    for url, authorities in ((good, None), (f"smtps://127.0.0.1:{there.port}/?{ADDRESSES}", ca_file)):
        result = post(url, allow="127.0.0.1", ca_file=authorities)
        assert result.outcome == "unreachable" and "certificate of the mail server is not accepted" in result.error
    assert len(there.mails) == 1


def test_beyond_this_machine_mail_goes_by_starttls_only(
    serve: Any, tls_context: ssl.SSLContext, tls: Path, named: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(webhook_mail, "kind_of", lambda _: "private")
    there = serve(tls_context=tls_context)
    ca_file = tls / "coordinator" / "ca.crt"
    url = f"smtp://{NAME}:{there.port}/?{ADDRESSES}"
    assert post(url, allow="127.0.0.1", ca_file=ca_file).outcome == "accepted" and there.tls == [True]
    assert "certificate" in post(url, allow="127.0.0.1").error
    plain = serve()
    result = post(f"smtp://{NAME}:{plain.port}/?{ADDRESSES}", allow="127.0.0.1", ca_file=ca_file)
    assert result.outcome == "refused" and "offers no STARTTLS" in result.error and not result.permanent
    assert plain.mails == [] and len(there.mails) == 1


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "[::1]", "169.254.169.254", "10.0.0.1", "[::ffff:127.0.0.1]", "localhost"]
)
def test_addresses_that_are_not_allowed_are_never_reached(host: str) -> None:
    result = post(f"smtps://{host}/?{ADDRESSES}", allow="public")
    assert result.outcome == "denied" and "SCHEDULER_WEBHOOK_ALLOW of the site has no entry for it" in result.error


def test_a_server_that_says_nothing_or_something_else(serve: Any) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        result = post(f"smtp://127.0.0.1:{silent.getsockname()[1]}/?{ADDRESSES}", seconds=0.2)
        assert result.outcome == "unreachable" and "no whole response within 0.2 s" in result.error
    with socket.create_server(("127.0.0.1", 0)) as busy:

        def greet() -> None:
            one, _ = busy.accept()
            one.sendall(b"421 too busy\r\n")
            one.close()

        thread = threading.Thread(target=greet)
        thread.start()
        result = post(f"smtp://127.0.0.1:{busy.getsockname()[1]}/?{ADDRESSES}")
        thread.join()
    assert (result.outcome, result.status, result.permanent) == ("refused", 421, False)
    with socket.create_server(("127.0.0.1", 0)) as gone:
        port = gone.getsockname()[1]
    assert post(f"smtp://127.0.0.1:{port}/?{ADDRESSES}").outcome == "unreachable"
    assert "no mail address" in post("smtp://127.0.0.1/?from=a&to=b").error


def test_responses_without_an_end_are_not_collected() -> None:
    """smtplib alone keeps every line of a response, however many come until the time is over."""
    server = socket.create_server(("127.0.0.1", 0))
    ended = threading.Event()

    def flood() -> None:
        connection, _ = server.accept()
        with connection:
            try:
                while True:
                    connection.sendall(b"220-welcome\r\n" * 1000)
            except OSError:
                ended.set()

    threading.Thread(target=flood, daemon=True).start()
    result = post(f"smtp://127.0.0.1:{server.getsockname()[1]}/?{ADDRESSES}", seconds=60.0)
    assert result.outcome == "unreachable" and "more than 64 KiB of responses" in result.error
    assert ended.wait(30)
    server.close()


def test_when_its_time_is_over_no_further_address_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    target = parse_mail(f"smtp://mail.example.com/?{ADDRESSES}")
    server = webhook_mail._PinnedSmtp(target, ["192.0.2.1", "192.0.2.2"], None)
    tried: list[str] = []

    def connect(address: tuple[str, int], timeout: float) -> Any:
        tried.append(address[0])
        server.abort()
        raise TimeoutError("timed out")

    monkeypatch.setattr(socket, "create_connection", connect)
    with pytest.raises(OSError, match="timed out"):
        server.connect(target.host, target.port)
    assert tried == ["192.0.2.1"]
