"""Loop `probe`: checks PostgreSQL each second and the object store each half minute, for /readyz and /healthz."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from toban_log_archiver.ports.object_store import ObjectStore
from toban_log_archiver.store import partitions
from toban_observability.error_rate import SAMPLE_SECONDS, ErrorRate
from toban_observability.health import Check, report
from toban_observability.logs import get_logger
from toban_runtime.clock import Clock
from toban_store.errors import StoreError
from toban_store.pool import Pool
from toban_store.tx import autocommit

TICK_SECONDS = 1.0
BUCKET_SECONDS = 30.0

_log = get_logger(__name__)


class HealthProbe:
    """`run_once` for a Loop; `document` is the last result. Without PostgreSQL the service is not ready; without S3 it has a warning."""

    def __init__(
        self,
        *,
        pool: Pool,
        bucket: ObjectStore | None,
        clock: Clock,
        certificate: Callable[[], Check],
        archive: Callable[[], Check],
    ) -> None:
        self._certificate = certificate
        self._archive = archive
        self._pool = pool
        self._bucket = bucket
        self._clock = clock
        self._bucket_at: float | None = None
        self._errors = ErrorRate()
        self._sampled_at: float | None = None
        self._checks = {
            "postgresql": Check("error", "not checked yet"),
            "object_store": Check("ok", "not checked yet"),
        }

    def document(self) -> dict[str, Any]:
        """What /healthz shows."""
        others = {"archive": self._archive(), "certificate": self._certificate()}
        return report({**self._checks, **others, "errors_5_minutes": self._errors.check()})

    async def run_once(self) -> None:
        """Checks once; an outage is a result, not an error."""
        self._note("postgresql", await self._postgresql())
        now = self._clock.monotonic()
        if self._sampled_at is None or now - self._sampled_at >= SAMPLE_SECONDS:
            self._sampled_at = now
            self._errors.sample(now)
        if self._bucket_at is None or now - self._bucket_at >= BUCKET_SECONDS:
            self._bucket_at = now
            self._note("object_store", await self._object_store())

    def _note(self, name: str, check: Check) -> None:
        if check.status != self._checks[name].status:
            _log.info("health changed", check=name, status=check.status, value=check.value)
        self._checks[name] = check

    async def _postgresql(self) -> Check:
        started = self._clock.monotonic()
        try:
            async with autocommit(self._pool) as t:
                migrated = await partitions.migrated(t)
        except StoreError as error:
            return Check("error", error.message)
        if not migrated:
            return Check("error", "schema logs is missing: run `python -m toban_store.migrate up`")
        return Check("ok", {"seconds": round(self._clock.monotonic() - started, 4)})

    async def _object_store(self) -> Check:
        if self._bucket is None:
            return Check(
                "warning",
                "not configured, so nothing is archived: set SCHEDULER_S3_BUCKET (and SCHEDULER_S3_ENDPOINT_URL, unless it is AWS)",
            )
        problem = await self._bucket.problem()
        return Check("warning", problem) if problem else Check("ok", "reachable")
