"""The sandbox of a slot, as its supervisor has it: one process with the uid of the slot, in which all that jobs run descends.

It is made for the first attempt and stays for the next ones; SIGKILL for an attempt takes it along, and the next attempt gets a new one. What an
attempt can leave behind in it is looked for: processes (the proof of an empty tree), files (guard/work_dir.py), System V IPC, limits and priority of
the sandbox's own process (the next attempt gets a new one, and a new namespace), the same of its zygotes.
"""

import contextlib
import marshal
import mmap
import os
import select
import signal
import socket
from collections.abc import Mapping, Sequence

from toban_executor.guard import kernel, uid_claims
from toban_executor.guard.clock import boottime
from toban_executor.guard.process_tree import children
from toban_executor.guard.protocol import socket_pair
from toban_executor.guard.sandbox_init import GO, SandboxSpec, main
from toban_executor.guard.sandbox_messages import (
    LARGEST_ANSWER,
    LARGEST_REQUEST,
    Ended,
    Failed,
    Ready,
    Said,
    Started,
    decode,
)
from toban_executor.guard.spawn import SpawnError

ANSWER_SECONDS = 10.0
"""It does nothing but what it is asked for; a machine may be slow."""
_LOOKS = 3
"""At the kernel's list of children, which can miss one when another ends meanwhile."""


