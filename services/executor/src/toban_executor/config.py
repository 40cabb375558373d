"""The executor's settings out of SCHEDULER_* variables."""

from typing import ClassVar

from pydantic import Field

from toban_runtime.config import ServiceConfig


class ExecutorConfig(ServiceConfig):
    """What every service has, and what only an executor needs."""

    REQUIRED: ClassVar[tuple[str, ...]] = ("state_dir", "coordinators")

    shutdown_timeout_seconds: float | None = Field(
        None, ge=0, description="how long running jobs may go on after SIGTERM; unset = the setting of that name"
    )
    shutdown_grace_seconds: float | None = Field(
        None,
        ge=0,
        description="longest grace_seconds of a job that is ended because the executor stops; unset = each job's own",
    )
    machine: str = Field(
        "",
        description="name of the machine that the state directory belongs to; unset = its machine id and host name",
    )
    log_budget_mb: int = Field(
        4096,
        ge=1,
        description="MiB of compressed log that wait on disk for a log-archiver before jobs wait in their writes",
    )
