"""Chooses the class of jobs for this process and machine."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from toban_domain.errors import ErrorCode, TobanError
from toban_domain.job import ISOLATED, SHARED
from toban_executor.config import ExecutorConfig
from toban_executor.decide.isolation import (
    BY_SETTING,
    NO_SANDBOX,
    Abilities,
    Isolation,
    SandboxLimits,
    SandboxPlan,
    UidRange,
    describe,
    possible,
    why_not_isolated,
)
from toban_executor.guard import cgroup, kernel, limit_groups
from toban_executor.guard.cgroup import SlotCgroup
from toban_executor.guard.sandbox_init import changeable_above, closed_above
from toban_observability.logs import get_logger
from toban_runtime.config_checks import variable

_OF_SHARED = ("hidden_folders",)
_OF_ISOLATED = ("job_uids",)
_OF_SANDBOXES = (*_OF_SHARED, *_OF_ISOLATED, "shown_folders", "job_memory_mb", "job_processes", "job_cpus")
"""Settings that only sandboxes use; the two before, those of one class only."""
_SHARED = "class shared: jobs of this executor are one trust level"
_log = get_logger(__name__)


def chosen(config: ExecutorConfig, state_dir: Path) -> tuple[SandboxPlan | None, Isolation]:
    """What guards are to make, and what people are shown; None = no sandbox. It forks: call it before there are threads.

    Raises TobanError CONFIG_INVALID for settings that are not possible here.
    """
    if config.isolation == SHARED:
        _refuse(_unused(config, _OF_SANDBOXES), because=SHARED)
        _log.info(_SHARED, reason="SCHEDULER_ISOLATION=shared")
        return None, BY_SETTING
    if config.isolation == ISOLATED:
        _refuse(_unused(config, _OF_SHARED), because=ISOLATED)
    try:
        uids = UidRange.parse(config.job_uids)
    except ValueError as error:
        raise TobanError(ErrorCode.CONFIG_INVALID, f"SCHEDULER_JOB_UIDS: {error}") from None
    abilities = abilities_here(state_dir)
    reason = why_not_isolated(abilities, uids)
    if reason and config.isolation == ISOLATED:
        text = f"SCHEDULER_ISOLATION: isolated is not possible here: {reason}"
        raise TobanError(ErrorCode.CONFIG_INVALID, text)
    limits = SandboxLimits(config.job_memory_mb, config.job_processes, config.job_cpus)
    hidden = (str(state_dir), str(config.tls_dir.absolute()), *_folders(config.hidden_folders))
    whole = SandboxPlan(uids, True, limits, hidden, _folders(config.shown_folders))
    plan = possible(whole, abilities, isolated=not reason)
    if reason:
        unused = _unused(config, _OF_ISOLATED if plan else _OF_SANDBOXES)
        _log.info(_SHARED, reason=reason, no_user_namespace=abilities.no_user_namespace, unused_settings=unused)
    if plan is None:
        return None, NO_SANDBOX
    kind = _try_limits(limits)
    if not reason:
        unused = _unused(config, _OF_SHARED)
        _log.info("class isolated", uids=str(uids), namespaces=plan.namespaces, limits=kind, unused_settings=unused)
    _warn_of_processes(limits)
    return plan, describe(plan, limited_by=kind)


def _unused(config: ExecutorConfig, fields: Sequence[str]) -> str:
    """Those of these settings that are set, and that the class does not use."""
    return ", ".join(variable(field) for field in fields if field in config.model_fields_set)


def _refuse(unused: str, *, because: str) -> None:
    if unused:
        text = f"SCHEDULER_ISOLATION={because} does not use {unused}; unset these, or choose the class that does (docs/isolation.md)"
        raise TobanError(ErrorCode.CONFIG_INVALID, text)


def _warn_of_processes(limits: SandboxLimits) -> None:
    own = cgroup.find_base("", make=False)
    most = limit_groups.most_processes(own)
    if most is not None and not 0 < limits.processes < most:
        _log.warning(
            "the job of one slot can take all processes of this executor's control group, and then no other job starts; "
            "set SCHEDULER_JOB_PROCESSES lower",
            job_processes=limits.processes,
            pids_max=most,
        )


def _try_limits(limits: SandboxLimits) -> str:
    """What holds them here. Raises TobanError CONFIG_INVALID when it does not take them: no slot would come up."""
    name = f"toban-limits-{os.getpid()}"
    base = cgroup.find_base(name)
    groups = limit_groups.find(limits, base)
    try:
        slot_group = None
        if base is not None:
            slot_group = SlotCgroup(base=base, slot=0).path
            slot_group.mkdir(exist_ok=True)
        limit_groups.apply(groups, limits, slot_group=slot_group, name=name)
    except OSError as error:
        settings = "SCHEDULER_JOB_MEMORY_MB, SCHEDULER_JOB_PROCESSES, SCHEDULER_JOB_CPUS"
        text = f"{settings}: {error.filename}: {error.strerror}; set limits that are within those of the executor's own control group"
        raise TobanError(ErrorCode.CONFIG_INVALID, text) from None
    finally:
        limit_groups.remove(groups, [name])
        if base is not None:
            cgroup.remove(base)
    return groups.kind


def _folders(setting: str) -> tuple[str, ...]:
    return tuple(str(Path(folder).resolve()) for folder in setting.split(",") if folder)


def abilities_here(state_dir: Path) -> Abilities:
    """Of this process."""
    status = Path("/proc/self/status").read_text()
    effective = next(int(line.split()[1], 16) for line in status.splitlines() if line.startswith("CapEff:"))
    state_dir = state_dir.resolve()
    return Abilities(
        effective,
        _why_no_namespaces(as_user=False),
        _why_no_namespaces(as_user=True),
        closed_above(str(state_dir.parent)),
        Path("/proc/self/uid_map").read_text(),
        changeable_above(str(state_dir)),
    )


def _why_no_namespaces(*, as_user: bool) -> str:
    """Tried in a child: containers refuse one or the other by rules that no file shows."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            if as_user:
                kernel.enter_user_namespace()
            kernel.unshare(kernel.CLONE_NEWNS | kernel.CLONE_NEWIPC | kernel.CLONE_NEWPID)
            # The first process of a pid namespace mounts its own list of processes.
            if (init := os.fork()) == 0:
                _mount()
            status = os.waitpid(init, 0)[1]
            if status:
                os.write(write, os.strerror(os.waitstatus_to_exitcode(status)).encode())
        except OSError as error:
            os.write(write, str(error.strerror).encode())
        finally:
            os._exit(0)
    os.close(write)
    with os.fdopen(read, encoding="utf-8") as said:
        reason = said.read()
    os.waitpid(pid, 0)
    return reason


def _mount() -> NoReturn:
    number = 0
    try:
        kernel.mount("", "/", "", kernel.MS_REC | kernel.MS_SLAVE)
        kernel.mount("proc", "/proc", "proc", kernel.MS_NOSUID | kernel.MS_NODEV | kernel.MS_NOEXEC)
        kernel.mount("tmpfs", "/dev/shm", "tmpfs", kernel.MS_NOSUID | kernel.MS_NODEV)
    except OSError as error:
        number = error.errno or 1
    finally:
        os._exit(number)
