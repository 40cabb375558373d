"""Settings of a process from `SCHEDULER_*` variables (docs/architecture.md), checked whole before anything starts."""

import os
import socket
import sys
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, TypeVar

from pydantic import BeforeValidator, Field, ValidationError
from pydantic_settings import BaseSettings, NoDecode, PydanticBaseSettingsSource, SettingsConfigDict

from toban_runtime.config_checks import (
    ConfigError,
    SecretFiles,
    check_database_url,
    check_required,
    check_sample_secrets,
    check_token_file,
    check_unknown,
    is_secret,
    one_line,
    parse_addresses,
    parse_labels,
)

EXIT_CONFIG = 78
"""Exit code of a process whose configuration is wrong (EX_CONFIG)."""

Addresses = Annotated[tuple[str, ...], NoDecode, BeforeValidator(parse_addresses)]
Labels = Annotated[dict[str, str], NoDecode, BeforeValidator(parse_labels)]
Port = Annotated[int, Field(ge=0, le=65535)]


class ServiceConfig(BaseSettings):
    """Every variable that a service may have; a service's own config subclasses this and names what it needs in `REQUIRED`.

    Fields with `repr=False` are secret: each may come as `SCHEDULER_<NAME>_FILE` (path of a file that holds it).
    """

    model_config = SettingsConfigDict(env_prefix="SCHEDULER_", env_ignore_empty=True, extra="forbid", frozen=True)

    REQUIRED: ClassVar[tuple[str, ...]] = ()
    """Fields that may not be empty in this service."""

    database_url: str = Field("", repr=False, description="PostgreSQL URL")
    redis_url: str = Field("", repr=False, description="Redis URL, also redis+sentinel:// and redis+cluster://")
    tls_dir: Path = Field(Path("/etc/scheduler/tls"), description="folder of tls.crt, tls.key and ca.crt")
    trust_domain: str = Field("toban.internal", description="trust domain of the SPIFFE ids")
    tls_shared_identity: bool = Field(
        False, description="takes certificates that several services have in common (docs/kubernetes.md)"
    )
    node_id: str = Field(default_factory=socket.gethostname, description="name of this machine")
    grpc_host: str = Field("127.0.0.1", description="address that the gRPC server binds")
    grpc_port: Port = Field(0, description="0 = any free port")
    advertise_host: str = Field("", description="host that others reach this process by; see `advertised`")
    admin_host: str = Field("127.0.0.1", description="address that the admin port binds")
    admin_port: Port = Field(0, description="0 = any free port")
    admin_token_file: Path | None = Field(
        None, description="file with the token that /healthz and /metrics ask for; unset = they refuse every request"
    )
    coordinators: Addresses = Field((), description="host:port of coordinators")
    log_archivers: Addresses = Field((), description="host:port of log-archivers")
    state_dir: Path | None = Field(None, description="folder of a process's own files")
    slots: int | None = Field(
        None,
        ge=1,
        le=10_000,
        description="jobs that an executor runs at a time; unset = the setting max_jobs_per_worker",
    )
    labels: Labels = Field(default_factory=dict, description="labels of an executor, k=v,k=v")
    allow_list: Path | None = Field(
        None, description="file with the programs that an executor may start, their arguments and variables"
    )
    secrets_key_file: Path | None = Field(None, description="file with the keys that encrypt secrets of jobs")
    s3_endpoint_url: str = Field("", description="URL of the object store")
    s3_bucket: str = Field("", description="bucket of the log archive")
    s3_access_key: str = Field("", repr=False, description="access key of the object store")
    s3_secret_key: str = Field("", repr=False, description="secret key of the object store")
    s3_region: str = Field("us-east-1", description="region of the object store")
    s3_addressing_style: Literal["path", "virtual", "auto"] = Field(
        "path", description="how a bucket is named in URLs: path (MinIO, SeaweedFS) or virtual (AWS)"
    )
    skip_late_runs_after_seconds: int = Field(0, ge=0, description="seeds the setting of that name at migration")
    log_format: Literal["json", "console", "auto"] = Field("auto", description="auto = console on a terminal")
    log_level: Literal["debug", "info", "warning", "error"] = Field("info", description="least level that is logged")
    ready_file: Path | None = Field(None, description="file to write when the process serves")

    @property
    def advertised(self) -> str:
        """Host that others reach this process by: as set; else the bind address if loopback; else the host name."""
        if self.advertise_host:
            return self.advertise_host
        return self.grpc_host if self.grpc_host in ("127.0.0.1", "localhost") else socket.gethostname()

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Arguments, then the environment, then files of secrets; no .env file is ever read."""
        del dotenv_settings, file_secret_settings
        return init_settings, env_settings, SecretFiles(settings_cls)


C = TypeVar("C", bound=ServiceConfig)


def read(cls: type[C], **overrides: Any) -> C:
    """The configuration of this process. Raises ConfigError with one line: what, where, the remedy."""
    secrets = [name for name, info in cls.model_fields.items() if is_secret(info)]
    check_unknown(cls.model_fields, os.environ, secrets)
    try:
        config = cls(**overrides)
    except ValidationError as error:
        raise ConfigError(one_line(error)) from None
    check_required(config, cls.REQUIRED)
    check_database_url("SCHEDULER_DATABASE_URL", config.database_url)
    check_sample_secrets(config)
    check_token_file(config.admin_token_file)
    return config


def load(cls: type[C], **overrides: Any) -> C:
    """As `read`, for a main: writes the line to stderr and exits 78 when something is wrong."""
    try:
        return read(cls, **overrides)
    except ConfigError as error:
        sys.stderr.write(f"{error}\n")
        raise SystemExit(EXIT_CONFIG) from None


__all__ = ["EXIT_CONFIG", "Addresses", "ConfigError", "ServiceConfig", "load", "read"]
