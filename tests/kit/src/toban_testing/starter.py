"""Ends the processes that a test session or a bench has started when it ends itself, in any way: also by `kill -9`.

At the first use a watcher is started, in a session of its own, which no Ctrl-C reaches. It waits for the end of its starter by a pidfd: a fork of the
starter that lives on delays nothing. Then it ends what it finds: processes that have inherited the starter's mark, or that name one of its folders
in their command line or first environment, with all that descends from them, and the stacks in these folders. Folders are given before something
starts in them, so there is no moment in which a process is unknown. In the ordinary case nothing is left, and the watcher does nothing.
"""

import ctypes
import functools
import json
import os
import re
import select
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from toban_stack.processes import DEFAULTED, ProcessRecord, boot_id, descendants, kill_all, send, start_time, unnamed
from toban_stack.wait import wait_until

# Inherited by what the starter starts.
MARK = "TOBAN_STARTER"
MODULE = "toban_testing.starter"
# Processes that the kernel cannot end now (D state) end later, without us.
ROUNDS = 10
PR_SET_PDEATHSIG = 1
# Of /proc/<pid>/stat, counted from behind the name: the controlling terminal.
TTY = 4


def end_with_this_process(folder: Path, *, remove: bool = False) -> None:
    """What runs in `folder` ends at the latest with this process; `remove`: so does the folder. To be called before something starts in it."""
    row = {"folder": str(folder.absolute()), "remove": remove}
    os.write(_watch(os.getpid()), json.dumps(row).encode() + b"\n")


@contextmanager
def temporary_folder(prefix: str) -> Iterator[Path]:
    """A new folder that is removed after use; what runs in it ends at the latest with this process."""
    with tempfile.TemporaryDirectory(prefix=prefix) as folder:
        end_with_this_process(Path(folder), remove=True)
        yield Path(folder)


def end_with_parent() -> None:
    """The kernel kills this process when its parent ends; the watcher does the rest. Raises OSError.

    A process of xdist would notice the end by its closed connection, and interrupt its test many seconds later.
    """
    parent, libc = os.getppid(), ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG)")
    if os.getppid() != parent:  # It has ended before the call.
        os.kill(os.getpid(), signal.SIGKILL)


@functools.cache
def _watch(pid: int) -> int:
    """Starts the watcher of this process. Returns the file for its folders; a fork has a watcher of its own."""
    started = start_time(pid)
    os.environ[MARK] = mark = f"{pid}-{started}-{boot_id()}"
    # In memory: it is gone with the last of its readers, whatever happens to them.
    folders = os.memfd_create(mark)
    os.posix_spawn(
        sys.executable,
        [sys.executable, "-P", "-m", MODULE, str(pid), str(started)],
        os.environ,
        file_actions=[
            (os.POSIX_SPAWN_DUP2, folders, 0),
            # A reader of the starter's output does not wait for the watcher.
            (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0),
            (os.POSIX_SPAWN_DUP2, 1, 2),
        ],
        setsid=True,
        setsigmask=(),
        setsigdef=DEFAULTED,
    )
    return folders


def main(arguments: list[str]) -> None:
    """The watcher. Usage: python -m toban_testing.starter PID STARTED <FOLDERS"""
    pid, started = map(int, arguments)
    _wait_for_end(pid, started)
    rows = [json.loads(line) for line in os.pread(0, os.fstat(0).st_size, 0).splitlines()]
    folders = [Path(row["folder"]) for row in rows]
    Leftovers(folders, mark=os.environ[MARK], since=started).end()
    for row in rows:
        if row["remove"]:
            shutil.rmtree(row["folder"], ignore_errors=True)


def _wait_for_end(pid: int, started: int) -> None:
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    # Else its pid has been given to another process meanwhile.
    if start_time(pid) == started:
        select.select([handle], [], [])
    os.close(handle)


