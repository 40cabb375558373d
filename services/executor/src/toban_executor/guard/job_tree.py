"""The processes of the attempt in a slot: how its steps start, cold or from a zygote, signals to all of it, and the proof that nothing is left."""

import os
import signal
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from toban_domain.secret import SecretFile
from toban_executor.decide.guard_types import ProcessEnd, StepNotStarted, StepStarted, TreeChecked, TreeSignal
from toban_executor.decide.models import StepOrder
from toban_executor.guard.cgroup import SlotCgroup, container_group
from toban_executor.guard.pipes import input_file
from toban_executor.guard.process_tree import children, signal_tree
from toban_executor.guard.sandbox import Sandbox
from toban_executor.guard.spawn import SpawnError, enter, find_program, process_end, start_process
from toban_executor.guard.zygotes import Forked, ForkEnded, Refused, Said, WarmStart, Zygotes

OUTSIDE = ("container", "kubernetes")
"""Steps whose program is the executor's own and uses its rights: what the job runs is in a container."""
_KILLED = ProcessEnd(signal=signal.SIGKILL)


class StepProcess(NamedTuple):
    """What a step is to run. `fds`: standard input, where the step has none of its own, output and error, and the pipe of the lease."""

    step: StepOrder
    # Of its container's cgroup.
    name: str
    program: str
    env: Mapping[str, str]
    # Those whose paths are in `env`.
    secrets: Sequence[SecretFile]
    working_dir: str
    work_dir: str
    fds: tuple[int, int, int, int]


