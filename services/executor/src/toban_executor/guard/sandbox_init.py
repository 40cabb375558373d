"""The process of a sandbox: enters its namespaces, gives up every right, and starts what its slot supervisor asks for.

It is forked by the slot supervisor (guard/sandbox.py) and never returns there. With a pid namespace it is the init of that: no job of the slot can
stop or kill it, and the kernel kills all that is left when it ends. It has the uid of the jobs and is not dumpable, so they can neither trace it nor
read its memory. A job that changes its limits or its priority does so in its own slot; the supervisor looks at them before each attempt.
"""

import contextlib
import marshal
import mmap
import os
import resource
import select
import signal
import socket
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from toban_executor.decide.isolation import PRIVATE_HOME, PRIVATE_MEMORY
from toban_executor.guard import kernel
from toban_executor.guard.pipes import signal_pipe
from toban_executor.guard.sandbox_messages import LARGEST_REQUEST, MOST_ENDED, Ended, Failed, Ready, Started, encode
from toban_executor.guard.spawn import RESET_SIGNALS, SpawnError, enter, find_program, start_process

_DESCRIPTORS = struct.Struct("@4i")
GO = b"go"
"""The first message to the process of a sandbox."""
OOM_SCORE = 500
"""The kernel ends jobs before guards when memory runs out; a job lowers it only where its executor lacks CAP_SYS_RESOURCE."""
_RLIMIT_MSGQUEUE = 12
_SAME_AS_TMP = "/var/tmp"
# Programs that it starts find these as they are by default: they are reset for each.
_IGNORED = {*RESET_SIGNALS} - {signal.SIGCHLD}
_LOOK_MILLISECONDS = 1
"""Between two looks at whether the supervisor has found the latest program: nearly always it is faster than the program ends."""


class SandboxSpec(NamedTuple):
    """Where a sandbox finds what is its own. `home` and `memory` are folders of the machine, `readable` those that its jobs need although a
    folder above them is closed to other users; `groups` are files that the process writes its pid to.

    `uid` None is that of this process, in a user namespace: then its jobs see the folders of the machine, but for those that are `hidden`.
    """

    uid: int | None
    namespaces: bool
    home: str
    memory: str
    readable: Sequence[str] = ()
    groups: Sequence[str] = ()
    processes: int = 0
    # By the kernel's limit for each process, where no group can hold it.
    memory_mb: int = 0
    hidden: Sequence[str] = ()


def main(sock: socket.socket, spec: SandboxSpec, found: mmap.mmap) -> NoReturn:
    """In the forked process: enter, drop, verify, say `ready`, serve."""
    try:
        sock = _only_descriptor(sock)
        # By then it is a child of the supervisor, whose end ends it.
        if sock.recv(len(GO)) != GO:
            os._exit(1)
        for number in _IGNORED:
            signal.signal(number, signal.SIG_IGN)
        # Else it had that of the slot supervisor.
        kernel.set_name("toban-sandbox")
        for file in spec.groups:
            Path(file).write_text("0")
        with contextlib.suppress(PermissionError):
            # Without root it belongs to root, since this process is not dumpable.
            Path("/proc/self/oom_score_adj").write_text(str(OOM_SCORE))
        if spec.namespaces:
            kernel.unshare(kernel.CLONE_NEWNS)
            _mount(spec)
        _drop(spec)
        problem = _not_dropped(spec.uid)
        if problem:
            raise OSError(0, problem)
        sock.send(encode(Ready()))
    except BaseException as error:
        with contextlib.suppress(OSError):
            sock.send(encode(Failed(str(error)[:1000])))
        os._exit(1)
    try:
        _Init(sock, found).serve()
    finally:
        os._exit(1)


def _only_descriptor(sock: socket.socket) -> socket.socket:
    """The socket as descriptor 3, and nothing else but 0 to 2."""
    if sock.fileno() != 3:
        os.dup2(sock.fileno(), 3, inheritable=False)
        sock = socket.socket(fileno=3)
    os.closerange(4, 1 << 20)
    return sock


# ---- mounts


