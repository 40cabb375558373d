"""Process trees by /proc: who descends from a process, and signals to all of them."""

import contextlib
import os
import signal
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path

from toban_executor.decide.usage import Measured
from toban_executor.guard import kernel

TICKS = os.sysconf("SC_CLK_TCK")
"""Clock ticks of a second, in which /proc has times."""
_PAGE = os.sysconf("SC_PAGE_SIZE")
_CAP_KILL = 5
# With a slot's number it fits into the 15 characters that the kernel keeps.
_SLOT_NAME = "toban-slot-"


def become_subreaper() -> None:
    """From now on orphans below this process become its children. Raises OSError when the kernel refuses."""
    kernel.prctl(kernel.PR_SET_CHILD_SUBREAPER, 1, name="PR_SET_CHILD_SUBREAPER")


def set_slot_name(slot: int) -> None:
    """Name this process after its slot, for `slot_of` and for people who look at the list of processes."""
    with contextlib.suppress(OSError):
        kernel.set_name(f"{_SLOT_NAME}{slot}")


def slot_of(pid: int) -> int | None:
    """The slot of a slot supervisor; None for any other process."""
    try:
        name = Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return None
    number = name.removeprefix(_SLOT_NAME)
    return int(number) if name != number and number.isdigit() else None


def start_time(pid: int) -> int:
    """Start of process `pid` in clock ticks since boot: with the pid it names a process for good. 0 = no such process."""
    fields = _stat(pid)
    return 0 if not fields or fields[0] in (b"Z", b"X") else int(fields[19])


def usage(root: int, since: int) -> Measured:
    """CPU and memory of the processes below `root` that began at `since` (clock ticks since boot) or later."""
    ticks = pages = processes = 0
    for pid in scan_tree(root):
        fields = _stat(pid)
        if fields and int(fields[19]) >= since:
            # Its own time in user and kernel mode, and that of the children that it has reaped.
            ticks += sum(map(int, fields[11:15]))
            pages += int(fields[21])
            processes += 1
    return Measured(ticks / TICKS, pages * _PAGE, processes)


def _stat(pid: int) -> list[bytes]:
    """The fields of /proc/PID/stat behind the name, from the state on (proc(5) counts it as the third); none when there is no such process."""
    try:
        return Path(f"/proc/{pid}/stat").read_bytes().rsplit(b") ", 1)[1].split()
    except (OSError, IndexError):
        return []


def is_there(pid: int) -> bool:
    """Whether there is such a process, also one that /proc does not show (hidepid)."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True


def children(pid: int) -> list[int]:
    """Direct children of all threads of `pid`; empty when it has ended."""
    return threads_and_children(pid)[1]


def threads_and_children(pid: int) -> tuple[int, list[int]]:
    """How many threads `pid` has, and direct children of all of them. No thread: it has ended, or /proc does not show it."""
    found: list[int] = []
    try:
        threads = os.listdir(f"/proc/{pid}/task")  # noqa: PTH208 (names only)
    except OSError:
        return 0, found
    for thread in threads:
        # Not pathlib, which costs more than the kernel does.
        with contextlib.suppress(OSError), open(f"/proc/{pid}/task/{thread}/children", "rb", buffering=0) as file:  # noqa: PTH123
            found += map(int, file.read().split())
    return len(threads), found


def scan_tree(pid: int) -> Iterator[int]:
    """Everything below `pid`, as it is found, and so not a snapshot: callers repeat it until nothing is left.

    The latest child comes first. A job that forks and exits all the time lives in its latest process, for less time than a scan of those that
    have ended takes. So signals are sent during the scan, not after it.
    """
    todo = [pid]
    while todo:
        # The kernel lists the oldest first.
        below = children(todo.pop())[::-1]
        yield from below
        todo += below


def descendants(pid: int) -> list[int]:
    """Everything below `pid`, by one scan."""
    return list(scan_tree(pid))


def signal_tree(pid: int, signals: tuple[int, ...], *, but: Collection[int] = ()) -> list[int]:
    """Send each of `signals` to everything below `pid`, `but` some; returns the living processes that refused one (EPERM)."""
    refused = set()
    for member in scan_tree(pid):
        if member in but:
            continue
        for number in signals:
            try:
                os.kill(member, number)
            except ProcessLookupError:
                break
            except PermissionError:
                refused.add(member)
    return [member for member in refused if start_time(member)]


def kill_all(pids: Iterable[int]) -> None:
    """SIGKILL to each of these processes; those that have ended, or refuse it (EPERM), are left out."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)


def keep_within_reach() -> None:
    """From now on nothing below this process gets other rights by a setuid program (no_new_privs), unless it could be killed all the same.

    Raises OSError when the kernel refuses.
    """
    if _may_signal_everything():
        return
    kernel.prctl(kernel.PR_SET_NO_NEW_PRIVS, 1, name="PR_SET_NO_NEW_PRIVS")


def _may_signal_everything(status: Path = Path("/proc/self/status")) -> bool:
    """True for root with CAP_KILL."""
    fields = dict(line.split(":", 1) for line in status.read_text().splitlines() if ":" in line)
    return fields["Uid"].split()[1] == "0" and bool(int(fields["CapEff"], 16) & 1 << _CAP_KILL)


def with_environment(marker: bytes) -> list[int]:
    """Processes that this user may look at and whose first environment holds the entry `marker` (``NAME=value``)."""
    return [pid for pid in _all_processes() if marker in _strings(pid, "environ")]


def real_uids() -> Iterator[tuple[int, int]]:
    """Each process with its real uid. The files of a job of another uid, such as its environment, are closed to an executor without SYS_PTRACE."""
    for pid in _all_processes():
        try:
            # The owner of this folder is root for a process that is not dumpable.
            status = Path(f"/proc/{pid}/status").read_text()
        except OSError:
            continue
        line = next(line for line in status.splitlines() if line.startswith("Uid:"))
        yield pid, int(line.split()[1])


def with_argument(argument: bytes) -> list[int]:
    """Processes whose command line holds `argument`."""
    return [pid for pid in _all_processes() if has_argument(pid, argument)]


def has_argument(pid: int, argument: bytes) -> bool:
    """Whether the command line of the process holds `argument`: that of its parent until it executes a program."""
    return argument in _strings(pid, "cmdline")


def _all_processes() -> list[int]:
    return [int(entry) for entry in os.listdir("/proc") if entry.isdigit()]  # noqa: PTH208 (names only)


def _strings(pid: int, file: str) -> list[bytes]:
    """The strings in a file of the process; none when it has ended, or belongs to another user."""
    try:
        return Path(f"/proc/{pid}/{file}").read_bytes().split(b"\0")
    except OSError:
        return []