class JobTree:
    """Children of this process, of its zygotes and of its sandbox.

    `tell` writes a line into the log of the job; `may_start`: the attempt has a lease, and nothing ends it; `suspended`: it waits for a lease.
    """

    def __init__(
        self,
        *,
        cgroup: SlotCgroup | None,
        zygotes: Zygotes,
        tell: Callable[[str], None],
        may_start: Callable[[], bool],
        suspended: Callable[[], bool],
        sandbox: Sandbox | None = None,
    ) -> None:
        self._cgroup = cgroup
        self._sandbox = sandbox
        self._zygotes = zygotes
        self._tell = tell
        self._may_start = may_start
        self._suspended = suspended
        # 0 once its end is known.
        self._main_pid = 0
        # The same, where a zygote named it only with its own end.
        self._found_pid = 0
        # Waits for its fork; its zygote has ended before, and no process of the step is there.
        self._waiting: StepProcess | None = None
        self.lost = False
        self._refused: Refused | None = None
        # A new zygote was asked once.
        self._asked_again = False
        # Of the main process, where this process does not reap it.
        self._ended: ProcessEnd | None = None
        # Processes that refused the last signals.
        self._unreachable = 0

    # ---- start

    def begin(self) -> None:
        """An attempt comes into the slot. Raises SpawnError."""
        self._unreachable = 0
        if self._sandbox is not None:
            self._sandbox.begin()

    def is_inside(self, step: StepOrder) -> bool:
        """Whether this step runs in the sandbox."""
        return self._sandbox is not None and step.type not in OUTSIDE

    def start(self, one: StepProcess) -> int:
        """The pid of the process that a step runs in; 0 = a zygote is asked to fork it. Raises SpawnError."""
        self._main_pid, self._found_pid, self._ended = 0, 0, None
        self._asked_again = self.lost = False
        if one.step.warm_argv and self._zygotes.enabled:
            try:
                self._ask(one)
                return 0
            except SpawnError as error:
                self._tell_cold(str(error))
        return self._start_cold(one)

    def _ask(self, one: StepProcess) -> None:
        self._zygotes.begin(WarmStart(one.step, one.env, one.secrets, one.working_dir, one.work_dir, one.fds))
        self._waiting = one

    def _start_cold(self, one: StepProcess) -> int:
        stdin, stdout, stderr, lease = one.fds
        env = one.env
        try:
            if one.step.stdin:
                stdin = input_file(one.step.stdin)
            if self._sandbox is not None and self.is_inside(one.step):
                self._main_pid = self._sandbox.start(
                    program=one.program,
                    argv=one.step.argv,
                    env=env,
                    directory=one.work_dir,
                    fds=(stdin, stdout, stderr, lease),
                )
                return self._main_pid
            enter(one.work_dir)
            if one.step.type == "container":
                env = {**env, "TOBAN_CGROUP": container_group(self._cgroup, one.name)}
            self._main_pid = start_process(
                program=one.program or find_program(one.step.argv[0], env.get("PATH", "")),
                argv=one.step.argv,
                env=env,
                stdin=stdin,
                stdout=stdout,
                stderr=stderr,
                lease=lease,
            )
        finally:
            if stdin != one.fds[0]:
                os.close(stdin)
        return self._main_pid

    def _tell_cold(self, reason: str) -> None:
        self._tell(f"this step starts without its zygote: {reason}")

    # ---- zygotes

    def owns(self, fd: int) -> bool:
        """Whether an event of this descriptor is for `zygote_ready`."""
        return self._zygotes.owns(fd) or (self._sandbox is not None and self._sandbox.owns(fd))

    def zygote_ready(self, fd: int) -> StepStarted | StepNotStarted | None:
        """Read what a zygote says; what a sandbox says is for `check`."""
        if not self._zygotes.owns(fd):
            return None
        said = self._zygotes.read(fd)
        return None if said is None else self._on_said(said)

    def restart(self) -> StepStarted | StepNotStarted | None:
        """The zygote has ended before it has forked."""
        refused = self._refused or Refused("it has ended", again=False)
        self._refused = None
        return self._instead(refused.reason, again=refused.again)

    def _on_said(self, said: Said) -> StepStarted | StepNotStarted | None:
        if isinstance(said, ForkEnded):
            self._ended, self._main_pid = said.end, 0
            return None
        if isinstance(said, Forked):
            self._main_pid = said.pid
            self._waiting = None
            return StepStarted(said.pid)
        return self._instead(said.reason, again=said.again)

    def _instead(self, reason: str, *, again: bool) -> StepStarted | StepNotStarted | None:
        if self._suspended():
            # It waits for the grant.
            self._refused, self.lost = Refused(reason, again), True
            return None
        one, self._waiting, self.lost = self._waiting, None, False
        assert one is not None
        if not self._may_start():
            self._ended = _KILLED
            return None
        try:
            if again and not self._asked_again:
                self._asked_again = True
                self._ask(one)
                return StepStarted(0)
        except SpawnError as error:
            reason = str(error)
        self._tell_cold(reason)
        try:
            return StepStarted(self._start_cold(one))
        except SpawnError as error:
            return StepNotStarted(str(error))

    # ---- signals

    def signal(self, what: TreeSignal) -> None:
        """To every process of the attempt; zygotes get SIGKILL as well, and no SIGTERM but where the step is not forked yet."""
        if what is TreeSignal.TERMINATE:
            self._zygotes.kill_asked()
            own = self._zygotes.pids | ({self._sandbox.pid} if self._sandbox is not None else set())
            refused = signal_tree(os.getpid(), (signal.SIGTERM, signal.SIGCONT), but=own)
        else:
            self._zygotes.kill()
            if self._sandbox is not None:
                self._sandbox.kill()
            if self._cgroup is not None:
                self._cgroup.kill()
            refused = signal_tree(os.getpid(), (signal.SIGKILL,))
        # The kernel kills a cgroup whatever the rights of its processes.
        self._unreachable = 0 if self._cgroup is not None else len(refused)

    # ---- proof

    def check(self) -> TreeChecked:
        """Collect children that have ended; whether a process is left, by the kernel's word."""
        ended, empty = self._reap()
        others: dict[int, int] = {}
        lost_zygote = False
        for pid, status in ended:
            if (said := self._zygotes.reaped(pid)) is None:
                others[pid] = status
            else:
                lost_zygote |= self._zygote_ended(*said)
        if self._main_pid in others:
            # Looked for only now: a zygote that has ended may have named it meanwhile.
            self._ended, self._main_pid = process_end(others[self._main_pid]), 0
        if lost_zygote:
            self._judge(others=bool(others))
        main, self._ended = self._ended, None
        pid, self._found_pid = self._found_pid, 0
        empty = (empty or self._is_alone()) and self._waiting is None
        if empty and self._cgroup is not None:
            empty = self._cgroup.containers.is_over()
        return TreeChecked(main=main, empty=empty, unreachable=self._unreachable, pid=pid)

    def _reap(self) -> tuple[list[tuple[int, int]], bool]:
        """What has ended, here and in the sandbox; and whether no child is left."""
        ended: list[tuple[int, int]] = []
        sandbox = self._sandbox
        lost_sandbox = False
        try:
            while (one := os.waitpid(-1, os.WNOHANG))[0]:
                if sandbox is not None and sandbox.reaped(one[0]):
                    lost_sandbox = True
                else:
                    ended.append(one)
            empty = False
        except ChildProcessError:
            empty = True
        if sandbox is not None:
            ended += sandbox.ended()
            if lost_sandbox:
                ended += self._left_by_sandbox({pid for pid, _ in ended})
        return ended, empty

    def _left_by_sandbox(self, reaped: set[int]) -> list[tuple[int, int]]:
        """What the kernel has killed with the sandbox: no process reaps it here. Without a namespace it lives on, as a child of this process."""
        below = set(children(os.getpid()))
        gone = {*self._zygotes.pids, self._main_pid} - {0} - below - reaped
        return [(pid, signal.SIGKILL) for pid in gone]

    def _is_alone(self) -> bool:
        """Whether nothing is left but what waits for the next attempt."""
        if self._sandbox is not None and self._sandbox.is_there:
            return self._zygotes.quiet() and self._sandbox.is_alone(self._zygotes.pids)
        return self._zygotes.alone()

    def _zygote_ended(self, said: list[Said], left: bool) -> bool:
        """Whether it has left the step without saying what became of it."""
        for one in said:
            if isinstance(one, Refused):
                self._refused, self.lost = one, True
            elif isinstance(started := self._on_said(one), StepStarted):
                self._found_pid = started.pid
        return left

    def _judge(self, *, others: bool) -> None:
        """The zygote has ended before its step. A fork of it would be a child of this process now, or `others` that have ended were it."""
        sandbox = self._sandbox
        below = set(children(sandbox.pid if sandbox is not None and sandbox.is_there else os.getpid()))
        if self._waiting is None:
            if self._main_pid and self._main_pid not in below:
                self._end_unknown(
                    "the zygote of this step has ended with the only record of its exit code: the step counts as killed"
                )
        elif others or not below <= self._zygotes.pids:
            self._end_unknown(
                "the zygote of this step has ended and left processes, so the step may have begun: it is not started again"
            )
        else:
            self.lost = True

    def _end_unknown(self, line: str) -> None:
        self._tell(line)
        self._ended, self._main_pid, self._waiting = _KILLED, 0, None

    # ---- between attempts

    @property
    def due(self) -> float:
        """When `idle` is to be called, CLOCK_BOOTTIME."""
        return self._zygotes.due

    def tick(self) -> None:
        """While an attempt runs, and is not frozen."""
        self._zygotes.check()

    def thawed(self) -> None:
        """The processes go on."""
        self._zygotes.thawed()

    def idle(self) -> None:
        """No attempt is in the slot: collect zygotes that have ended, and end others."""
        self.check()
        self._zygotes.expire()

    def ended(self) -> None:
        """The attempt in the slot is over, by `check`."""
        self._zygotes.expire()
        if self._sandbox is not None:
            self._sandbox.attempt_ended()

    def close(self) -> None:
        """This process ends."""
        if self._sandbox is not None:
            self._sandbox.close()
        self._zygotes.close()
