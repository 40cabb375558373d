"""The zygotes of a slot: children of its supervisor that have imported what warm steps need, and fork once a step.

A zygote is killed with the tree of an attempt like any process of it. Otherwise it outlives the attempt, so that the proof of an empty tree
changes: no zygote has a child, then the supervisor has no child but its zygotes, and none of those was killed. Both are the kernel's lists, and in
this order they are exact: what descends from a zygote can come up to the supervisor, which is subreaper, but nothing goes the other way. A zygote's
own word counts only for the exit code of its fork; when the zygote dies, its fork becomes a child of the supervisor, which then reaps it itself.
"""

import contextlib
import errno
import json
import math
import os
import select
import socket
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from toban_domain.secret import SecretFile
from toban_executor.decide.guard_types import ProcessEnd
from toban_executor.decide.models import StepOrder
from toban_executor.decide.warm import WarmLimits, WarmNote, zygote_env, zygote_key
from toban_executor.guard.clock import boottime
from toban_executor.guard.pipes import readable
from toban_executor.guard.process_tree import children, kill_all, start_time, threads_and_children
from toban_executor.guard.protocol import socket_pair
from toban_executor.guard.sandbox import Sandbox
from toban_executor.guard.spawn import SpawnError, enter, process_end, start_zygote

ANSWER_SECONDS = 5.0
"""A zygote that has its imports and does not fork for so long, or hides the end of its fork, is killed."""
NOTE_SECONDS = 1.0
"""Between two notes that count nothing but forks."""
_LARGEST_MESSAGE = 64 * 1024
# As many bytes a zygote reads at most (adapters/warm_zygote.py); the kernel may take fewer.
_LARGEST_REQUEST = 1 << 19
_PAGE = os.sysconf("SC_PAGE_SIZE")


class WarmStart(NamedTuple):
    """What a fork is to become. `fds`: standard input, output and error, and the pipe of the lease."""

    step: StepOrder
    env: Mapping[str, str]
    secrets: Sequence[SecretFile]
    # Of the order, may be empty; and where the step runs.
    working_dir: str
    work_dir: str
    fds: tuple[int, int, int, int]


class Zygote:
    """One process."""

    def __init__(self, *, key: str, pid: int, sock: socket.socket) -> None:
        self.key = key
        self.pid = pid
        self.sock = sock
        self.forks = 0
        self.used_at = boottime()
        # It has its imports.
        self.ready = False
        # SIGKILL was sent; it is a child of this process, with what it has said, until it is reaped.
        self.killed = False


class Forked(NamedTuple):
    """The step runs as this process."""

    pid: int


class Refused(NamedTuple):
    """The zygote does not fork. `again`: a new one may."""

    reason: str
    again: bool


class ForkEnded(NamedTuple):
    """The main process of the step has ended, and its zygote has reaped it."""

    end: ProcessEnd


Said = Forked | Refused | ForkEnded


