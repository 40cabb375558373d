"""What external workers call themselves and their claims, and which types of steps are theirs: checked before anything is done."""

from __future__ import annotations

import re
from collections.abc import Sequence

from toban_coordinator.store.external import external_claims
from toban_domain.errors import ErrorCode, TobanError
from toban_domain.outcome import AttemptKey
from toban_manifests.values import NAME
from toban_store.pool import Pool
from toban_store.tx import autocommit

# Claims that one call may name.
MAX_KEYS = 1000
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


def check_claim(worker_type: str, *, only: str) -> None:
    """Raises PERMISSION_DENIED for a type of steps that is not the worker's; `only` "" = all are."""
    if only and worker_type != only:
        raise TobanError(
            ErrorCode.PERMISSION_DENIED,
            f"this worker may claim steps of worker_type {only!r} only, not {worker_type[:60]!r}; use the certificate or token for that type",
        )


class ClaimTypes:
    """The types of claims that there are."""

    def __init__(self, *, pool: Pool) -> None:
        self._pool = pool

    async def check(self, keys: Sequence[AttemptKey], *, only: str) -> None:
        """Raises PERMISSION_DENIED when one of `keys` is the claim of a step of another type than `only` ("" = all are the worker's), also of one
        that another worker has, and INVALID_ARGUMENT for too many. Claims that there are no more pass: nothing can be done with them."""
        if not only or not keys:
            return
        check_count(keys, MAX_KEYS, "claims")
        async with autocommit(self._pool) as t:
            foreign = await external_claims.of_other_types(t, keys, only)
        if foreign:
            runs = ", ".join(str(run) for run in foreign[:10])
            message = (
                f"run {runs}: the step is not of worker_type {only!r}, and this worker may do nothing with it; "
                "use the certificate or token for its type"
            )
            raise TobanError(ErrorCode.PERMISSION_DENIED, message)
