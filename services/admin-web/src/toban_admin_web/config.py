"""Configuration of admin-web: `SCHEDULER_*` variables (docs/admin-site.md)."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, ClassVar

from pydantic import BeforeValidator, Field, field_validator
from pydantic_settings import NoDecode

from toban_runtime.config import Port, ServiceConfig
from toban_runtime.http_connection import check_ca_file

# Threads of one worker for requests. Live logs may occupy half of them, so that pages always get one.
MIN_THREADS = 4
MAX_WORKERS = 16


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
    http_workers: int = Field(1, ge=1, le=MAX_WORKERS, description="processes that serve requests")
    http_threads: int = Field(128, ge=MIN_THREADS, le=1024, description="requests that each of them serves at a time")
    api_rate: int = Field(
        1200, ge=0, le=1_000_000, description="requests of the API a minute, for each person; 0 = no limit"
    )
    request_seconds: float = Field(5.0, ge=0.5, le=30.0, description="time limit of all reads of one request together")
    webhook_allow: str = Field("public", description="addresses that webhooks may go to (docs/webhooks.md)")
    webhook_ca_file: Path | None = Field(
        None, description="PEM file of the authorities that certificates of webhook targets may have"
    )
    webhook_senders: int = Field(8, ge=0, le=64, description="webhooks sent at a time; 0 = this replica sends none")
    oidc_client_secret: str = Field(
        "", repr=False, description="secret of Toban at the OpenID provider; unset = PKCE alone"
    )
    oidc_ca_file: Path | None = Field(
        None, description="PEM file of the authorities that the OpenID provider's certificate may have"
    )
    web_dir: Path = Field(default_factory=_web_dir, description="folder of templates, static files and locales")

    @field_validator("oidc_ca_file")
    @classmethod
    def _check_ca_file(cls, path: Path | None) -> Path | None:
        if path is not None:
            check_ca_file(path)
        return path

    @property
    def max_streams(self) -> int:
        """Live logs and downloads of one worker at a time."""
        return self.http_threads // 2

    @property
    def max_live_pages(self) -> int:
        """Pages of one worker that follow the changes of the cluster at a time; the others ask again and again."""
        return self.http_threads // 4

    @property
    def max_oidc_steps(self) -> int:
        """Sign-ins of one worker that wait for the OpenID provider at a time."""
        return self.http_threads // 4

    def admin_port_of(self, worker: int) -> int:
        """The admin port of a worker, counted from 0: one after the other; 0 = any free one."""
        return self.admin_port + worker if self.admin_port else 0

    def webhook_senders_of(self, worker: int) -> int:
        """The part of a worker in the webhooks that are sent at a time."""
        each, left = divmod(self.webhook_senders, self.http_workers)
        return each + (worker < left)
