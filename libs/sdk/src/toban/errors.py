"""Errors of the client: `TobanError` and its kinds. `code` is stable (docs/errors.md); the text names the problem and its remedy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Mistake:
    """One mistake of an invalid request: `where` is its path, such as `manifests.0.spec.steps`."""

    where: str
    message: str


class TobanError(Exception):
    """A request was refused, or did not reach the site. Catch a subclass, or compare `code`.

    `status` is that of HTTP, 0 without an answer. `retry_after` is how long the site asks to wait, seconds; None without
    such a wish. `request_id` finds the request in the site's log. `context` has further values of the answer.
    """

    is_foreign = False
    """Whether the answer is not from Toban, but from a proxy or from something else at the address."""

    def __init__(
        self,
        message: str,
        *,
        code: str = "INTERNAL",
        status: int = 0,
        mistakes: Sequence[Mistake] = (),
        retry_after: float | None = None,
        request_id: str = "",
        context: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.status = status
        self.mistakes = tuple(mistakes)
        self.retry_after = retry_after
        self.request_id = request_id
        self.context: Mapping[str, Any] = dict(context or {})

    def __str__(self) -> str:
        listed = [f"{one.where}: {one.message}" for one in self.mistakes]
        # Of a refused manifest the text is the first mistake.
        if not self.mistakes or self.mistakes[0].message not in self.args[0]:
            listed.insert(0, self.args[0])
        if left_out := self.context.get("left_out"):
            listed.append(f"and {left_out} more")
        return f"{self.code}: {'; '.join(listed)}"


class InvalidRequestError(TobanError):
    """A value of the request is wrong: a manifest, a payload, a schedule. Sending it again does not help."""


class NotFoundError(TobanError):
    """The object does not exist, or the person of the token may not see it."""


class ConflictError(TobanError):
    """The object exists already, has another state or version, or a claim is lost."""


class AccessError(TobanError):
    """The token is missing, revoked or expired, or its person may not do this."""


class RateLimitedError(TobanError):
    """The site takes no more requests for now; `retry_after` says for how long."""


class UnavailableError(TobanError):
    """The site cannot be reached, or no coordinator answers. The request was not carried out, unless `is_unknown`."""

    is_unknown = False
    """Whether the request may have been carried out: read before you repeat it."""


class OutcomeUnknownError(UnavailableError):
    """No answer came to a change, or one with status 502, 503 or 504. The change may have happened: read before you repeat it."""

    is_unknown = True


class ConfigError(TobanError):
    """The address, the token or the CA file cannot be used, or something other than Toban answers."""


class RunFailedError(TobanError):
    """A run ended in another state than SUCCEEDED; `run` is that run."""

    def __init__(self, run: Any) -> None:
        # An exit code alone says nothing.
        text = (
            (run.last_line if run.reason == "exit_code" else "")
            or run.error_summary
            or run.reason
            or run.cancel_reason
            or "it names no reason"
        )
        super().__init__(f"run {run.id} of {run.job} ended as {run.state}: {text}", code="RUN_FAILED")
        self.run = run


class WaitTimeoutError(TobanError, TimeoutError):
    """A wait ended before the run did. The run goes on; `run` is as it was last seen."""

    def __init__(self, run: Any, seconds: float) -> None:
        message = f"run {run.id} is still {run.state} after {seconds:g} s; it goes on"
        super().__init__(message, code="DEADLINE_EXCEEDED")
        self.run = run


class OutputIncompleteError(UnavailableError):
    """A run has ended, and the end of its output has not arrived at the site: follow again after `position` ("" = from the start)."""

    def __init__(self, run_id: int, position: str) -> None:
        where = f"after position {position}" if position else "from the start"
        message = (
            f"run {run_id} has ended, and the end of its output has not arrived at the site; follow it again {where}"
        )
        super().__init__(message, code="UNAVAILABLE")
        self.run_id, self.position = run_id, position


_INVALID = frozenset(
    {"INVALID_ARGUMENT", "MANIFEST_INVALID", "PAYLOAD_INVALID", "PAYLOAD_TOO_LARGE", "SCHEDULE_INVALID", "USAGE"}
)
_ACCESS = frozenset({"UNAUTHENTICATED", "PERMISSION_DENIED", "TICKET_MISSING", "TICKET_INVALID", "TICKET_EXPIRED"})
_BY_STATUS: Mapping[int, tuple[str, type[TobanError]]] = {
    400: ("INVALID_ARGUMENT", InvalidRequestError),
    401: ("UNAUTHENTICATED", AccessError),
    403: ("PERMISSION_DENIED", AccessError),
    404: ("NOT_FOUND", NotFoundError),
    409: ("CONFLICT", ConflictError),
    412: ("CONFLICT", ConflictError),
    413: ("PAYLOAD_TOO_LARGE", InvalidRequestError),
    421: ("CONFIG_INVALID", ConfigError),
    429: ("RESOURCE_EXHAUSTED", RateLimitedError),
    501: ("UNIMPLEMENTED", TobanError),
    502: ("UNAVAILABLE", OutcomeUnknownError),
    503: ("UNAVAILABLE", UnavailableError),
    504: ("DEADLINE_EXCEEDED", OutcomeUnknownError),
}


def error_kind(status: int, code: str) -> tuple[str, type[TobanError]]:
    """The code and the class of an answer with this status; an unknown `code` is kept.

    >>> error_kind(404, "JOB_NOT_FOUND")
    ('JOB_NOT_FOUND', <class 'toban.errors.NotFoundError'>)
    >>> error_kind(418, "")[0]
    'INVALID_ARGUMENT'
    """
    fallback = ("INTERNAL", TobanError) if status >= 500 else ("INVALID_ARGUMENT", InvalidRequestError)
    name, kind = _BY_STATUS.get(status, fallback)
    if code in _INVALID:
        kind = InvalidRequestError
    elif code in _ACCESS:
        kind = AccessError
    return code or name, kind
