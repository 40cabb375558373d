"""Sends webhooks of form smtp as mail: to allowed addresses only, with TLS unless the server is on this machine."""

from __future__ import annotations

import smtplib
import socket
from collections.abc import Callable, Sequence
from contextlib import suppress
from email.message import EmailMessage
from email.policy import SMTP as MAIL_POLICY
from email.utils import formatdate
from io import BufferedReader
from ipaddress import ip_address

from toban_admin_web.adapters.time_bound import time_bound
from toban_admin_web.ports.webhooks import Outgoing, PostResult
from toban_domain.http_access import Entry, kind_of
from toban_domain.http_call import Target
from toban_domain.mail_target import MailTarget, parse_mail
from toban_runtime.http_connection import AccessDeniedError, AddressBook, CertificateError, TlsContext

SILENCE_SECONDS = 10.0
_SHOWN = 200
MAX_RESPONSES = 64 * 1024
"""Bytes of responses in one connection; a mail needs less than 2 KiB."""
# A response of the server from here on says that the same mail is refused again.
_PERMANENT = 500
_READY = 220


class MailSender:
    """`entries` are those of the setting named `setting`; `context` makes what verifies certificates; `seconds` bound a try."""

    def __init__(
        self, *, entries: Sequence[Entry], setting: str, context: Callable[[], TlsContext], seconds: float
    ) -> None:
        self._entries = entries
        self._setting = setting
        self._context = context
        self._seconds = seconds

    def post(self, one: Outgoing) -> PostResult:
        """One try. Raises nothing."""
        try:
            target = parse_mail(one.url)
            book = AddressBook(self._entries, setting=self._setting)
            where = Target("smtps" if target.tls else "smtp", target.host, target.port, "")
            return self._send(target, book.addresses(where), _message(target, one))
        except AccessDeniedError as error:
            return PostResult(outcome="denied", error=str(error))
        except CertificateError as error:
            hint = "SCHEDULER_WEBHOOK_CA_FILE names further authorities"
            message = f"the certificate of the mail server is not accepted: {error.verify_message}; {hint}"
            return PostResult(outcome="unreachable", error=message)
        except smtplib.SMTPRecipientsRefused as error:
            code, text = min(error.recipients.values())
            return _refused(code, text, permanent=code >= _PERMANENT)
        except (smtplib.SMTPSenderRefused, smtplib.SMTPDataError) as error:
            return _refused(error.smtp_code, error.smtp_error, permanent=error.smtp_code >= _PERMANENT)
        except smtplib.SMTPResponseException as error:
            # The login, the greeting: a repaired account or server takes the same mail.
            return _refused(error.smtp_code, error.smtp_error, permanent=False)
        except (OSError, ValueError) as error:
            return PostResult(outcome="unreachable", error=f"{type(error).__name__}: {error}".removesuffix(": "))

    def _send(self, target: MailTarget, addresses: Sequence[str], message: EmailMessage) -> PostResult:
        server = _PinnedSmtp(target, addresses, self._context if target.tls else None)
        with time_bound(server, self._seconds) as timed_out:
            try:
                code, text = server.connect(target.host, target.port)
                if code != _READY:
                    raise smtplib.SMTPConnectError(code, text)
                if not target.tls and kind_of(ip_address(server.address.partition("%")[0])) != "loopback":
                    server.ehlo_or_helo_if_needed()
                    if not server.has_extn("starttls"):
                        error = "the mail server offers no STARTTLS, and mail goes out with TLS only; use smtps:// or another port"
                        return PostResult(outcome="refused", error=error)
                    server.starttls(context=self._context())
                if target.user:
                    server.login(target.user, target.password)
                # Recipients that are refused beside others are not tried again: the others would get the mail twice.
                server.send_message(message)
            except OSError:
                if timed_out():
                    raise TimeoutError(f"no whole response within {self._seconds:g} s") from None
                raise
            with suppress(smtplib.SMTPException, OSError):
                server.quit()
        return PostResult(outcome="accepted", status=250)


class _PinnedSmtp(smtplib.SMTP):
    """Connects to one of `addresses` and resolves nothing; with `context` it begins with TLS for the name of the target."""

    def __init__(self, target: MailTarget, addresses: Sequence[str], context: Callable[[], TlsContext] | None) -> None:
        super().__init__(local_hostname=socket.gethostname() or "localhost", timeout=SILENCE_SECONDS)
        self.address = ""
        # What STARTTLS verifies the certificate against.
        self._host = target.host
        self._addresses = addresses
        self._make_context = context
        self._aborted = False

    def _get_socket(self, host: str, port: int, timeout: float) -> socket.socket:
        problem: OSError = OSError("no address")
        for address in self._addresses:
            try:
                plain = socket.create_connection((address, port), timeout)
            except OSError as error:
                problem = error
                if self._aborted:
                    break
                continue
            self.address = address
            if self._make_context is None:
                return plain
            # Not in one step: the handshake is part of what `abort` ends.
            wrapped = self._make_context().wrap_socket(plain, server_hostname=host, do_handshake_on_connect=False)
            self.sock = wrapped
            wrapped.do_handshake()
            return wrapped
        raise problem

    def getreply(self) -> tuple[int, bytes]:
        """A response. smtplib takes as many lines of it as come."""
        if self.file is None and self.sock is not None:
            self.file = _Responses(self.sock.makefile("rb"))
        return super().getreply()

    def abort(self) -> None:
        """Ends the connection from another thread, and tries no further address."""
        self._aborted = True
        if (sock := self.sock) is not None:
            with suppress(OSError):
                socket.socket.shutdown(sock, socket.SHUT_RDWR)


class _Responses:
    """What a server sends, line by line, bounded in all."""

    def __init__(self, file: BufferedReader) -> None:
        self._file = file
        self._left = MAX_RESPONSES

    def readline(self, size: int) -> bytes:
        """The next line, or a part of it. Raises OSError beyond MAX_RESPONSES."""
        line = self._file.readline(min(size, self._left + 1))
        self._left -= len(line)
        if self._left < 0:
            raise OSError(f"the mail server sent more than {MAX_RESPONSES // 1024} KiB of responses")
        return line

    def close(self) -> None:
        """Closes it."""
        self._file.close()


def _message(target: MailTarget, one: Outgoing) -> EmailMessage:
    """Its Message-ID is the id of the event, so that the same mail is recognised when it comes twice."""
    message = EmailMessage(policy=MAIL_POLICY)
    message["From"] = target.sender
    message["To"] = ", ".join(target.recipients)
    message["Subject"] = one.headers["subject"]
    message["Date"] = formatdate()
    message["Message-ID"] = f"<{one.headers['webhook-id']}@{target.sender.rpartition('@')[2]}>"
    message["Auto-Submitted"] = "auto-generated"
    message.set_content(one.body.decode(errors="replace"))
    return message


def _refused(code: int, text: bytes | str, *, permanent: bool) -> PostResult:
    shown = text.decode(errors="replace") if isinstance(text, bytes) else text
    error = f"the mail server responded with {code}: {shown[:_SHOWN]}"
    return PostResult(outcome="refused", status=code if 100 <= code <= 599 else 0, error=error, permanent=permanent)