class Leftovers:
    """What a starter has left: processes with its mark or in its folders, each younger than itself (`since`), unlike a shell around it."""

    def __init__(self, folders: list[Path], *, mark: str, since: int) -> None:
        self._folders = folders
        names = b"|".join(re.escape(os.fsencode(name)) for name in (f"{MARK}={mark}", *map(str, folders)))
        # The name of another session's folder may begin with that of this one's.
        self._names = re.compile(b"(?:" + names + rb")(?![\w.-])")
        self._mark = os.fsencode(f"{MARK}={mark}")
        self._since = since

    def end(self) -> None:
        """Strays first: one may be about to start or stop a stack. Then stacks, as `make down` does. Then what is left."""
        stacks = self._stacks()
        if not stacks and not self._found():
            return
        # Imported here: most watchers do not need it.
        from toban_stack.stack import GUARD, GUARD_SECONDS, Stack

        members = [record for _, records in stacks for record in records]
        guards = [one for one in self._found() if os.fsencode(GUARD) in _read(one.pid, "cmdline")]
        spared = {one.pid for one in [*members, *guards, *descendants([*members, *guards])]}
        kill_all(one for one in self._family() if one.pid not in spared)
        for home, _ in stacks:
            with suppress(Exception):  # What is in the way of an orderly end is no reason to leave the rest.
                Stack(home=home).down()
        # Guards whose executor has died end their jobs and remove their control groups.
        wait_until(lambda: not self._found(), GUARD_SECONDS, 0.1)
        for _ in range(ROUNDS):
            if not self._kill():
                return

    def _stacks(self) -> list[tuple[Path, list[ProcessRecord]]]:
        """Folders of stacks that have recorded processes, with these."""
        from toban_stack.state_file import StateFile

        stacks: dict[Path, list[ProcessRecord]] = {}
        for top in self._folders:
            for folder, _, files in os.walk(top):
                if "stack.json" in files:
                    with suppress(Exception):  # A test may have damaged it.
                        stacks[Path(folder)] = StateFile(path=Path(folder) / "stack.json").all()
        return [(home, records) for home, records in stacks.items() if records]

    def _found(self) -> list[ProcessRecord]:
        return [
            record
            for entry in Path("/proc").iterdir()
            if entry.name.isdigit()
            and self._ours(int(entry.name))
            and not _is_watcher(int(entry.name))
            and (record := unnamed(int(entry.name))) is not None
            # What its shell or `timeout` has started in the same tick is not from it: an interpreter takes longer than a tick to start.
            and record.started > self._since
        ]

    def _ours(self, pid: int) -> bool:
        environment = _read(pid, "environ")
        if self._names.search(_read(pid, "cmdline") + b"\0" + environment) is None:
            return False
        # Without the mark it is a job, which has no terminal, or an editor that shows a file of the folder.
        return self._mark in environment.split(b"\0") or not _has_terminal(pid)

    def _family(self) -> list[ProcessRecord]:
        """What is found with all that descends from it, without the watchers of starters among them: these have work to do."""
        found = self._found()
        family = {one.pid: one for one in [*found, *descendants(found)]}
        return [one for one in family.values() if not _is_watcher(one.pid)]

    def _kill(self) -> int:
        """All are stopped before one is killed: so none starts another one whose parent is then unknown."""
        stopped: dict[int, ProcessRecord] = {}
        while new := [one for one in self._family() if one.pid not in stopped]:
            for one in new:
                send(one, signal.SIGSTOP)
                stopped[one.pid] = one
        return kill_all(stopped.values())


def _is_watcher(pid: int) -> bool:
    return os.fsencode(MODULE) in _read(pid, "cmdline").split(b"\0")


def _has_terminal(pid: int) -> bool:
    fields = _read(pid, "stat").rpartition(b")")[2].split()
    return len(fields) > TTY and fields[TTY] != b"0"


def _read(pid: int, file: str) -> bytes:
    try:
        return Path(f"/proc/{pid}/{file}").read_bytes()
    except OSError:
        return b""


if __name__ == "__main__":
    main(sys.argv[1:])
