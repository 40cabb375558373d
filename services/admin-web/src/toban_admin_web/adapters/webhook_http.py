"""Sends webhooks: to allowed addresses only, each name resolved once a try, no redirect, no proxy, within a fixed time."""

from __future__ import annotations

import http.client
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path

from toban_admin_web.adapters.time_bound import time_bound
from toban_admin_web.adapters.webhook_mail import MailSender
from toban_admin_web.ports.webhooks import Outgoing, PostResult
from toban_domain.errors import ErrorCode, TobanError
from toban_domain.http_access import not_public, parse_access
from toban_domain.http_call import CallError, Request, Target, parse_url
from toban_domain.mail_target import is_mail
from toban_domain.version import VERSION
from toban_runtime.http_connection import (
    AccessDeniedError,
    AddressBook,
    CertificateError,
    PinnedConnection,
    TlsContext,
    check_ca_file,
    send,
    tls_context,
)

ALLOW, CA_FILE = "SCHEDULER_WEBHOOK_ALLOW", "SCHEDULER_WEBHOOK_CA_FILE"
SILENCE_SECONDS = 10.0
"""How long a target may be silent."""
TRY_SECONDS = 20.0
"""How long a try may last, also with a target that sends its response byte by byte. Shorter than a lease."""
MAX_RESPONSE = 2048
_SHOWN = 200
_SETTING = f"{ALLOW} of the site"


class WebhookPoster:
    """`allow` is SCHEDULER_WEBHOOK_ALLOW, `ca_file` SCHEDULER_WEBHOOK_CA_FILE. Raises TobanError CONFIG_INVALID for what cannot be read."""

    def __init__(self, *, allow: str, ca_file: Path | None, seconds: float = TRY_SECONDS) -> None:
        try:
            self._entries = parse_access(allow)
        except ValueError as error:
            raise TobanError(ErrorCode.CONFIG_INVALID, f"{ALLOW}: {error}") from None
        try:
            if ca_file is not None:
                check_ca_file(ca_file)
        except ValueError as error:
            raise TobanError(ErrorCode.CONFIG_INVALID, f"{CA_FILE}: {error}") from None
        self._ca_file = str(ca_file) if ca_file else ""
        self._seconds = seconds
        self._mail = MailSender(entries=self._entries, setting=_SETTING, context=lambda: self._context, seconds=seconds)

    def post(self, one: Outgoing) -> PostResult:
        """One try."""
        if is_mail(one.url):
            return self._mail.post(one)
        try:
            request = Request("POST", parse_url(one.url), {**one.headers, "User-Agent": f"toban/{VERSION}"}, one.body)
            return self._exchange(request, self._addresses(request.target))
        except (CallError, AccessDeniedError) as error:
            return PostResult(outcome="denied", error=str(error))
        except CertificateError as error:
            message = f"the certificate of the target is not accepted: {error.verify_message}; {CA_FILE} names further authorities"
            return PostResult(outcome="unreachable", error=message)
        except (OSError, http.client.HTTPException, ValueError) as error:
            return PostResult(
                outcome="unreachable", error=f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
            )

    def _addresses(self, target: Target) -> Sequence[str]:
        """Raises AccessDeniedError. What goes to a public address is not readable on its way."""
        addresses = AddressBook(self._entries, setting=_SETTING).addresses(target)
        if target.scheme == "http":
            addresses = not_public(addresses)
            if not addresses:
                raise AccessDeniedError(f"{target.host!r} is a public address, where webhooks go by https only")
        return addresses

    def _exchange(self, request: Request, addresses: Sequence[str]) -> PostResult:
        context = self._context if request.target.scheme == "https" else None
        connection = PinnedConnection(request.target, addresses=addresses, timeout=SILENCE_SECONDS, context=context)
        with time_bound(connection, self._seconds) as timed_out:
            try:
                answer = send(connection, request)
                status, text, asked = answer.status, answer.read(MAX_RESPONSE), answer.getheader("Retry-After") or ""
            except (OSError, http.client.HTTPException, ValueError):
                if not timed_out():
                    raise
            if timed_out():
                raise TimeoutError(f"no whole response within {self._seconds:g} s")
        if 200 <= status <= 299:
            return PostResult(outcome="accepted", status=status)
        what = f"the target responded with {status}"
        if 300 <= status <= 399:
            what += "; redirects are not followed, set the URL to where it leads"
        elif text:
            what += f": {text[:_SHOWN].decode(errors='replace')}"
        retry_after = int(asked) if asked.isascii() and asked.isdecimal() and len(asked) < 9 else 0
        return PostResult(outcome="refused", status=status, error=what, retry_after=retry_after)

    @cached_property
    def _context(self) -> TlsContext:
        return tls_context(self._ca_file)
