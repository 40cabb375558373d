"""The executor's settings out of SCHEDULER_* variables."""

from pathlib import Path
from typing import Annotated, ClassVar, Literal

from pydantic import AfterValidator, Field

from toban_runtime.config import ServiceConfig


def _none_or_at_least(least: float) -> AfterValidator:
    """0 = no limit. What is smaller the kernel refuses, or no program starts with it."""

    def check(value: float) -> float:
        if 0 < value < least:
            raise ValueError(f"write 0 for no limit, or {least:g} or more")
        return value

    return AfterValidator(check)


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
    warm_zygotes: int = Field(
        2,
        ge=0,
        le=16,
        description="how many processes that warm steps fork from each slot keeps at most; 0 = warm steps start cold",
    )
    warm_idle_seconds: float = Field(
        600, ge=0, description="how long such a process may be idle before it is ended; 0 = for ever"
    )
    warm_memory_mb: int = Field(
        512, ge=16, description="MiB of memory above which such a process is ended after its step"
    )
    warm_forks: int = Field(
        1000, ge=0, description="number of steps after which such a process is replaced; 0 = no limit"
    )
    renew_certificate: bool = Field(
        False, description="asks the coordinators for another certificate before this one ends (docs/joining.md)"
    )
    isolation: Literal["auto", "isolated", "shared"] = Field(
        "auto",
        description="class of jobs: `isolated` = a uid for each slot, `shared` = the executor's; auto = isolated where it may change uids",
    )
    job_uids: str = Field(
        "60706-61183",
        description="uids of isolated jobs, FIRST-LAST, which no account of the machine has; each slot takes a free one",
    )
    shown_folders: str = Field(
        "",
        description="folders, with commas, that isolated jobs see although they are below /tmp or a folder that is closed to them",
    )
    hidden_folders: str = Field(
        "",
        description="folders, with commas, that jobs of class `shared` do not see where user namespaces are possible, beside those of the executor",
    )
    job_memory_mb: Annotated[int, _none_or_at_least(64)] = Field(
        0, ge=0, le=1 << 30, description="MiB of memory that an isolated slot may have, 64 or more; 0 = no limit"
    )
    job_processes: int = Field(
        4096, ge=0, le=4_000_000, description="processes and threads that an isolated slot may have; 0 = no limit"
    )
    job_cpus: Annotated[float, _none_or_at_least(0.01)] = Field(
        0, ge=0, le=100_000, description="CPUs that an isolated slot may use, as 1.5, 0.01 or more; 0 = no limit"
    )
    http_step_allow: str = Field(
        "public",
        description="hosts, addresses and networks that http steps may connect to; `public` = all public addresses, `none` = nothing",
    )
    container_engine: Path | None = Field(
        None, description="socket of Docker or Podman; such an executor runs container and http steps only"
    )
    container_mounts: str = Field("", description="folders that containers may see, path,path:rw; unset = none")
    kubernetes_api: str = Field(
        "",
        description="https address of the API of the cluster for kubernetes steps; such an executor runs kubernetes and http steps only",
    )
    kubernetes_namespaces: str = Field("", description="namespaces of Jobs, with commas; the first is the default")
    kubernetes_images: str = Field(
        "", description="images that pods may have, with commas: registry.example.com/team/*; * alone = every image"
    )
    kubernetes_service_accounts: str = Field(
        "", description="service accounts that pods may have, with commas; unset = none"
    )
    kubernetes_owner: str = Field(
        "toban", description="name of this Toban in the labels of Jobs; its own where several use one namespace"
    )
    kubernetes_margin_seconds: float = Field(
        60, ge=10, le=3600, description="how long after the lease a Job ends by itself when its executor is lost"
    )
    kubernetes_settle_seconds: float = Field(
        30, ge=1, le=600, description="how long the API may carry out a request for a Job that it has not responded to"
    )
    kubernetes_token_file: Path = Field(
        Path("/var/run/secrets/kubernetes.io/serviceaccount/token"), description="token for the API"
    )
    kubernetes_ca_file: Path = Field(
        Path("/var/run/secrets/kubernetes.io/serviceaccount/ca.crt"), description="PEM file of the API's authorities"
    )
    http_step_ca_file: Path | None = Field(
        None, description="PEM file of the authorities that http steps accept; unset = those of the machine"
    )
