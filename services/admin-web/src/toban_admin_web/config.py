"""Configuration of admin-web: `SCHEDULER_*` variables (docs/admin-site.md)."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, ClassVar

from pydantic import BeforeValidator, Field
from pydantic_settings import NoDecode

from toban_runtime.config import Port, ServiceConfig

# Threads for requests. Live logs may occupy half of them, so that pages always get one.
MIN_THREADS = 4


def _names(value: Any) -> tuple[str, ...]:
    parts = value.split(",") if isinstance(value, str) else value
    return tuple(part.strip().lower() for part in parts if part.strip())


def _web_dir() -> Path:
    """The folder inside an installed package, else the one of the repository."""
    installed = Path(__file__).resolve().parent / "web"
    return installed if installed.is_dir() else Path(__file__).resolve().parents[4] / "web"


Names = Annotated[tuple[str, ...], NoDecode, BeforeValidator(_names)]


class AdminWebConfig(ServiceConfig):
    """The settings of every service, and those of the site."""

    REQUIRED: ClassVar[tuple[str, ...]] = ("coordinators",)

    http_host: str = Field("127.0.0.1", description="address that the site binds")
    http_port: Port = Field(8080, description="port of the site; 0 = any free port")
    http_allow_remote: bool = Field(False, description="allows an http_host that is not loopback")
    http_names: Names = Field((), description="further host names that requests may carry")
    http_proxies: int = Field(0, ge=0, le=8, description="proxies in front that add to X-Forwarded-For")
    http_threads: int = Field(32, ge=MIN_THREADS, le=512, description="requests served at a time")
    request_seconds: float = Field(5.0, ge=0.5, le=30.0, description="time limit of the cluster's calls for one page")
    web_dir: Path = Field(default_factory=_web_dir, description="folder of templates, static files and locales")

    @property
    def max_streams(self) -> int:
        """Live logs and downloads at a time."""
        return self.http_threads // 2
