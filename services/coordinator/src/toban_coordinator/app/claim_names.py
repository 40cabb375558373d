"""What external workers call themselves and their claims: checked before it goes into a statement."""

from __future__ import annotations

import re
from collections.abc import Sequence

from toban_domain.errors import ErrorCode, TobanError
from toban_manifests.values import NAME

_WORKER = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:@/-]{0,199}")


def check_worker(name: str) -> None:
    """Raises INVALID_ARGUMENT for what is no name of a worker."""
    if not _WORKER.fullmatch(name):
        raise TobanError(
            ErrorCode.INVALID_ARGUMENT,
            f"worker {name[:50]!r} is not a name; use letters, digits and . _ : @ / -, at most 200, beginning with a letter or digit",
        )


def check_worker_type(name: str) -> None:
    """Raises INVALID_ARGUMENT for what is no type that a step can have."""
    if not NAME.fullmatch(name):
        raise TobanError(
            ErrorCode.INVALID_ARGUMENT,
            f"worker_type {name[:50]!r} is not a name; write it as `worker_type` of the step: a-z, 0-9, '.', '_', '-'",
        )


def check_count(items: Sequence[object], most: int, what: str) -> None:
    """Raises INVALID_ARGUMENT for too many."""
    if len(items) > most:
        raise TobanError(ErrorCode.INVALID_ARGUMENT, f"{len(items)} {what} in one call, the limit is {most}")
