"""Parent of the slot supervisors: carries out what `decide/guard_set.py` decides about starting, replacing and ending them.

As subreaper it inherits what a dying slot supervisor leaves behind and kills it. Fork is safe here: one thread, a few megabytes, no gRPC.
"""

import contextlib
import gc
import os
import resource
import select
import shutil
import signal
import socket
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from toban_executor.decide.guard_set import (
    CloseSlots,
    ControlClosed,
    Event,
    KillOrphans,
    LossReported,
    RecordEmpty,
    ReportLoss,
    SlotsEnded,
    StartSlot,
    StartWitness,
    SupervisorTick,
    begin,
    decide,
)
from toban_executor.decide.guard_types import SlotLost
from toban_executor.decide.isolation import PRIVATE_HOME, PRIVATE_MEMORY, SandboxLimits, SandboxPlan
from toban_executor.decide.warm import WarmLimits
from toban_executor.guard import cgroup, guard_state, kernel, limit_groups, message_spool, witness
from toban_executor.guard.cgroup import SlotCgroup
from toban_executor.guard.channel import Channel
from toban_executor.guard.clock import pause
from toban_executor.guard.pipes import signal_pipe
from toban_executor.guard.process_tree import (
    become_subreaper,
    children,
    kill_all,
    set_slot_name,
    signal_tree,
    start_time,
)
from toban_executor.guard.protocol import encode_report
from toban_executor.guard.sandbox_init import SandboxSpec, outermost, place_in_home
from toban_executor.guard.slot_supervisor import serve
from toban_executor.guard.work_dir import SlotPaths, WorkDir, make_payload_home, payload_home
from toban_runtime.open_files import set_open_files

_IGNORED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGPIPE)
"""A service manager or a terminal signals all processes of a service; how jobs end is the executor's decision alone."""

_TICK_MS = 1000
_GC_THRESHOLDS = (20_000, 20, 20)


