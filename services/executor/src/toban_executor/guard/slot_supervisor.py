"""Parent and subreaper of the attempts of one slot, one at a time: carries out what `decide/guard.py` decides.

A single-threaded loop over poll. Everything that descends from this process belongs to the one attempt in the slot, but for idle zygotes, so
``waitpid`` without any child left is the proof of an empty tree (guard/zygotes.py: the proof with zygotes).
"""

import math
import os
import select
from collections.abc import Callable
from typing import Any

from toban_domain.log_block import STDERR, STDOUT, LogBlock
from toban_domain.outcome import AttemptKey
from toban_executor.decide.environment import own_environment
from toban_executor.decide.guard import decide, next_due
from toban_executor.decide.guard_steps import lease_left, may_start
from toban_executor.decide.guard_types import (
    CheckTree,
    CloseLeasePipe,
    DrainOutput,
    DropAcked,
    Event,
    ExecutorClosed,
    FreezeChecked,
    FreezeTree,
    JobSpoke,
    NotifyCancel,
    PauseOutput,
    Refuse,
    ReportEnd,
    ReportFreeze,
    ReportStart,
    ReportUnreachable,
    ResumeOutput,
    SignalTree,
    Spawn,
    StartStep,
    StepNotStarted,
    StepStarted,
    Stop,
    TellCheckpoint,
    ThawTree,
    Tick,
    TreeChecked,
    TreeSignaled,
)
from toban_executor.decide.models import StartOrder
from toban_executor.decide.slot_state import SlotState
from toban_executor.decide.warm import WarmLimits
from toban_executor.guard.cgroup import SlotCgroup
from toban_executor.guard.channel import Channel
from toban_executor.guard.clock import boottime, instant
from toban_executor.guard.freezer import TreeFreezer
from toban_executor.guard.job_tree import JobTree, StepProcess
from toban_executor.guard.output_pipeline import OutputStream, pipeline_of
from toban_executor.guard.pipes import open_pipe, readable, signal_pipe
from toban_executor.guard.process_tree import keep_within_reach
from toban_executor.guard.protocol import decode_command, encode_block, encode_report
from toban_executor.guard.sandbox import Sandbox
from toban_executor.guard.sandbox_init import SandboxSpec
from toban_executor.guard.slot_job import SlotJob
from toban_executor.guard.spawn import LEASE_FD, SpawnError, enter
from toban_executor.guard.work_dir import WorkDir
from toban_executor.guard.zygotes import Zygotes

_READ = 64 * 1024