def _mount(spec: SandboxSpec) -> None:
    # Mounts of the machine go on to appear here, and none of these appears there.
    kernel.mount("", "/", "", kernel.MS_REC | kernel.MS_SLAVE)
    home, memory = (os.open(folder, os.O_PATH | os.O_CLOEXEC) for folder in (spec.home, spec.memory))
    below_tmp = {folder: os.open(folder, os.O_PATH | os.O_CLOEXEC) for folder in spec.readable if place_in_home(folder)}
    if spec.uid is None:
        shown = (spec.home, *spec.readable)
        _cover({one: [folder for folder in shown if is_within(folder, one)] for one in outermost(spec.hidden)})
    else:
        closed: dict[str, list[str]] = {}
        for folder in spec.readable:
            if (above := closed_above(folder)) and not place_in_home(folder):
                # As /root is.
                closed.setdefault(above, []).append(folder)
        _cover(closed)
        _bind(home, PRIVATE_HOME, kernel.MS_NOSUID | kernel.MS_NODEV)
        if Path(_SAME_AS_TMP).is_dir():
            _bind(home, _SAME_AS_TMP, kernel.MS_NOSUID | kernel.MS_NODEV)
        for folder, fd in below_tmp.items():
            kernel.mount(f"/proc/self/fd/{fd}", folder, "", kernel.MS_BIND | kernel.MS_REC)
    _bind(memory, PRIVATE_MEMORY, kernel.MS_NOSUID | kernel.MS_NODEV)
    for fd in (home, memory, *below_tmp.values()):
        os.close(fd)
    # A job can hand a descriptor of it to one of another slot, by an abstract socket: that one has another uid, and so sees no process.
    kernel.mount("proc", "/proc", "proc", kernel.MS_NOSUID | kernel.MS_NODEV | kernel.MS_NOEXEC, "hidepid=2")


def _bind(folder: int, target: str, flags: int) -> None:
    kernel.mount(f"/proc/self/fd/{folder}", target, "", kernel.MS_BIND)
    kernel.mount("", target, "", kernel.MS_BIND | kernel.MS_REMOUNT | flags)


def _cover(folders: Mapping[str, Sequence[str]]) -> None:
    """Show of each folder what is named with it, and nothing else."""
    for above, shown in folders.items():
        opened = {folder: os.open(folder, os.O_PATH | os.O_CLOEXEC) for folder in shown}
        kernel.mount("tmpfs", above, "tmpfs", kernel.MS_NOSUID | kernel.MS_NODEV, "mode=0755,size=64k")
        for folder, fd in opened.items():
            os.makedirs(folder, mode=0o755, exist_ok=True)  # noqa: PTH103 (this module imports nothing after the fork)
            kernel.mount(f"/proc/self/fd/{fd}", folder, "", kernel.MS_BIND | kernel.MS_REC)
            os.close(fd)
        kernel.mount("", above, "", kernel.MS_REMOUNT | kernel.MS_RDONLY | kernel.MS_NOSUID | kernel.MS_NODEV)


def place_in_home(folder: str) -> str:
    """Where a folder below /tmp appears in the folder that a sandbox has in its place, relative to that; "" for any other folder."""
    for above in (PRIVATE_HOME, _SAME_AS_TMP):
        if folder.startswith(f"{above}/"):
            return folder.removeprefix(f"{above}/")
    return ""


def outermost(folders: Sequence[str]) -> list[str]:
    """Those of these folders that are there and are in none of the others, by their real paths."""
    found = sorted({os.path.realpath(folder) for folder in folders if Path(folder).is_dir()})
    return [one for one in found if not any(one != other and is_within(one, other) for other in found)]


def is_within(folder: str, other: str) -> bool:
    """Whether it is `other`, or in it."""
    return folder == other or folder.startswith(f"{other}/")


def closed_above(folder: str) -> str:
    """The topmost folder on the way to `folder`, itself included, that others may not enter; "" when there is none."""
    return _topmost(folder, lambda mode: not mode & 0o001)


def changeable_above(folder: str) -> str:
    """The topmost folder on the way to `folder`, itself included, in which others may rename what is not theirs; "" when there is none."""
    return _topmost(folder, lambda mode: mode & 0o1002 == 0o0002)


def _topmost(folder: str, fits: Callable[[int], bool]) -> str:
    path = Path(folder)
    for above in [*reversed(path.parents), path]:
        try:
            if fits(above.stat().st_mode):
                return str(above)
        except OSError:
            return ""
    return ""


# ---- rights