class Zygotes:
    """Those of one slot, which runs one step at a time. `send` gets notes for the executor. With a `sandbox` they are its children."""

    def __init__(
        self, *, limits: WarmLimits, poll: select.poll, send: Callable[[WarmNote], None], sandbox: Sandbox | None = None
    ) -> None:
        self._sandbox = sandbox
        self._limits = limits
        self._poll = poll
        self._send = send
        self._by_pid: dict[int, Zygote] = {}
        # Those that were not killed, by their sockets.
        self._by_fd: dict[int, Zygote] = {}
        # The one that the step in the slot forks from, its request with descriptors, since when it has it (0 = it imports), and its fork.
        self._used: Zygote | None = None
        self._request: tuple[bytes, Sequence[int]] = (b"", ())
        self._waits_since = 0.0
        self.fork = 0
        self._forks = 0
        self._ended: Counter[str] = Counter()
        self._noted: tuple[str, ...] = ()
        self._noted_at = 0.0
        # Why none can be used here.
        self._unusable = ""

    @property
    def enabled(self) -> bool:
        """Whether warm steps fork here at all."""
        return self._limits.zygotes > 0

    @property
    def pids(self) -> set[int]:
        """All of them, also those that were killed and are not reaped yet."""
        return set(self._by_pid)

    @property
    def asked(self) -> bool:
        """Whether a step waits for its fork."""
        return self._used is not None and not self.fork

    @property
    def due(self) -> float:
        """When `expire` has something to do, CLOCK_BOOTTIME."""
        idle = self._limits.idle_seconds
        if not self._by_fd or not idle or self._used is not None:
            return math.inf
        return min((one.used_at for one in self._alive()), default=math.inf) + idle

    def owns(self, fd: int) -> bool:
        """Whether a zygote has something to say on this descriptor."""
        return fd in self._by_fd

    # ---- a step

    def begin(self, start: WarmStart) -> int:
        """Ask a zygote, a new one where none fits, for a fork; the pid of the zygote. Raises SpawnError."""
        if self._unusable:
            raise SpawnError(self._unusable)
        key = zygote_key(start.step, env=start.env, working_dir=start.working_dir, secrets=start.secrets)
        one = next((one for one in self._alive() if one.key == key), None) or self._start(start, key)
        request = {"call": start.step.warm_call, "env": dict(start.env), "cwd": start.work_dir}
        self._request = json.dumps(request, ensure_ascii=False).encode(errors="surrogatepass"), start.fds
        self._used, self.fork, self._waits_since = one, 0, 0.0
        if one.ready:
            self._ask(one)
        return one.pid

    def _ask(self, one: Zygote) -> None:
        data, fds = self._request
        try:
            if len(data) > _LARGEST_REQUEST:
                raise OSError(errno.EMSGSIZE, "")
            socket.send_fds(one.sock, [data], fds)
        except OSError as error:
            # One that has died does not take it; its end follows.
            if error.errno in (errno.EMSGSIZE, errno.EAGAIN, errno.ENOBUFS):
                self._used = None
                raise SpawnError(f"the step with its variables is too large for a zygote: {len(data)} bytes") from None
        self._waits_since = boottime()

    def _start(self, start: WarmStart, key: str) -> Zygote:
        alive = sorted(self._alive(), key=lambda one: one.used_at)
        for oldest in alive[: max(0, len(alive) - self._limits.zygotes + 1)]:
            self._kill(oldest, "replaced")
        near, far = socket_pair()
        try:
            argv, env, directory = start.step.warm_argv, zygote_env(start.env), start.working_dir or "/"
            if self._sandbox is not None:
                pid = self._sandbox.start_zygote(argv=argv, env=env, directory=directory, sock=far.fileno())
            else:
                enter(directory)
                pid = start_zygote(argv=argv, env=env, sock=far.fileno())
        except SpawnError:
            near.close()
            raise
        finally:
            far.close()
        near.setblocking(False)
        one = self._by_pid[pid] = self._by_fd[near.fileno()] = Zygote(key=key, pid=pid, sock=near)
        self._poll.register(near, select.POLLIN)
        return one

    def read(self, fd: int) -> Said | None:
        """The next message of a zygote that the step waits for."""
        one = self._by_fd[fd]
        data = _receive(one.sock)
        if data == b"":
            # One that lives on without its socket is of no use.
            self._kill(one, "killed")
        return self._said(one, data) if data and one is self._used else None

    def reaped(self, pid: int) -> tuple[list[Said], bool] | None:
        """This child of the supervisor has ended: None when it was no zygote. Else what it has said before, and whether it leaves a step behind."""
        # Its number may mean another process from now on.
        one = self._by_pid.pop(pid, None)
        if one is None:
            return None
        said = []
        while one is self._used and (data := _receive(one.sock)):
            if (message := self._said(one, data)) is not None:
                said.append(message)
        self._kill(one, "killed")
        one.sock.close()
        lost = one is self._used
        if lost:
            self._used, self.fork = None, 0
        return said, lost

    def _said(self, one: Zygote, data: bytes) -> Said | None:
        try:
            [(kind, value)] = json.loads(data).items()
            pid = int(value) if kind in ("forked", "ended") else 0
        except (ValueError, TypeError, AttributeError):
            # It may have forked: its end shows that.
            self._kill(one, "failed")
            return None
        if kind == "ready" and not one.ready:
            return self._on_ready(one)
        if kind == "forked" and not self.fork:
            if self._sandbox is not None:
                # One that has ended by now has no number here: that of its zygote stands for it.
                pid = self._sandbox.within(one.pid, pid) or one.pid
            self.fork, self._waits_since = pid, 0.0
            one.forks += 1
            self._forks += 1
            return Forked(pid)
        if kind == "ended" and self.fork:
            self._used, self.fork = None, 0
            one.used_at = boottime()
            return ForkEnded(process_end(pid))
        if self.fork:
            return None
        stale = kind == "stale"
        self._used = None
        self._kill(one, "code" if stale else "failed")
        return Refused(f"{value} has changed" if stale else str(value), again=stale)

    def _on_ready(self, one: Zygote) -> Refused | None:
        one.ready = True
        if not threads_and_children(one.pid)[0]:
            # What descends from it would be in no list.
            self._unusable = (
                "/proc does not show its processes (hidepid), so it could neither be frozen nor be proved to be over"
            )
            self._used = None
            self._kill(one, "failed")
            return Refused(self._unusable, again=False)
        try:
            self._ask(one)
        except SpawnError as error:
            return Refused(str(error), again=False)
        return None

    # ---- proof, and what ends them

    def alone(self) -> bool:
        """Whether nothing descends from the supervisor but zygotes that run no step, and no thread either."""
        return bool(self._by_pid) and self.quiet() and set(children(os.getpid())) <= set(self._by_pid)

    def quiet(self) -> bool:
        """Whether no zygote runs a step, has a child or a thread, or is about to end."""
        if self._used is not None:
            return False
        for one in self._by_pid.values():
            threads, below = threads_and_children(one.pid)
            if below:
                return False
            if threads > 1:
                # One that a fork has started in it: the job's code would run on.
                self._kill(one, "threads")
        return not any(one.killed for one in self._by_pid.values())

    def check(self) -> None:
        """Kill the zygote that does not answer: the supervisor learns the rest from the kernel."""
        one = self._used
        if one is None:
            return
        if self.fork and not self._waits_since and not start_time(self.fork):
            self._waits_since = boottime()
        # The supervisor itself may have had no turn for so long: then the answer is there.
        if self._waits_since and boottime() > self._waits_since + ANSWER_SECONDS and not readable([one.sock.fileno()]):
            self._kill(one, "silent")

    def thawed(self) -> None:
        """The slot was frozen, and goes on: its zygote has its time again."""
        if self._waits_since:
            self._waits_since = boottime()

    def kill(self) -> None:
        """With the tree of an attempt."""
        for one in self._alive():
            self._kill(one, "killed")

    def kill_asked(self) -> None:
        """The step ends before it has its fork: no SIGTERM reaches one."""
        if self._used is not None and not self.fork:
            self._kill(self._used, "killed")

    def expire(self) -> None:
        """No step runs: end those that are too large, too old or idle, and tell the executor what has changed."""
        if not (self._by_pid or self._noted or self._forks or self._ended):
            # Each run comes here, and few slots have zygotes.
            return
        now = boottime()
        for one in self._alive():
            reason = self._limits.reason_to_end(idle=now - one.used_at, memory_mb=_memory_mb(one.pid), forks=one.forks)
            if self._sandbox is not None and self._sandbox.is_there and not self._sandbox.is_as_started(one.pid):
                # Jobs of the slot have its uid.
                reason = "killed"
            if reason:
                self._kill(one, reason)
        self._note()

    def close(self) -> None:
        """The supervisor ends."""
        kill_all(self._by_pid)
        for pid, one in self._by_pid.items():
            one.sock.close()
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, 0)

    def _kill(self, one: Zygote, reason: str) -> None:
        if one.killed:
            return
        one.killed = True
        self._ended[reason] += 1
        if one.pid in self._by_pid:
            kill_all([one.pid])
        # Its socket stays open: what it has said counts when it is reaped.
        del self._by_fd[one.sock.fileno()]
        self._poll.unregister(one.sock)

    def _alive(self) -> list[Zygote]:
        return list(self._by_fd.values())

    def _note(self) -> None:
        note = WarmNote(tuple(one.key for one in self._alive()), self._forks, dict(self._ended))
        now = boottime()
        if note.ended or note.keys != self._noted or (note.forks and now >= self._noted_at + NOTE_SECONDS):
            self._send(note)
            self._noted, self._noted_at = note.keys, now
            self._forks = 0
            self._ended.clear()


def _receive(sock: socket.socket) -> bytes | None:
    """The next message; None = none is there, empty = its sender has closed the socket or has ended."""
    try:
        try:
            return sock.recv(_LARGEST_MESSAGE)
        except ConnectionResetError:
            # Comes first, and once, when the other end has closed without reading all: what it has sent follows.
            return sock.recv(_LARGEST_MESSAGE)
    except BlockingIOError:
        return None
    except OSError:
        return b""


def _memory_mb(pid: int) -> float:
    """What it has in memory; 0 when it has ended."""
    try:
        return int(Path(f"/proc/{pid}/statm").read_bytes().split()[1]) * _PAGE / 2**20
    except (OSError, IndexError, ValueError):
        return 0.0
