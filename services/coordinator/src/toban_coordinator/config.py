"""Settings of a coordinator process."""

from __future__ import annotations

from typing import ClassVar

from toban_runtime.config import ServiceConfig


class CoordinatorConfig(ServiceConfig):
    """A coordinator needs PostgreSQL and Redis; everything else has a default."""

    REQUIRED: ClassVar[tuple[str, ...]] = ("database_url", "redis_url")
