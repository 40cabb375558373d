"""A share of one core for a running process, as a container's CPU limit gives it."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

_PERIOD_US = 100_000
_CGROUPS = Path("/sys/fs/cgroup")


@contextlib.contextmanager
def limited_cpu(pid: int, share: float) -> Iterator[Callable[[], str]]:
    """`share` of a core for `pid` and its threads, in periods of 100 ms; yields what tells how: by a cgroup, with the periods in which it
    was throttled, or by stops (SIGSTOP and SIGCONT in turns).

    Stops count wall time and not CPU time, so they are the harder limit.
    """
    group = _made(share)
    if group is None:
        with _stopped_in_turns(pid, share):
            yield lambda: "stops"
        return
    home = _group_of(pid, group.parent)
    try:
        (group / "cgroup.procs").write_text(str(pid))
        yield lambda: f"cgroup, {_throttled(group)}"
    finally:
        with contextlib.suppress(ProcessLookupError):
            (home / "cgroup.procs").write_text(str(pid))
        with contextlib.suppress(OSError):
            group.rmdir()


def _made(share: float) -> Path | None:
    """A cgroup with that limit; None where none can be made."""
    quota = round(share * _PERIOD_US)
    name = f"toban-limited-{os.getpid()}-{threading.get_ident()}"
    for root, limits in (
        (_CGROUPS / "cpu", {"cpu.cfs_period_us": str(_PERIOD_US), "cpu.cfs_quota_us": str(quota)}),
        (_CGROUPS, {"cpu.max": f"{quota} {_PERIOD_US}"}),
    ):
        group = root / name
        try:
            group.mkdir()
        except OSError:
            continue
        try:
            for file, value in limits.items():
                (group / file).write_text(value)
        except OSError:
            group.rmdir()
            continue
        return group
    return None


def _throttled(group: Path) -> str:
    stat = dict(line.split() for line in (group / "cpu.stat").read_text().splitlines())
    return f"throttled in {stat['nr_throttled']} of {stat['nr_periods']} periods"


def _group_of(pid: int, root: Path) -> Path:
    """The group of `pid` below `root`, to which it returns."""
    wanted = "cpu" if root.name == "cpu" else ""
    for line in Path(f"/proc/{pid}/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if wanted in controllers.split(","):
            return root / path.lstrip("/")
    return root


@contextlib.contextmanager
def _stopped_in_turns(pid: int, share: float) -> Iterator[None]:
    over = threading.Event()
    period = _PERIOD_US / 1e6

    def turns() -> None:
        with contextlib.suppress(ProcessLookupError):
            while not over.wait(period * share):
                os.kill(pid, signal.SIGSTOP)
                over.wait(period * (1 - share))
                os.kill(pid, signal.SIGCONT)

    thread = threading.Thread(target=turns, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)
