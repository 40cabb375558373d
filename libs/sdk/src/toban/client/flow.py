"""Requests without input or output: a flow yields what is to be done, and gets what came of it. Both clients carry out the same flows.

A flow is a generator of effects: `Request` → `Reply`, `Open` → `Reply` with the head of a stream, `NextLine` → a line or None at the end,
`Pause`, `Now` → seconds of a monotonic clock, and `Item`, which goes to the caller. A failed connection is thrown into it as
`TransportError`. Its return value is the answer.
"""

from __future__ import annotations

import random
from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from toban.client.answers import BUSY, read_json, retry_after_of
from toban.errors import ConfigError, OutcomeUnknownError, TobanError, UnavailableError

T = TypeVar("T")
Pairs = tuple[tuple[str, str], ...]

CALL_SECONDS = 35.0
"""Longest silence of a call, seconds: the site has 30 s for a write."""
SILENCE_SECONDS = 40.0
"""Longest silence of a stream, seconds: the site sends a comment at least every 10 s."""

_FIRST_PAUSE, _LONGEST_PAUSE = 0.2, 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """`path` is below /api/v1, of an `is_page` below the site. `body` is for JSON, or bytes that are sent as they are.

    `repeatable`: a second arrival has no second effect. `timeout` is the longest silence, seconds.
    """

    method: str
    path: str
    query: Pairs = ()
    body: Any = None
    headers: Mapping[str, str] = field(default_factory=dict)
    repeatable: bool = False
    is_page: bool = False
    timeout: float = CALL_SECONDS


@dataclass(frozen=True, slots=True)
class Open:
    """Opens a stream. It is closed by its last line, the next effect that is no `NextLine` nor `Item`, and the end of the flow."""

    request: Request


@dataclass(frozen=True, slots=True)
class NextLine:
    """The next line of the stream, without its end; None after the last one. `timeout` is in seconds."""

    timeout: float = SILENCE_SECONDS


@dataclass(frozen=True, slots=True)
class Pause:
    """Waits, seconds."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Now:
    """Reads the monotonic clock, seconds."""


@dataclass(frozen=True, slots=True)
class Item:
    """Goes to the caller."""

    value: Any


Effect = Request | Open | NextLine | Pause | Now | Item
Flow = Generator[Effect, Any, T]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """A whole answer, or the head of a stream. Header names are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes = b""


class TransportError(Exception):
    """No answer came. `never_sent`: the request did not leave this machine. `is_final`: another try does not help.

    `is_broken`: the connection ended under the request, as one does that was kept too long.
    """

    def __init__(
        self,
        message: str,
        *,
        never_sent: bool = False,
        is_final: bool = False,
        is_timeout: bool = False,
        is_broken: bool = False,
    ) -> None:
        super().__init__(message)
        self.is_broken = is_broken
        self.never_sent = never_sent
        self.is_final = is_final
        self.is_timeout = is_timeout

    def as_error(self, changes: bool) -> TobanError:
        """What the caller gets; `changes`: the request would have changed something."""
        if self.is_final:
            return ConfigError(str(self), code="CONFIG_INVALID")
        code = "DEADLINE_EXCEEDED" if self.is_timeout else "UNAVAILABLE"
        if changes and not self.never_sent:
            return OutcomeUnknownError(f"{self}; a change may have happened, so read before you repeat it", code=code)
        return UnavailableError(str(self), code=code)


@dataclass(slots=True, kw_only=True)
class RetryBudget:
    """How long one request may wait in all for a site that is away or has no room, seconds.

    Without `for_outage` it waits only as long as the site asks for.
    """

    seconds: float
    for_outage: bool = True
    may_have_arrived: bool = False
    """A try has reached the site, as far as is known, without an answer that excludes an effect."""
    _waited: float = 0.0
    _pause: float = field(default_factory=lambda: _FIRST_PAUSE)

    def pause_for(self, asked: float | None = None, lost: float = 0.0) -> float | None:
        """Seconds until the next try, None when the budget is used up. `asked` is Retry-After; `lost` is what the last try took.

        A random part keeps clients apart that were refused together.
        """
        self._waited += lost
        if asked is None and not self.for_outage:
            return None
        if asked is None:
            pause, self._pause = self._pause * random.uniform(0.5, 1.0), min(2 * self._pause, _LONGEST_PAUSE)
        else:
            # Not at once, whatever the site says: it would be asked without an end.
            pause = max(asked, _FIRST_PAUSE) + random.uniform(0.0, 0.25)
        if self._waited + pause > self.seconds:
            return None
        self._waited += pause
        return pause


def exchange(request: Request, retry_seconds: float) -> Flow[Any]:
    """The JSON of the answer. Waits and repeats within `retry_seconds`, where that cannot have a second effect. Raises TobanError.

    An UnavailableError of a change is an OutcomeUnknownError once a try has reached the site: also a 503 may come after the change.
    """
    budget = RetryBudget(seconds=retry_seconds)
    try:
        found = yield from ask(request, budget)
    except UnavailableError as error:
        if request.method == "GET" or error.is_unknown or not budget.may_have_arrived:
            raise
        raise _unknown(error) from None
    return found


def _unknown(error: UnavailableError) -> OutcomeUnknownError:
    return OutcomeUnknownError(
        f"{error.args[0]}; a change may have happened, so read before you repeat it",
        code=error.code,
        status=error.status,
        mistakes=error.mistakes,
        retry_after=error.retry_after,
        request_id=error.request_id,
        context=error.context,
    )


def ask(request: Request, budget: RetryBudget) -> Flow[Any]:
    """The JSON of the answer to a request that waits and is repeated within a budget. Raises TobanError."""
    reply = yield from reply_to(request, budget)
    return read_json(reply.status, reply.headers, reply.body)


def reply_to(effect: Request | Open, budget: RetryBudget) -> Flow[Reply]:
    """The answer, whatever its status, or the head of a stream. Raises UnavailableError and ConfigError without one.

    A repeatable request whose connection breaks is sent once more at once, and again within the budget.
    """
    request = effect.request if isinstance(effect, Open) else effect
    once_more = request.repeatable
    while True:
        try:
            reply: Reply = yield effect
        except TransportError as error:
            budget.may_have_arrived |= not error.never_sent
            if once_more and error.is_broken:
                once_more = False
                continue
            lost = request.timeout if error.is_timeout else 0.0
            pause = budget.pause_for(lost=lost) if request.repeatable or error.never_sent else None
            if error.is_final or pause is None:
                raise error.as_error(changes=request.method != "GET") from None
            yield Pause(pause)
            continue
        budget.may_have_arrived |= reply.status in BUSY and reply.status != 429
        # A request that was refused with 429 was not carried out.
        if reply.status in BUSY and (request.repeatable or reply.status == 429):
            pause = budget.pause_for(retry_after_of(reply.headers))
            if pause is not None:
                yield Pause(pause)
                continue
        return reply
