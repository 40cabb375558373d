"""What coordinators make of the messages that other systems post to the site."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """As it was received; header names are in lower case."""

    hook: str
    headers: Mapping[str, str] = field(repr=False)
    body: bytes = field(repr=False)
    address: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Received:
    """`result`: accepted, duplicate, ignored or ping. `event_id` 0 = no event."""

    result: str
    event_id: int
    event_type: str


class Hooks(Protocol):
    """Checks messages and emits their events."""

    def receive(self, message: Message) -> Received:
        """Raises the TobanError of the coordinator: NOT_FOUND for a message that is not authentic."""