class SlotSupervisor:
    """The process of one slot. `losses`: how many before it have died. `sandbox_spec`: of its sandbox, None in class `shared`."""

    def __init__(
        self,
        *,
        channel: Channel,
        incarnation: str,
        work_dir: WorkDir,
        cgroup: SlotCgroup | None,
        warm: WarmLimits,
        losses: int = 0,
        sandbox_spec: SandboxSpec | None = None,
    ) -> None:
        self._channel = channel
        self._work_dir = work_dir
        self._freezer = TreeFreezer(root=os.getpid(), cgroup=cgroup)
        self._state = SlotState(incarnation=incarnation, unreset_losses=losses)
        self._stopped = False
        # CLOCK_BOOTTIME of the next tick.
        self._due = math.inf
        # Of the attempt in the slot; the pipes are registered with poll unless paused.
        self._no_output = pipeline_of(StartOrder(key=AttemptKey(0, 0)), env={})
        self._output = self._no_output
        self._pipes: dict[int, OutputStream] = {}
        self._pipe_ends: list[int] = []
        self._paused = self._held = False
        self._null = _open_null()
        self._lease_pipe = os.pipe()
        self._signals = signal_pipe()
        self._poll = select.poll()
        self._poll.register(self._signals, select.POLLIN)
        self._job = SlotJob(
            path=work_dir.socket,
            poll=self._poll,
            send=channel.send_note,
            lease_left=self._lease_left,
            gid=work_dir.gid,
        )
        sandbox = None if sandbox_spec is None else Sandbox(spec=sandbox_spec, poll=self._poll)
        self._tree = self._job_tree(cgroup, warm, sandbox)
        self._channel_events = select.POLLIN
        self._poll.register(channel.fileno(), select.POLLIN)
        self._actions: dict[type, Callable[[Any], Event | None]] = {
            StartStep: self._start_step,
            SignalTree: self._signal_tree,
            FreezeTree: self._freeze_tree,
            ThawTree: self._thaw_tree,
            CheckTree: self._check_tree,
            CloseLeasePipe: self._close_lease_pipe,
            NotifyCancel: self._job.notify_cancel,
            TellCheckpoint: self._job.tell_checkpoint,
            DrainOutput: self._drain_output,
            PauseOutput: self._pause_output,
            ResumeOutput: self._resume_output,
            DropAcked: self._drop_acked,
            ReportStart: self._report_start,
            ReportFreeze: self._report_freeze,
            ReportEnd: self._report_end,
            ReportUnreachable: self._report_unreachable,
            Refuse: self._refuse,
            Stop: self._stop,
        }

    def _job_tree(self, cgroup: SlotCgroup | None, warm: WarmLimits, sandbox: Sandbox | None) -> JobTree:
        return JobTree(
            cgroup=cgroup,
            zygotes=Zygotes(limits=warm, poll=self._poll, send=self._channel.send_note, sandbox=sandbox),
            tell=self._tell,
            may_start=self._may_start,
            suspended=self._suspended,
            sandbox=sandbox,
        )

    def run(self) -> bool:
        """Serve until the executor has ended and nothing is left of the last attempt; then spool what the executor had not on disk.

        False when the executor never learned that the supervisor before this one had died: what that one kept is lost.
        """
        while not self._stopped:
            self._turn()
        self._tree.close()
        self._channel.spool()
        return not self._state.unreset_losses

    def _turn(self) -> None:
        if self._channel.closed and not self._state.executor_closed:
            # Whichever saw it first: a read, or a write that failed. Before poll, which may wait without limit for a free slot.
            self._handle(ExecutorClosed())
            return
        self._update_poll()
        child_exited = False
        due = min(self._due, self._job.due) if self._state.attempt else min(self._job.due, self._tree.due)
        timeout = None if due == math.inf else max(0.0, due - boottime()) * 1000 + 0.5
        for fd, _event in self._poll.poll(timeout):
            if fd == self._signals:
                child_exited = True
                os.read(fd, 4096)
            elif fd in self._pipes:
                self._read_pipe(fd)
            elif self._job.owns(fd):
                self._job.ready(fd)
            elif self._tree.owns(fd):
                child_exited |= not self._restarted(self._tree.zygote_ready(fd))
            else:
                self._channel.flush()
                self._receive()
        if self._state.attempt is not None:
            self._send_blocks(self._output.tick())
            if self._job.spoke() and self._state.attempt.heartbeat_at < math.inf:
                self._handle(JobSpoke())
            # The tick first: an attempt that has passed its deadline or timeout ends by that, also when its exit is seen in this turn.
            if boottime() >= self._due:
                if not self._suspended():
                    self._tree.tick()
                self._handle(Tick(child_exited))
            if child_exited and self._state.attempt is not None:
                self._handle(self._check_tree())
            if self._tree.lost and self._state.attempt is not None:
                self._restarted(self._tree.restart())
                self._handle(self._check_tree())
        elif child_exited or boottime() >= self._tree.due:
            self._tree.idle()

    def _handle(self, event: Event) -> None:
        """Decide, carry out, and arm the timer of the next tick."""
        next_event: Event | None = event
        while next_event is not None:
            # Read again for each event: carrying out an effect may take long.
            now = instant()
            self._state, effects = decide(self._state, next_event, now)
            next_event = None
            for effect in effects:
                next_event = self._actions[type(effect)](effect)
        self._due = next_due(self._state, now)

    def _may_start(self) -> bool:
        return self._state.attempt is not None and may_start(self._state.attempt, instant())

    def _lease_left(self) -> float | None:
        return lease_left(self._state.attempt, instant())

    def _suspended(self) -> bool:
        return self._state.attempt is not None and self._state.attempt.suspended

    def _restarted(self, event: StepStarted | StepNotStarted | None) -> bool:
        """Whether a zygote has forked, or the step was started in its place, or could not be."""
        if isinstance(event, StepNotStarted):
            self._drain_output()
        if event is not None:
            self._handle(event)
        return event is not None

    def _tell(self, text: str) -> None:
        # It may quote an exception of failed imports, with a secret in it.
        self._send_blocks(self._output.system_line(self._output.redact(text)))

    def _update_poll(self) -> None:
        channel = self._channel
        events = 0 if channel.closed else select.POLLIN | (select.POLLOUT if channel.wants_write else 0)
        if events != self._channel_events:
            if events:
                self._poll.register(channel.fileno(), events)
            else:
                self._poll.unregister(channel.fileno())
            self._channel_events = events
        paused = self._held or channel.congested
        if paused != self._paused:
            self._paused = paused
            for fd in self._pipes:
                if paused:
                    self._poll.unregister(fd)
                else:
                    self._poll.register(fd, select.POLLIN)

    def _receive(self) -> None:
        while data := self._channel.receive():
            received = decode_command(data)
            self._handle(received)
            if isinstance(received.command, Spawn):
                return  # Nothing follows it at once, as a rule; poll shows what does.

    # ---- effects

    def _start_step(self, start: StartStep) -> Event:
        try:
            if start.step == start.spawn.order.first_step:
                self._prepare(start.spawn)
            self._job.begin_step()
            pid = self._spawn(start.spawn, start.step)
        except SpawnError as error:
            self._drain_output()
            return StepNotStarted(str(error))
        if len(start.spawn.order.steps) > 1 and self._state.attempt is not None:
            self._job.note_steps(self._state.attempt)
        return StepStarted(pid)

    def _prepare(self, spawn: Spawn) -> None:
        order = spawn.order
        self._tree.begin()
        self._output = pipeline_of(order, env=spawn.env)
        self._job.begin(order, self._output)
        self._work_dir.prepare(order.payload_json, order.secrets)
        self._send_blocks(self._output.opening())

    def _spawn(self, spawn: Spawn, number: int) -> int:
        step = spawn.order.steps[number]
        inside = self._tree.is_inside(step)
        places = self._work_dir.places(inside=inside)
        secrets = () if step.stdin else spawn.order.secrets
        given = self._work_dir.environment(secrets, inside=inside)
        env = own_environment(spawn.env) if step.stdin else {**spawn.env, **given}
        env["TOBAN_PAYLOAD_FILE"] = places.payload
        env["TOBAN_LEASE_FD"] = str(LEASE_FD)
        if self._job.path:
            env["TOBAN_SOCKET"] = places.socket
        out, err = self._open_output(STDOUT), self._open_output(STDERR)
        process = StepProcess(
            step=step,
            name=f"{spawn.order.key.token}-{step.id}",
            program=spawn.programs[number],
            env=env,
            secrets=secrets,
            working_dir=spawn.order.working_dir,
            work_dir=spawn.order.working_dir or places.directory,
            fds=(self._null, out, err, self._lease_pipe[0]),
        )
        return self._tree.start(process)

    def _open_output(self, stream: int) -> int:
        """The writing end of a new pipe. It stays open here until the tree is empty: else the end of each pipe would wake this process shortly before
        the end of the job does."""
        fd, end = open_pipe()
        self._pipes[fd] = self._output.stream(stream)
        self._pipe_ends.append(end)
        if not self._paused:
            self._poll.register(fd, select.POLLIN)
        return end

    def _signal_tree(self, effect: SignalTree) -> TreeSignaled:
        self._tree.signal(effect.signal)
        return TreeSignaled(effect.signal)

    def _freeze_tree(self, _effect: FreezeTree) -> FreezeChecked:
        return FreezeChecked(self._freezer.freeze())

    def _thaw_tree(self, _effect: ThawTree) -> None:
        self._freezer.thaw()
        self._tree.thawed()

    def _check_tree(self, _effect: CheckTree | None = None) -> TreeChecked:
        return self._tree.check()

    def _close_lease_pipe(self, _effect: CloseLeasePipe | None = None) -> None:
        """Every process of the job sees the end of the pipe; the next job gets a new one."""
        for fd in self._lease_pipe:
            os.close(fd)
        self._lease_pipe = os.pipe()

    def _renew_descriptors(self) -> None:
        """The next job gets none that a job has had: flags, locks and an owner are those of the open file, not of the descriptor."""
        os.close(self._null)
        self._null = _open_null()
        self._close_lease_pipe()

    def _drain_output(self, _effect: DrainOutput | None = None) -> None:
        """A process elsewhere may hold a pipe open: it is not waited for."""
        self._job.finish_step()
        while self._pipe_ends:
            os.close(self._pipe_ends.pop())
        for fd in list(self._pipes):
            while self._read_pipe(fd):
                pass
            if fd in self._pipes:
                self._close_pipe(fd)

    def _pause_output(self, _effect: PauseOutput) -> None:
        self._held = True

    def _resume_output(self, effect: ResumeOutput) -> None:
        if effect.waited and readable(self._pipes):
            self._send_blocks(
                self._output.system_line(
                    f"the job waited up to {effect.waited:.0f} s in its writes: "
                    "the executor's journal of logs was full; nothing was left out"
                )
            )
        self._held = False

    def _drop_acked(self, effect: DropAcked) -> None:
        self._channel.drop_acked(effect.number)

    def _report_start(self, report: ReportStart) -> None:
        self._channel.send(encode_report(report.start))

    def _report_freeze(self, report: ReportFreeze) -> None:
        self._channel.send_unnumbered(encode_report(report.turn))

    def _report_end(self, report: ReportEnd) -> None:
        enter("/")
        self._tree.ended()
        self._work_dir.clear()
        self._renew_descriptors()
        self._send_blocks(self._output.finish())
        end = self._job.finish(self._output.complete(report.end, self._job.step_seq))
        self._channel.send(encode_report(end), ticket=report.ticket)
        # It holds the values to redact.
        self._output = self._no_output

    def _report_unreachable(self, effect: ReportUnreachable) -> None:
        self._channel.send(encode_report(effect.report))

    def _refuse(self, refusal: Refuse) -> None:
        self._channel.send(encode_report(refusal.end))

    def _stop(self, _effect: Stop) -> None:
        self._stopped = True

    # ---- output

    def _read_pipe(self, fd: int) -> bool:
        """One read; False when the pipe has nothing more for now or has ended."""
        try:
            data = os.read(fd, _READ)
        except BlockingIOError:
            return False
        if not data:
            self._close_pipe(fd)
            return False
        self._send_blocks(self._pipes[fd].feed(data))
        return True

    def _close_pipe(self, fd: int) -> None:
        self._send_blocks(self._pipes.pop(fd).finish())
        if not self._paused:
            self._poll.unregister(fd)
        os.close(fd)

    def _send_blocks(self, blocks: list[LogBlock]) -> None:
        for block in blocks:
            self._channel.send(encode_block(block))


def _open_null() -> int:
    return os.open("/dev/null", os.O_RDONLY | os.O_CLOEXEC)


def serve(
    *,
    channel: Channel,
    incarnation: str,
    work_dir: WorkDir,
    group: SlotCgroup | None,
    warm: WarmLimits,
    losses: int = 0,
    sandbox_spec: SandboxSpec | None = None,
) -> bool:
    """Body of a slot supervisor's process, already its own child subreaper. Returns what `SlotSupervisor.run` does."""
    entered = group is not None and group.prepare()
    cgroup = group if entered else None
    if cgroup is None:
        keep_within_reach()
    supervisor = SlotSupervisor(
        channel=channel,
        incarnation=incarnation,
        work_dir=work_dir,
        cgroup=cgroup,
        warm=warm,
        losses=losses,
        sandbox_spec=sandbox_spec,
    )
    return supervisor.run()
