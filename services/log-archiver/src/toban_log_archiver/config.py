"""Configuration of the log-archiver: `SCHEDULER_*` variables (docs/architecture.md)."""

from __future__ import annotations

from typing import ClassVar

from toban_runtime.config import ServiceConfig


class LogArchiverConfig(ServiceConfig):
    """Needs PostgreSQL; without S3 nothing is archived."""

    REQUIRED: ClassVar[tuple[str, ...]] = ("database_url",)
