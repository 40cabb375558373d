"""Starts programs detached from the terminal and stops exactly those.

A process is identified by its pid, its start time in /proc and the boot id: a reused pid is never mistaken for the
process that had it before. Signals go through a pidfd, so nothing can change between the check and the signal.
"""

import os
import signal
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from toban_stack.wait import wait_until

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
# Signals with their default action at the start of a program: Python ignores SIGPIPE and SIGXFSZ.
DEFAULTED = (signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE, signal.SIGXFSZ)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessRecord:
    """One process of a stack.

    `started` is in clock ticks since boot; `address` is host:port of its service; `admin` is host:port of its plain
    HTTP admin port, if any; SIGKILL follows `stop_signal` after `grace_seconds`; `leftovers` are files that it may leave
    and that its next start must not find.
    """

    name: str
    role: str
    pid: int
    started: int
    boot: str
    log: str
    address: str = ""
    admin: str = ""
    stop_signal: int = signal.SIGTERM
    grace_seconds: float = 10.0
    leftovers: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """A program to start: arguments without secrets, the complete environment, and how to stop it."""

    name: str
    role: str
    argv: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)
    log: Path
    address: str = ""
    admin: str = ""
    stop_signal: int = signal.SIGTERM
    grace_seconds: float = 10.0
    leftovers: tuple[str, ...] = ()

    def remove_leftovers(self) -> None:
        """Removes the files of a previous process that this one must not find."""
        for path in self.leftovers:
            Path(path).unlink(missing_ok=True)

    def open_log(self) -> int:
        """A descriptor that appends to the log, a file of mode 0600."""
        self.log.parent.mkdir(parents=True, exist_ok=True)
        return os.open(self.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)


def spawn(program: Program) -> ProcessRecord:
    """Starts `program` in a session of its own and appends its output to its log."""
    program.remove_leftovers()
    log = program.open_log()
    try:
        pid = os.posix_spawn(
            program.argv[0],
            program.argv,
            dict(program.environment),
            file_actions=[
                (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                (os.POSIX_SPAWN_DUP2, log, 1),
                (os.POSIX_SPAWN_DUP2, log, 2),
            ],
            setsid=True,
            setsigmask=(),
            setsigdef=DEFAULTED,
        )
    finally:
        os.close(log)
    return record_of(program, pid)


def record_of(program: Program, pid: int) -> ProcessRecord:
    """The record of `program`, which has just been started as `pid`."""
    return ProcessRecord(
        name=program.name,
        role=program.role,
        pid=pid,
        started=start_time(pid) or 0,
        boot=boot_id(),
        log=str(program.log),
        address=program.address,
        admin=program.admin,
        stop_signal=program.stop_signal,
        grace_seconds=program.grace_seconds,
        leftovers=program.leftovers,
    )


def boot_id() -> str:
    """Identifies the running kernel's boot."""
    return BOOT_ID.read_text(encoding="ascii").strip()


def start_time(pid: int) -> int | None:
    """Clock ticks since boot at which `pid` started; None when it does not run (a zombie does not run).

    A process whose first thread has ended looks like a zombie while others still hold its files and ports: it runs.
    """
    fields = _stat_fields(pid)
    return None if fields is None or (fields[0] in "ZX" and not _other_threads(pid)) else int(fields[19])


def alive(record: ProcessRecord) -> bool:
    """Whether the very process of `record` still runs. Reaps a dead child of this process."""
    _reap(record.pid)
    return record.boot == boot_id() and start_time(record.pid) == record.started


def send(record: ProcessRecord, signum: int) -> bool:
    """Sends a signal to the process of `record`; False when it has ended."""
    try:
        handle = os.pidfd_open(record.pid)
    except ProcessLookupError:
        return False
    try:
        if not alive(record):
            return False
        signal.pidfd_send_signal(handle, signum)
        return True
    except ProcessLookupError:
        return False
    finally:
        os.close(handle)


def stop(record: ProcessRecord, *, family: bool = True) -> str:
    """Stops the process, and its descendants (`family`): by its stop signal, then by SIGKILL. Returns how it ended, for people."""
    try:
        return _stop(record, family)
    finally:
        for path in record.leftovers:
            Path(path).unlink(missing_ok=True)


def _stop(record: ProcessRecord, family: bool) -> str:
    if not alive(record):
        return "had already ended"
    children = descendants([record]) if family else []
    send(record, signal.SIGCONT)
    send(record, record.stop_signal)
    how = "stopped"
    if not wait_until(lambda: not alive(record), record.grace_seconds):
        how = f"killed after {record.grace_seconds:g} s"
        kill_all([record])
    return how if not kill_all(children) else f"{how}, remaining child processes killed"


def kill_all(records: Iterable[ProcessRecord]) -> int:
    """Kills those of `records` that still run, waits for their end, and returns their number."""
    killed = [record for record in records if send(record, signal.SIGKILL)]
    wait_until(lambda: not any(alive(record) for record in killed), 5.0)
    return len(killed)


def descendants(parents: list[ProcessRecord]) -> list[ProcessRecord]:
    """The live processes that descend from `parents`, those in sessions of their own included."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and (fields := _stat_fields(int(entry.name))) is not None:
            children.setdefault(int(fields[1]), []).append(int(entry.name))
    found: list[ProcessRecord] = []
    waiting = [parent.pid for parent in parents if alive(parent)]
    while waiting:
        for pid in children.get(waiting.pop(), ()):
            if (record := unnamed(pid)) is not None:
                found.append(record)
                waiting.append(pid)
    return found


def called_with(module: str, argument: str) -> list[ProcessRecord]:
    """The live processes that run a Python module whose name begins so, with `argument` among their arguments."""
    found: list[ProcessRecord] = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            words = (entry / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        called = os.fsencode(argument) in words and any(word.startswith(os.fsencode(module)) for word in words)
        if called and (record := unnamed(int(entry.name))) is not None:
            found.append(record)
    return found


def python_program(*arguments: str) -> tuple[str, ...]:
    """The command line that runs this interpreter with `arguments`."""
    return (sys.executable, *arguments)


def unnamed(pid: int) -> ProcessRecord | None:
    """The record of a process of which only the pid is known; None when it does not run."""
    started = start_time(pid)
    if started is None:
        return None
    return ProcessRecord(name=f"pid {pid}", role="child", pid=pid, started=started, boot=boot_id(), log="")


def _stat_fields(pid: int) -> list[str] | None:
    """Fields of /proc/PID/stat from the state on: [0] state, [1] parent, [19] start time."""
    try:
        raw = Path(f"/proc/{pid}/stat").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The command name is in parentheses and may contain blanks and parentheses itself.
    return raw[raw.rindex(b")") + 2 :].decode("ascii").split()


def _other_threads(pid: int) -> bool:
    try:
        return any(entry.name != str(pid) for entry in Path(f"/proc/{pid}/task").iterdir())
    except OSError:
        return False


def _reap(pid: int) -> None:
    try:
        os.waitpid(pid, os.WNOHANG)
    except ChildProcessError:
        pass
