"""What callers apply, and what became of each document."""

from __future__ import annotations

import json
from dataclasses import dataclass

from toban_domain.errors import ErrorCode, TobanError
from toban_schedule import AnnotatedSlot


@dataclass(frozen=True, slots=True, kw_only=True)
class ManifestText:
    """One document as JSON text. `source` is where it comes from ("" = unknown).

    `expect_version` is the version that must be stored now: 0 = none, None = any.
    """

    json: str
    source: str = ""
    expect_version: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Applied:
    """One document that was applied. `action` is created, updated or unchanged. `note` says why it makes no runs.
    Schedules have next slots, and the next change of their clock."""

    kind: str
    name: str
    action: str
    version: int
    next_slots: tuple[AnnotatedSlot, ...] = ()
    clock_change: str = ""
    note: str = ""


def parse_json(text: str, source: str) -> object:
    """The parsed document. Raises MANIFEST_INVALID, which names `source`."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise TobanError(ErrorCode.MANIFEST_INVALID, f"{source}: is not JSON: {error}") from None
