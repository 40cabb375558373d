"""What pages and the API call at coordinators: any method by its name, for the person of the request."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Protocol, TypeVar

A = TypeVar("A")


class Caller(Protocol):
    """Calls for one request. `method` is a name such as JobReader.GetJob, `answer` the model or dataclass with the fields that the answer keeps.

    `fields` are those of the method's request; None leaves one out. Raises the TobanError of the method, UNAVAILABLE and DEADLINE_EXCEEDED,
    and INVALID_ARGUMENT for a value that its field cannot hold.
    """

    def read(self, method: str, answer: type[A], fields: Mapping[str, Any]) -> A:
        """A call that changes nothing: a coordinator that does not respond is skipped for the next one. All reads share the request's seconds.

        A method of SLOW_CALLS has a time limit of its own, and only a coordinator that is not reached is skipped.
        """

    def watch(self, method: str, answer: type[A], fields: Mapping[str, Any], *, seconds: float) -> Iterator[A]:
        """The answers of a method that streams them, until it ends. Raises DEADLINE_EXCEEDED after `seconds`."""

    def write(self, method: str, answer: type[A], fields: Mapping[str, Any]) -> A:
        """A call that may change something: it is never sent twice. A method of SLOW_CALLS has a time limit of its own."""