class GuardSupervisor:
    """Owns the slot supervisors of one incarnation."""

    def __init__(
        self,
        *,
        incarnation: str,
        state_dir: Path,
        control: int,
        credentials: int,
        slots: list[socket.socket],
        job_files: int,
        warm: WarmLimits,
        sandboxes: SandboxPlan | None = None,
        uids: tuple[int, ...] = (),
    ) -> None:
        self._incarnation = incarnation
        self._sandboxes = sandboxes
        # One for each slot in class `isolated`.
        self._uids = uids
        self._job_files = job_files
        # Without a namespace a zygote would be in reach of every job of its slot.
        self._warm = warm if sandboxes is None or sandboxes.namespaces else warm._replace(zygotes=0)
        self._folder = state_dir / "guards"
        self._work = state_dir / "work"
        self._payloads = self._work
        self._control = control
        # Descriptor of what a witness needs.
        self._credentials = credentials
        self._slots = slots
        # Process id to slot.
        self._children: dict[int, int] = {}
        self._finished = False
        self._actions: dict[type, Callable[[Any], Event | None]] = {
            StartSlot: self._start_slot,
            KillOrphans: self._kill_orphans,
            ReportLoss: self._report_loss,
            CloseSlots: self._close_slots,
            StartWitness: self._start_witness,
            RecordEmpty: self._record_empty,
        }
        self._cgroup = cgroup.find_base(f"toban-{incarnation}")
        # What jobs need to see: the interpreter, Toban, and what the setting names.
        self._readable = outermost([*own_folders(), *sandboxes.shown]) if sandboxes is not None else []
        self._limits = sandboxes.limits if sandboxes is not None else SandboxLimits()
        self._limit_groups = limit_groups.find(self._limits, self._cgroup)
        self._guard_state = guard_state.GuardState(
            incarnation=incarnation,
            boot_id=guard_state.boot_id(),
            pid_namespace=guard_state.pid_namespace(),
            supervisor=os.getpid(),
            supervisor_start=start_time(os.getpid()),
            cgroup=str(self._cgroup or ""),
            cgroup_id=cgroup.identity(self._cgroup) if self._cgroup else "",
            cgroup_root=cgroup.identity(root) if (root := cgroup.mount_root()) else "",
            uids=uids,
        )

    def run(self) -> None:
        """Serve until the executor has ended and so has every slot supervisor."""
        for number in _IGNORED:
            signal.signal(number, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
        become_subreaper()
        # Else jobs of this user could trace these processes and read their memory.
        kernel.keep_untraced()
        guard_state.write(self._folder, self._guard_state)
        self._work.mkdir(mode=0o700, exist_ok=True)
        self._payloads = make_payload_home(self._incarnation, fallback=self._work)
        if self._sandboxes is not None and not self._sandboxes.namespaces:
            # Jobs reach their folders by these paths; what is in them is of one uid each.
            for folder in (self._work.parent, self._work, self._payloads):
                folder.chmod(0o711)
        gc.freeze()
        # A run leaves no cycles behind, but objects that live until the next one: many small collections would find nothing.
        gc.set_threshold(*_GC_THRESHOLDS)
        self._state, effects = begin(len(self._slots))
        for effect in effects:
            self._actions[type(effect)](effect)
        os.write(self._control, b"r")
        self._serve()

    def _serve(self) -> None:
        exits = signal_pipe()
        poll = select.poll()
        poll.register(exits, select.POLLIN)
        poll.register(self._control, select.POLLIN)
        while not self._finished:
            ready = {fd for fd, _event in poll.poll(_TICK_MS)}
            if exits in ready:
                os.read(exits, 4096)
            ended = self._collect()
            if not self._state.closed and _is_closed(self._control):
                poll.unregister(self._control)
                self._handle(ControlClosed(in_order=witness.stopped_in_order(self._control)))
            self._handle(ended or SupervisorTick())

    def _handle(self, event: Event) -> None:
        events = [event]
        while events:
            self._state, effects = decide(self._state, events.pop(0))
            for effect in effects:
                if (answer := self._actions[type(effect)](effect)) is not None:
                    events.append(answer)

    # ---- effects

    def _start_slot(self, start: StartSlot) -> None:
        pid = os.fork()
        if pid:
            self._children[pid] = start.slot
            return
        status = 1
        try:
            status = 0 if self._run_slot(start.slot, start.losses) else 1
        finally:
            os._exit(status)

    def _run_slot(self, slot: int, losses: int) -> bool:
        signal.set_wakeup_fd(-1)
        os.close(self._control)
        os.close(self._credentials)
        for other, sock in enumerate(self._slots):
            if other != slot:
                sock.close()
        # The executor and this process need many; a job gets what the executor was started with.
        set_open_files(self._job_files)
        set_slot_name(slot)
        become_subreaper()
        return serve(
            channel=Channel(
                self._slots[slot],
                spool_file=message_spool.file_of(self._folder, self._incarnation, slot),
                # Above every number of a slot supervisor that died before.
                number=losses << 32,
            ),
            incarnation=self._incarnation,
            work_dir=self._work_dir(slot),
            sandbox_spec=self._sandbox_spec(slot),
            group=SlotCgroup(base=self._cgroup, slot=slot) if self._cgroup else None,
            warm=self._warm,
            losses=losses,
        )

    def _work_dir(self, slot: int) -> WorkDir:
        directory = self._work / f"slot-{slot}"
        if self._sandboxes is None:
            payload, socket = self._payloads / f"payload-{slot}.json", self._payloads / f"job-{slot}.sock"
            return WorkDir(directory=directory, payload=payload, socket=socket)
        memory = self._payloads / f"memory-{slot}"
        memory.mkdir(mode=0o700, exist_ok=True)
        there = Path(PRIVATE_MEMORY) if self._sandboxes.namespaces else memory
        # With the executor's uid jobs see the folders of the machine.
        seen = PRIVATE_HOME if self._uids and self._sandboxes.namespaces else str(directory)
        names = ("payload.json", "job.sock", "payload.secrets")
        return WorkDir(
            directory=directory,
            payload=memory / names[0],
            socket=memory / names[1],
            kept=True,
            gid=self._uids[slot] if self._uids else 0,
            shown=[place for folder in self._readable if (place := place_in_home(folder))] if self._uids else (),
            inside=SlotPaths(seen, *(str(there / name) for name in names)),
        )

    def _sandbox_spec(self, slot: int) -> SandboxSpec | None:
        if self._sandboxes is None:
            return None
        group = SlotCgroup(base=self._cgroup, slot=slot).path if self._cgroup else None
        if group is not None:
            group.mkdir(parents=True, exist_ok=True)
        by_rlimits = self._limit_groups.kind == limit_groups.RLIMITS
        return SandboxSpec(
            groups=limit_groups.apply(self._limit_groups, self._limits, slot_group=group, name=self._group_name(slot)),
            memory_mb=self._limits.memory_mb if by_rlimits else 0,
            uid=self._uids[slot] if self._uids else None,
            hidden=self._sandboxes.hidden,
            namespaces=self._sandboxes.namespaces,
            home=os.path.realpath(self._work / f"slot-{slot}"),
            memory=os.path.realpath(self._payloads / f"memory-{slot}"),
            readable=self._readable,
            # Also with a group. It is counted by uid, which containers of the same host may have, too.
            processes=self._limits.processes,
        )

    def _group_name(self, slot: int) -> str:
        return limit_groups.group_name(self._incarnation, slot)

    def _report_loss(self, loss: ReportLoss) -> LossReported:
        try:
            message = encode_report(SlotLost(slot=loss.slot, losses=loss.losses))
            self._slots[loss.slot].send(message, socket.MSG_DONTWAIT)
        except OSError:
            # It does not read now, or has ended: the end of the control pipe shows that.
            return LossReported(loss.slot, delivered=False)
        return LossReported(loss.slot, delivered=True)

    def _collect(self) -> SlotsEnded | None:
        """Reap; the slots whose supervisors have ended, if any."""
        ended: dict[int, int] = {}
        with contextlib.suppress(ChildProcessError):
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if pid == 0:
                    break
                slot = self._children.pop(pid, None)
                if slot is not None:
                    ended[slot] = status
        return SlotsEnded(tuple(ended), tuple(slot for slot, status in ended.items() if status)) if ended else None

    def _kill_orphans(self, _effect: KillOrphans) -> None:
        while True:
            orphans = [pid for pid in children(os.getpid()) if pid not in self._children]
            if not orphans and not self._containers_left() and (self._children or _has_no_child()):
                return
            for pid in orphans:
                signal_tree(pid, (signal.SIGKILL,))
            kill_all(orphans)
            pause(0.005)
            with contextlib.suppress(ChildProcessError):
                for pid in orphans:
                    os.waitpid(pid, os.WNOHANG)

    def _containers_left(self) -> bool:
        """Kill the containers of slots without a supervisor; whether some are left."""
        left = False
        if self._cgroup is None:
            return left
        for slot in set(range(len(self._slots))).difference(self._children.values()):
            containers = SlotCgroup(base=self._cgroup, slot=slot).containers
            containers.kill()
            with contextlib.suppress(OSError):
                left = left or containers.is_populated
        return left

    def _close_slots(self, _effect: CloseSlots) -> None:
        for sock in self._slots:
            sock.close()
        # The executor, which would act in place of one that is stopped, is gone.
        for pid in self._children:
            os.kill(pid, signal.SIGCONT)

    def _start_witness(self, effect: StartWitness) -> None:
        if not witness.is_sealed(self._credentials):
            # The executor had no key yet: it held no run.
            return
        try:
            witness.start(self._credentials, proven=effect.proven)
        except OSError as error:
            sys.stderr.write(f"the witness of a dead executor does not start, its lease ends by itself: {error}\n")

    def _record_empty(self, _effect: RecordEmpty) -> None:
        if self._cgroup is not None:
            # An engine that is asked to start a container may still do so: it comes into a group that is frozen.
            cgroup.remove(self._cgroup, containers=False)
        limit_groups.remove(self._limit_groups, [self._group_name(slot) for slot in range(len(self._slots))])
        shutil.rmtree(payload_home(self._incarnation), ignore_errors=True)
        guard_state.write(self._folder, replace(self._guard_state, empty=True))
        self._finished = True


def own_folders() -> list[str]:
    """The folders of this interpreter and of Toban, which steps of type python, django and http run."""
    # Not all of sys.path: the folder in which the executor was started is often there, and has files of its user.
    packages = {name.partition(".")[0] for name in sys.modules if name.startswith("toban_")}
    sources = [str(Path(file).parents[1]) for name in packages if (file := sys.modules[name].__file__)]
    return outermost([sys.prefix, sys.base_prefix, *sources])


def _has_no_child() -> bool:
    """The kernel's word, once every slot supervisor has ended: the list in /proc may lack a process that is being forked."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return True
    return False


def _is_closed(fd: int) -> bool:
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    return any(event & (select.POLLHUP | select.POLLERR) for _fd, event in poll.poll(0))
