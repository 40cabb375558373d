"""The program of a step `type: http`: sends the request, tries again, checks the response, and gives its body to the run as its result.

Usage: python -I -m toban_executor.adapters.http_step_runner, with the step as JSON on standard input: nothing of it is on the command line.

Exit code 0 for an expected status, 1 for every other end (the last line on stderr says why), 143 when the run was cancelled between two tries.
A step that is not cancelable tries on: the cancel takes effect at its end.
"""

from __future__ import annotations

import http.client
import json
import os
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cache, partial
from typing import Any, NamedTuple
from urllib.parse import urljoin

from toban_domain.http_access import not_public, parse_access
from toban_domain.http_call import Call, CallError, Request, parse_url, read_call, redirected
from toban_executor.adapters.job_client import JobClient, RefusedError
from toban_executor.adapters.step_program import CANCELED, fail
from toban_executor.guard.clock import boottime, pause
from toban_runtime.http_connection import (
    AccessDeniedError,
    AddressBook,
    CertificateError,
    PinnedConnection,
    TlsContext,
    send,
    tls_context,
)

VARIABLE = "SCHEDULER_HTTP_STEP_ALLOW"
MAX_BODY = 1 << 20
"""Bytes of a response that are read."""
_SHOWN = 1000


class TryFailedError(Exception):
    """This try has failed in a way that another one may not."""


class Response(NamedTuple):
    """What came back. `whole`: the body was not cut."""

    status: int
    body: bytes
    whole: bool


class Runner:
    """One step. Without `cancelable` no cancel ends its waiting. `secret_headers` have secrets, which no public network may carry in clear text."""

    def __init__(
        self,
        call: Call,
        *,
        secret_headers: Collection[str] = (),
        book: AddressBook,
        context: Callable[[], TlsContext],
        job: JobClient,
        cancelable: bool,
    ) -> None:
        self._call = call
        self._secret_headers = secret_headers
        self._book = book
        self._context = context
        self._job = job
        self._cancelable = cancelable

    def run(self) -> int:
        """Exit code of the step. Raises CallError, AccessDeniedError, RefusedError, CertificateError."""
        call = self._call
        for tried in range(1, call.attempts + 1):
            try:
                response = self._try()
            except TryFailedError as error:
                if tried == call.attempts:
                    return fail(f"{error}" + (f"; {tried} tries" if tried > 1 else ""))
                seconds = call.wait(tried)
                say(f"try {tried} of {call.attempts} failed: {error}; next in {seconds:g} s")
                if self._wait(seconds):
                    say("the run was cancelled")
                    return CANCELED
                continue
            return self._finish(response)
        raise AssertionError("a call has one try at least")

    def _wait(self, seconds: float) -> bool:
        """Whether the run was cancelled meanwhile, which ends the step."""
        if self._cancelable:
            return self._job.wait(seconds)
        pause(seconds)
        return False

    def _try(self) -> Response:
        response = self._follow(self._call.request)
        if response.status >= 500 and not self._call.expects(response.status):
            self._show(response)
            raise TryFailedError(f"the server responded with {response.status}")
        return response

    def _follow(self, request: Request) -> Response:
        for _ in range(self._call.redirects + 1):
            response, location = self._exchange(request)
            if not (location and self._call.redirects and response.status in (301, 302, 303, 307, 308)):
                return response
            target = parse_url(urljoin(_url(request), location))
            request = redirected(request, response.status, target)
        raise CallError(f"more than {self._call.redirects} redirects (follow_redirects)")

    def _exchange(self, request: Request) -> tuple[Response, str]:
        target, began = request.target, boottime()
        context = self._context() if target.scheme == "https" else None
        try:
            addresses = self._addresses(request)
            connection = PinnedConnection(
                target, addresses=addresses, timeout=self._call.response_timeout, context=context
            )
            answer = send(connection, request)
            body = answer.read(MAX_BODY + 1)
            connection.close()
        except CertificateError:
            raise
        except TimeoutError:
            limit = f"{self._call.response_timeout:g}"
            raise TryFailedError(
                f"{target.shown}: no response within response_timeout_seconds = {limit}, or no connection"
            ) from None
        except (OSError, http.client.HTTPException) as error:
            raise TryFailedError(f"{target.shown}: {type(error).__name__}: {_one_line(str(error))}") from None
        spent = boottime() - began
        say(f"{request.method} {target.shown}: {answer.status}, {min(len(body), MAX_BODY)} bytes, {spent:.3f} s")
        response = Response(answer.status, body[:MAX_BODY], len(body) <= MAX_BODY)
        return response, answer.getheader("Location") or ""

    def _addresses(self, request: Request) -> Sequence[str]:
        """Raises CallError when a secret would go to a public address in clear text: what a name means is known here only."""
        addresses = self._book.addresses(request.target)
        carried = [name for name in self._secret_headers if name in request.headers]
        if request.target.scheme == "http" and carried:
            addresses = not_public(addresses)
            if not addresses:
                raise CallError(
                    f"{request.target.shown} is at a public address, and header {carried[0]!r} has a secret; use https"
                )
        return addresses

    def _finish(self, response: Response) -> int:
        if not self._call.expects(response.status):
            self._show(response)
            return fail(f"the server responded with {response.status}, which expected_status does not have")
        if self._call.result == "body":
            self._job.output(_json_body(response))
        return 0

    def _show(self, response: Response) -> None:
        if response.body:
            say(f"response: {_one_line(response.body[:_SHOWN].decode(errors='replace'))}")


def _json_body(response: Response) -> Any:
    if not response.whole:
        raise CallError(f"the response has more than {MAX_BODY} bytes; take `result: body` out")
    try:
        return json.loads(response.body)
    except (ValueError, RecursionError):
        raise CallError("the response is not JSON; take `result: body` out, or ask for JSON") from None


def _url(request: Request) -> str:
    return f"{request.target.scheme}://{request.target.authority}{request.target.path}"


def _one_line(text: str) -> str:
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())


def say(line: str) -> None:
    """A line of output."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main(given: Mapping[str, Any], environ: Mapping[str, str]) -> int:
    """Exit code of the step."""
    try:
        call = read_call(given["http"], given["headers"])
        runner = Runner(
            call,
            secret_headers=given["secret_headers"],
            book=AddressBook(parse_access(given["allow"]), setting=f"{VARIABLE} of this executor"),
            context=cache(partial(tls_context, given["ca_file"])),
            job=JobClient(environ.get("TOBAN_SOCKET", "")),
            cancelable=given["cancelable"],
        )
        return runner.run()
    except CertificateError as error:
        return fail(
            f"the certificate of the server is not accepted: {error.verify_message}; "
            "SCHEDULER_HTTP_STEP_CA_FILE of the executor names other authorities"
        )
    except (AccessDeniedError, RefusedError, ValueError) as error:
        # ValueError: what an expanded template, or the location of a redirect, may not be.
        return fail(_one_line(str(error)))


if __name__ == "__main__":
    sys.exit(main(json.load(sys.stdin), os.environ))