def _drop(spec: SandboxSpec) -> None:
    # Queues of POSIX would outlive their run, and nothing shows them.
    resource.setrlimit(_RLIMIT_MSGQUEUE, (0, 0))
    if spec.processes:
        # Counted by uid: that of this slot, which containers of the same host may have, too.
        resource.setrlimit(resource.RLIMIT_NPROC, (spec.processes, spec.processes))
    if spec.memory_mb:
        resource.setrlimit(resource.RLIMIT_AS, (spec.memory_mb << 20, spec.memory_mb << 20))
    kernel.drop_bounding_set()
    if spec.uid is not None:
        # As root, which may have many: one that has ended counts for a while.
        kernel.leave_session_keyring()
        os.setgroups([])
        os.setresgid(spec.uid, spec.uid, spec.uid)
        os.setresuid(spec.uid, spec.uid, spec.uid)
    kernel.clear_capabilities()
    kernel.prctl(kernel.PR_SET_NO_NEW_PRIVS, 1, name="PR_SET_NO_NEW_PRIVS")
    if spec.uid is not None:
        # The keyring of a uid outlives its processes, and would hand on keys from run to run.
        kernel.refuse_keys()
    kernel.prctl(kernel.PR_SET_DUMPABLE, 0, name="PR_SET_DUMPABLE")
    # A change of the uid clears it, so it comes last.
    kernel.prctl(kernel.PR_SET_PDEATHSIG, signal.SIGKILL, name="PR_SET_PDEATHSIG")
    kernel.prctl(kernel.PR_SET_CHILD_SUBREAPER, 1, name="PR_SET_CHILD_SUBREAPER")


def _not_dropped(uid: int | None) -> str:
    """What the kernel says of this process that it should not; empty = every right is gone."""
    fields = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines() if ":" in line)
    for name in ("Uid", "Gid") if uid is not None else ():
        if fields[name].split() != [str(uid)] * 4:
            return f"{name} is {fields[name].split()} after the change to {uid}"
    if uid is not None and fields["Groups"].split():
        return f"supplementary groups are left: {fields['Groups'].strip()}"
    for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"):
        if int(fields[name], 16):
            return f"capabilities are left: {name} {fields[name].strip()}"
    if fields["NoNewPrivs"].strip() != "1":
        return "NoNewPrivs is not set"
    if uid is not None and fields.get("Seccomp", "").strip() != str(kernel.SECCOMP_MODE_FILTER):
        return "the filter of calls is not set"
    return ""


# ---- service


class _Init:
    """Starts programs, and reaps all that ends here.

    `found` is one byte in memory of the supervisor, too: how many of the programs it has found by their numbers there, modulo 256. Before it has
    found the latest one nothing is reaped, since a number that is free again may name another process.
    """

    def __init__(self, sock: socket.socket, found: mmap.mmap) -> None:
        self._sock = sock
        self._found = found
        self._started = 0
        self._exits = signal_pipe()
        # `recvmsg` would map memory for the largest request, and unmap it again, for each one.
        self._buffer = memoryview(mmap.mmap(-1, LARGEST_REQUEST))

    def serve(self) -> NoReturn:
        """Until the supervisor has closed its end; then the kernel ends all that is left here."""
        poll = select.poll()
        poll.register(self._sock, select.POLLIN)
        poll.register(self._exits, select.POLLIN)
        ended = False
        while True:
            for fd, _event in poll.poll(_LOOK_MILLISECONDS if ended else None):
                if fd == self._exits:
                    os.read(fd, 4096)
                    ended = True
                else:
                    self._answer()
            if ended and self._found[0] == self._started:
                self._reap()
                ended = False

    def _answer(self) -> None:
        size, ancillary, _flags, _address = self._sock.recvmsg_into(
            [self._buffer], socket.CMSG_SPACE(_DESCRIPTORS.size), socket.MSG_CMSG_CLOEXEC
        )
        if not size:
            os._exit(0)
        [(_level, _kind, sent)] = ancillary
        fds = _DESCRIPTORS.unpack(sent)
        try:
            answer: Started | Failed = Started(self._start(marshal.loads(self._buffer[:size]), fds))
            self._started = (self._started + 1) % 256
        except SpawnError as error:
            answer = Failed(str(error))
        finally:
            for fd in fds:
                os.close(fd)
        self._sock.send(encode(answer))

    @staticmethod
    def _start(request: tuple[Any, ...], fds: Sequence[int]) -> int:
        program, argv, env, directory = request
        stdin, stdout, stderr, lease = fds
        enter(directory)
        return start_process(
            program=program or find_program(argv[0], env.get("PATH", "")),
            argv=argv,
            env=env,
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            lease=lease,
        )

    def _reap(self) -> None:
        ended = tuple(_ended())
        for first in range(0, len(ended), MOST_ENDED):
            self._sock.send(encode(Ended(ended[first : first + MOST_ENDED])))


def _ended() -> Iterator[tuple[int, int]]:
    with contextlib.suppress(ChildProcessError):
        while True:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                return
            yield pid, status
