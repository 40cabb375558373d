"""Parent of the keepers: forks one a slot, replaces one that dies, and testifies at the end that nothing is left.

As subreaper it inherits what a dying keeper leaves behind, kills it, and only then tells the executor that the slot's
attempt is lost. Fork is safe here: one thread, a few megabytes, no gRPC.
"""

import contextlib
import gc
import os
import resource
import select
import shutil
import signal
import socket
from dataclasses import replace
from pathlib import Path

from toban_executor.guard import cgroup, left, record
from toban_executor.guard.cgroup import SlotCgroup
from toban_executor.guard.channel import Channel
from toban_executor.guard.clock import pause
from toban_executor.guard.keeper import serve
from toban_executor.guard.limits import set_open_files
from toban_executor.guard.scratch import Scratch, make_payload_home, payload_home
from toban_executor.guard.tree import become_subreaper, children, signal_tree, start_time
from toban_executor.guard.wire import encode

_IGNORED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGPIPE)
"""A service manager or a terminal signals all processes of a service; how jobs end is the executor's decision alone."""


class Master:
    """Owns the keepers of one incarnation."""

    def __init__(
        self, *, incarnation: str, state_dir: Path, control: int, slots: list[socket.socket], job_files: int
    ) -> None:
        self._incarnation = incarnation
        self._job_files = job_files
        self._state_dir = state_dir
        self._work = state_dir / "work"
        self._payloads = self._work
        self._control = control
        self._slots = slots
        self._keepers: dict[int, int] = {}
        # Slots whose keeper has ended and whose loss the executor has not been told yet.
        self._dead: list[int] = []
        # How often a keeper of each slot has been lost.
        self._losses = [0] * len(slots)
        self._cgroup = cgroup.find_base(f"toban-{incarnation}")
        self._record = record.GuardRecord(
            incarnation=incarnation,
            boot_id=record.boot_id(),
            pid_namespace=record.pid_namespace(),
            master=os.getpid(),
            master_start=start_time(os.getpid()),
            cgroup=str(self._cgroup or ""),
        )

    def run(self) -> None:
        """Serve until the executor has gone and every keeper has ended."""
        for number in _IGNORED:
            signal.signal(number, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
        become_subreaper()
        record.write(self._state_dir / "guards", self._record)
        self._work.mkdir(mode=0o700, exist_ok=True)
        self._payloads = make_payload_home(self._incarnation, fallback=self._work)
        gc.freeze()
        for slot in range(len(self._slots)):
            self._fork(slot)
        os.write(self._control, b"r")
        self._watch()
        self._finish()

    def _fork(self, slot: int) -> None:
        pid = os.fork()
        if pid:
            self._keepers[pid] = slot
            return
        status = 1
        try:
            self._keep(slot)
            status = 0
        finally:
            os._exit(status)

    def _keep(self, slot: int) -> None:
        signal.set_wakeup_fd(-1)
        os.close(self._control)
        for other, sock in enumerate(self._slots):
            if other != slot:
                sock.close()
        # The executor and the master need many; a job gets what the executor was started with.
        set_open_files(self._job_files)
        become_subreaper()
        serve(
            channel=Channel(
                self._slots[slot],
                left_file=left.file_of(self._state_dir / "guards", self._incarnation, slot),
                # Above every number of a keeper that died before.
                number=self._losses[slot] << 32,
            ),
            incarnation=self._incarnation,
            scratch=Scratch(directory=self._work / f"slot-{slot}", payload=self._payloads / f"payload-{slot}.json"),
            group=SlotCgroup(base=self._cgroup, slot=slot) if self._cgroup else None,
            losses=self._losses[slot],
        )

    def _watch(self) -> None:
        read, write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(write, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda _number, _frame: None)
        poll = select.poll()
        poll.register(read, select.POLLIN)
        poll.register(self._control, select.POLLIN)
        while True:
            ready = {fd for fd, _event in poll.poll(1000)}
            if self._control in ready and not _read(self._control):
                return
            _read(read)
            self._replace_dead()

    def _replace_dead(self) -> None:
        self._dead += self._collect()
        if not self._dead or _hung_up(self._control):
            return
        self._clear_orphans()
        dead, self._dead = self._dead, []
        for slot in dead:
            if self._tell_lost(slot):
                self._fork(slot)
            else:
                self._dead.append(slot)

    def _tell_lost(self, slot: int) -> bool:
        """False when the executor does not read now: it is told later, since else it would wait for the attempt for ever."""
        message = {"t": "lost", "slot": slot, "losses": self._losses[slot] + 1}
        try:
            self._slots[slot].send(encode(message), socket.MSG_DONTWAIT)
        except BlockingIOError:
            return False
        except OSError:
            # The executor has gone; the end of the control pipe says so too.
            pass
        self._losses[slot] += 1
        return True

    def _collect(self) -> list[int]:
        """Reap; returns the slots whose keepers have ended."""
        dead = []
        with contextlib.suppress(ChildProcessError):
            while (ended := os.waitpid(-1, os.WNOHANG)[0]) != 0:
                slot = self._keepers.pop(ended, None)
                if slot is not None:
                    dead.append(slot)
        return dead

    def _clear_orphans(self) -> None:
        """Kill every child that is not a keeper, with its tree, until none is left."""
        while orphans := [pid for pid in children(os.getpid()) if pid not in self._keepers]:
            for pid in orphans:
                signal_tree(pid, (signal.SIGKILL,))
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            pause(0.005)
            with contextlib.suppress(ChildProcessError):
                for pid in orphans:
                    os.waitpid(pid, os.WNOHANG)

    def _finish(self) -> None:
        """The keepers see the same end of file and kill their trees; wait for all, then write the testimony."""
        for sock in self._slots:
            sock.close()
        while self._keepers:
            self._collect()
            pause(0.002)
        self._clear_orphans()
        if self._cgroup is not None:
            cgroup.remove(self._cgroup)
        shutil.rmtree(payload_home(self._incarnation), ignore_errors=True)
        record.write(self._state_dir / "guards", replace(self._record, empty=True))


def _read(fd: int) -> bytes:
    try:
        return os.read(fd, 4096)
    except BlockingIOError:
        return b"."


def _hung_up(fd: int) -> bool:
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    return any(event & (select.POLLHUP | select.POLLERR) for _fd, event in poll.poll(0))
