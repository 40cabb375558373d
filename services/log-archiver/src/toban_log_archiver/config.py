"""Configuration of the log-archiver: `SCHEDULER_*` variables (docs/architecture.md)."""

from __future__ import annotations

from typing import ClassVar

from toban_runtime.config import ServiceConfig


class LogArchiverConfig(ServiceConfig):
    """Needs PostgreSQL; S3 is looked at for health only, so it may be left out."""

    REQUIRED: ClassVar[tuple[str, ...]] = ("database_url",)
