"""Chooses the class of jobs for this process and machine."""

import os
from pathlib import Path

from toban_domain.errors import ErrorCode, TobanError
from toban_executor.config import ExecutorConfig
from toban_executor.decide.isolation import (
    SHARED,
    Abilities,
    Isolation,
    SandboxLimits,
    SandboxPlan,
    UidRange,
    choose,
    describe,
    why_not_isolated,
)
from toban_executor.guard import cgroup, kernel, limit_groups
from toban_executor.guard.sandbox_init import changeable_above, closed_above
from toban_observability.logs import get_logger

_log = get_logger(__name__)


def chosen(config: ExecutorConfig, state_dir: Path) -> tuple[SandboxPlan | None, Isolation]:
    """What guards are to make, and what people are shown; None = class `shared`. It forks: call it before there are threads.

    Raises TobanError CONFIG_INVALID for settings that are not possible here.
    """
    limits = SandboxLimits(config.job_memory_mb, config.job_processes, config.job_cpus)
    abilities = abilities_here(state_dir)
    try:
        plan = choose(config.isolation, SandboxPlan(UidRange.parse(config.job_uids), True, limits), abilities)
    except ValueError as error:
        name = "SCHEDULER_JOB_UIDS" if "range of uids" in str(error) else "SCHEDULER_ISOLATION"
        raise TobanError(ErrorCode.CONFIG_INVALID, f"{name}: {error}") from None
    if plan is None:
        reason = why_not_isolated(abilities) or "SCHEDULER_ISOLATION=shared"
        _log.info("class shared: jobs of this executor are one trust level", reason=reason)
        return None, SHARED
    probe = cgroup.find_base(f"toban-limits-{os.getpid()}")
    groups = limit_groups.find(plan.limits, probe)
    if probe is not None:
        cgroup.remove(probe)
    _log.info("class isolated", uids=str(plan.uids), namespaces=plan.namespaces, limits=groups.kind)
    return plan, describe(plan, limited_by=groups.kind)


def abilities_here(state_dir: Path) -> Abilities:
    """Of this process."""
    status = Path("/proc/self/status").read_text()
    effective = next(int(line.split()[1], 16) for line in status.splitlines() if line.startswith("CapEff:"))
    state_dir = state_dir.resolve()
    closed, changeable = closed_above(str(state_dir.parent)), changeable_above(str(state_dir))
    return Abilities(effective, _why_no_namespaces(), closed, changeable)


def _why_no_namespaces() -> str:
    """Tried in a child: containers refuse one or the other by rules that no file shows."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            kernel.unshare(kernel.CLONE_NEWNS | kernel.CLONE_NEWIPC | kernel.CLONE_NEWPID)
            kernel.mount("", "/", "", kernel.MS_REC | kernel.MS_SLAVE)
            kernel.mount("tmpfs", "/proc", "tmpfs", kernel.MS_NOSUID)
        except OSError as error:
            os.write(write, str(error.strerror).encode())
        finally:
            os._exit(0)
    os.close(write)
    with os.fdopen(read, encoding="utf-8") as said:
        reason = said.read()
    os.waitpid(pid, 0)
    return reason