class Sandbox:
    """`spec` is that of the slot. With namespaces the supervisor, too, has the slot's System V IPC, so that it sees what is left there."""

    def __init__(self, *, spec: SandboxSpec, poll: select.poll) -> None:
        self._spec = spec
        if spec.uid is None:
            kernel.enter_user_namespace()
        # The next process gets a new namespace of System V IPC.
        self._needs_ipc = spec.namespaces
        self._poll = poll
        self._sock: socket.socket | None = None
        # 0: there is none. One that was killed is there until it is reaped.
        self.pid = 0
        self.killed = False
        # Numbers of its namespace, and of this one, of what it was asked to start and has not reaped.
        self._pids: dict[int, int] = {}
        # Numbers of its namespace of those whose end it has not reported: it reaps first, so for a moment they are neither running nor reported.
        self._unreported: set[int] = set()
        self._inheritable_at_start: tuple[object, ...] = ()
        self._ended: list[tuple[int, int]] = []
        self._answers = select.poll()
        # Shared with its process: how many of its programs have been found by their numbers here, modulo 256.
        self._found = mmap.mmap(-1, 1)
        # Of a supervisor that has died.
        self._remove_left()

    @property
    def is_there(self) -> bool:
        """Whether its process can be asked."""
        return bool(self.pid) and not self.killed

    def owns(self, fd: int) -> bool:
        """Whether it has something to say on this descriptor."""
        return self._sock is not None and fd == self._sock.fileno()

    # ---- start

    def begin(self) -> None:
        """An attempt comes into the slot. Raises SpawnError when no sandbox comes up."""
        if self.pid and (self.killed or self._has_ended() or self._inheritable(self.pid) != self._inheritable_at_start):
            self.close()
        if not self.pid:
            self._start()

    def start(
        self, *, program: str, argv: Sequence[str], env: Mapping[str, str], directory: str, fds: Sequence[int]
    ) -> int:
        """Start a program in it with these four descriptors; returns its pid. Raises SpawnError."""
        if not self.is_there:
            self.begin()
        assert self._sock is not None
        request = marshal.dumps((program, tuple(argv), dict(env), directory))
        if len(request) > LARGEST_REQUEST:
            raise SpawnError(f"the step with its variables is too large: {len(request)} bytes")
        try:
            socket.send_fds(self._sock, [request], list(fds))
            said = self._answer()
        except (OSError, ValueError) as error:
            self.kill()
            raise SpawnError(f"the sandbox of this slot does not answer: {error}") from None
        if not isinstance(said, Started):
            raise SpawnError(said.reason if isinstance(said, Failed) else f"the sandbox of this slot answers {said}")
        pid = self.within(self.pid, said.pid)
        if not pid:
            self.kill()
            raise SpawnError("the sandbox of this slot has not started what it names")
        self._found[0] = (self._found[0] + 1) % 256
        self._unreported.add(said.pid)
        return pid

    def start_zygote(self, *, argv: Sequence[str], env: Mapping[str, str], directory: str, sock: int) -> int:
        """Start a zygote (guard/zygotes.py) with its socket as descriptor 3; returns its pid. Raises SpawnError."""
        null = os.open("/dev/null", os.O_RDWR | os.O_CLOEXEC)
        try:
            return self.start(program=argv[0], argv=argv, env=env, directory=directory, fds=(null, null, null, sock))
        finally:
            os.close(null)

    def _start(self) -> None:
        near, far = socket_pair()
        self._found[0] = 0
        try:
            if self._needs_ipc:
                kernel.unshare(kernel.CLONE_NEWIPC)
                self._needs_ipc = False
            self.pid = self._fork(far) if self._spec.uid is not None else self._fork_twice(far)
            near.send(GO)
        except OSError as error:
            near.close()
            raise SpawnError(f"the sandbox of this slot does not start: {error.strerror}") from None
        finally:
            far.close()
        self._sock, self.killed = near, False
        self._pids.clear()
        self._unreported.clear()
        near.setblocking(False)
        self._answers = select.poll()
        self._answers.register(near, select.POLLIN)
        try:
            said = self._answer()
        except (OSError, ValueError) as error:
            said = Failed(str(error))
        if not isinstance(said, Ready):
            self.kill()
            raise SpawnError(
                f"the sandbox of this slot does not start: {said.reason if isinstance(said, Failed) else said}"
            )
        self._poll.register(near, select.POLLIN)
        self._inheritable_at_start = self._inheritable(self.pid)

    def _fork(self, sock: socket.socket) -> int:
        if not self._spec.namespaces:
            pid = os.fork()
            if not pid:
                main(sock, self._spec, self._found)
            return pid
        own = os.open("/proc/self/ns/pid", os.O_RDONLY | os.O_CLOEXEC)
        try:
            # For children of this process alone.
            kernel.unshare(kernel.CLONE_NEWPID)
            try:
                pid = os.fork()
                if not pid:
                    main(sock, self._spec, self._found)
            finally:
                # Also without a child, else no later sandbox has a namespace of its own.
                kernel.setns(own, kernel.CLONE_NEWPID)
        finally:
            os.close(own)
        return pid

    def _fork_twice(self, sock: socket.socket) -> int:
        """The process between ends at once: in a user namespace this process could not take back which namespace its children get."""
        read, write = os.pipe()
        between = os.fork()
        if not between:
            try:
                kernel.unshare(kernel.CLONE_NEWPID)
                if not (pid := os.fork()):
                    main(sock, self._spec, self._found)
                os.write(write, b"%d" % pid)
            except OSError as error:
                os.write(write, f"-{error.errno}".encode())
            finally:
                os._exit(0)
        os.close(write)
        # To its end: the process below this one has closed it, too.
        said = b""
        while more := os.read(read, 100):
            said += more
        os.close(read)
        os.waitpid(between, 0)
        number = int(said or b"-1")
        if number < 0:
            raise OSError(-number, os.strerror(-number))
        return number

    def _has_ended(self) -> bool:
        try:
            return os.waitpid(self.pid, os.WNOHANG)[0] != 0
        except ChildProcessError:
            return True

    def is_as_started(self, pid: int) -> bool:
        """Whether no job has stopped this process of the sandbox, or has changed what it hands on; one that has ended is not."""
        try:
            with open(f"/proc/{pid}/stat", "rb", buffering=0) as file:  # noqa: PTH123 (hot path)
                stopped = file.read(4096).rpartition(b") ")[2][:1] in b"Tt"
        except OSError:
            return False
        return not stopped and self._inheritable(pid) == self._inheritable_at_start

    @staticmethod
    def _inheritable(pid: int) -> tuple[object, ...]:
        """What a process hands on to each that it starts, and a job of the same uid can change."""
        try:
            with open(f"/proc/{pid}/limits", "rb", buffering=0) as file:  # noqa: PTH123 (hot path)
                limits = file.read()
            return limits, os.sched_getaffinity(pid), *kernel.scheduling(pid)
        except OSError:
            return ()

    def _answer(self) -> Said:
        """The next word that is not about an end. Raises OSError, ValueError."""
        assert self._sock is not None
        until = boottime() + ANSWER_SECONDS
        while True:
            if not self._answers.poll(max(0.0, until - boottime()) * 1000):
                raise OSError(0, f"nothing for {ANSWER_SECONDS:g} s")
            data = self._sock.recv(LARGEST_ANSWER)
            if not data:
                raise OSError(0, "its process has ended")
            said = decode(data)
            if not isinstance(said, Ended):
                return said
            self._note(said)

    def within(self, parent: int, pid: int) -> int:
        """The number here of a child of `parent`, which named it by the number of the namespace; 0 when there is none.

        One that has ended keeps its number until its parent reaps it; the process of the sandbox does that for orphans.
        """
        found = pid
        if self._spec.namespaces:
            # The latest is the last one.
            looks = (one for _ in range(_LOOKS) for one in reversed(children(parent)))
            found = next((one for one in looks if _innermost(one) == pid), 0)
        if found:
            self._pids[pid] = found
        return found

    # ---- ends

    def ended(self) -> list[tuple[int, int]]:
        """What has ended since the last call of what it was asked to start: pids with their status."""
        self._drain()
        ended, self._ended = self._ended, []
        return ended

    def _drain(self) -> None:
        if self._sock is None:
            return
        try:
            while data := self._sock.recv(LARGEST_ANSWER):
                if isinstance(said := decode(data), Ended):
                    self._note(said)
            # It ends.
            self.kill()
        except BlockingIOError:
            pass
        except (OSError, ValueError):
            self.kill()

    def _note(self, said: Ended) -> None:
        self._unreported -= {pid for pid, _ in said.processes}
        self._ended += [(self._pids.pop(pid), status) for pid, status in said.processes if pid in self._pids]

    def kill(self) -> None:
        """With all that it has started."""
        if self.is_there:
            self.killed = True
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)
            self._hang_up()

    def _hang_up(self) -> None:
        if self._sock is not None:
            with contextlib.suppress(KeyError):
                self._poll.unregister(self._sock)
            self._sock.close()
            self._sock = None

    def reaped(self, pid: int) -> bool:
        """Whether the process that has ended is that of the sandbox."""
        if pid != self.pid:
            return False
        # What it has said before counts.
        self._drain()
        self._hang_up()
        self.pid, self.killed = 0, False
        self._pids.clear()
        self._unreported.clear()
        return True

    def is_alone(self, idle: set[int]) -> bool:
        """Whether nothing descends from the supervisor but this process, and nothing from this but `idle`.

        What descends from it can come up to the supervisor, and nothing goes the other way; so it is looked at first.
        """
        below = self.is_there and set(children(self.pid)) <= idle and children(os.getpid()) == [self.pid]
        return below and {self._pids[pid] for pid in self._unreported} <= idle

    def attempt_ended(self) -> None:
        """The next attempt gets another process where jobs were in reach of this one, or have left something."""
        if not self._spec.namespaces:
            self.close()
            self._remove_left()
        elif self._needs_ipc or _has_ipc():
            self._needs_ipc = True
            self.close()

    def _remove_left(self) -> None:
        if self._spec.uid is not None and not self._spec.namespaces:
            uid_claims.remove_left(self._spec.uid)

    def close(self) -> None:
        """End it, and wait for that."""
        self.kill()
        if self.pid:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(self.pid, 0)
            self.reaped(self.pid)


def _has_ipc() -> bool:
    """Whether shared memory, semaphores or queues of System V are there, or may be."""
    try:
        for kind in kernel.IPC_KINDS:
            with open(f"/proc/sysvipc/{kind}", "rb", buffering=0) as file:  # noqa: PTH123 (hot path)
                # The first line has the titles.
                if file.read(4096).count(b"\n") > 1:
                    return True
    except OSError:
        return True
    return False


def _innermost(pid: int) -> int:
    """Its number in the namespace that it is in; 0 when it has ended."""
    try:
        with open(f"/proc/{pid}/status", "rb", buffering=0) as file:  # noqa: PTH123 (hot path)
            # The list of groups comes before it.
            numbers = file.read(1 << 16).partition(b"\nNSpid:")[2].partition(b"\n")[0]
        return int(numbers.split()[-1])
    except (OSError, IndexError):
        return 0
