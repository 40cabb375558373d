"""One slot: takes an order, runs it, watches its lease and its timeouts, ends its tree and proves it empty.

A single-threaded loop over poll. Everything that descends from this process belongs to the one attempt that it runs, so
``waitpid`` without any child left is the proof of an empty tree.

A step of an attempt: spawn → (SIGTERM → grace → SIGKILL, for a cause) → main process ended → the rest of its tree ended in
the same way → no child left → pipes drained → next step, or ``end`` to the executor.
"""

import os
import select
import signal
from typing import Any

from toban_executor.decide.log_block import STDERR, STDOUT, LogBlock
from toban_executor.guard.cgroup import SlotCgroup
from toban_executor.guard.channel import Channel
from toban_executor.guard.clock import boottime, wall_ns
from toban_executor.guard.job import KILL_ALLOWANCE, Job, Lease
from toban_executor.guard.pipes import open_pipe, readable, signal_pipe
from toban_executor.guard.scratch import Scratch
from toban_executor.guard.spawn import LEASE_FD, SpawnError, enter, find_program, spawn
from toban_executor.guard.tree import signal_tree
from toban_executor.guard.wire import decode, encode, encode_block

_TELL_STARTED_AFTER = 0.01
"""Seconds: a job that ends sooner is told by its end alone, which implies the start and halves the messages of short jobs."""

_CLOCK_CHECK = 0.2
"""Seconds between looks at the clocks while a job runs, so that a jump of the wall clock is noticed."""

_KILL_AGAIN = 0.02
"""Seconds between rounds of SIGKILL: processes that were being forked during a walk are met by the next one."""

_READ = 64 * 1024
_WAIT_TOLD_AFTER = 1.0
"""Seconds of waiting for the executor after which the log of a job says that it has waited."""


class Keeper:
    """Parent and subreaper of one attempt at a time."""

    def __init__(
        self, *, channel: Channel, incarnation: str, scratch: Scratch, cgroup: SlotCgroup | None, losses: int = 0
    ) -> None:
        self._channel = channel
        self._incarnation = incarnation
        self._scratch = scratch
        self._cgroup = cgroup
        # The successor of a keeper that died obeys nothing that was sent before the executor heard of that loss (its
        # `reset` names it): the executor has reported such an attempt as lost, and it may run elsewhere by now.
        self._muted_until = losses
        # True while the executor takes no more output: only the jobs' pipes are left alone, everything else goes on.
        self._held = False
        self._held_since = 0.0
        self._job: Job | None = None
        self._gone = False
        self._poll = select.poll()
        self._null = os.open("/dev/null", os.O_RDONLY | os.O_CLOEXEC)
        self._lease_pipe = os.pipe()
        self._signals = signal_pipe()
        self._poll.register(self._signals, select.POLLIN)

    def run(self) -> None:
        """Serve until the executor has gone and nothing is left of the last job; then leave what it had not on disk to its successor."""
        while self._job is not None or not self._channel.closed:
            self._turn()
        self._channel.leave()

    # ---- the loop

    def _turn(self) -> None:
        self._watch()
        child_ended = False
        for fd, _event in self._poll.poll(self._wait_ms()):
            if fd == self._signals:
                child_ended = True
                os.read(self._signals, 4096)
            elif fd == self._channel.fileno():
                self._channel.flush()
                self._receive()
            elif self._job is not None and fd in self._job.pipes:
                self._read_pipe(self._job, fd)
        if self._channel.closed and not self._gone:
            # Whichever saw it first: a read, or a write that failed.
            self._gone = True
            self._executor_gone()
        if self._job is not None:
            self._look_at(self._job, child_ended)

    def _watch(self) -> None:
        events = select.POLLIN | (select.POLLOUT if self._channel.wants_write else 0)
        if self._channel.closed:
            self._unregister(self._channel.fileno())
        else:
            self._poll.register(self._channel.fileno(), events)
        if self._job is not None:
            for fd in self._job.pipes:
                if self._held or self._channel.congested:
                    self._unregister(fd)
                else:
                    self._poll.register(fd, select.POLLIN)

    def _unregister(self, fd: int) -> None:
        try:
            self._poll.unregister(fd)
        except KeyError:
            pass

    def _wait_ms(self) -> float | None:
        job = self._job
        if job is None:
            return None
        now = boottime()
        until = min(job.kill_at, job.timeout_at, now + _CLOCK_CHECK)
        if not job.told_started:
            until = min(until, job.tell_at)
        until = min(until, now + (job.lease.left() - KILL_ALLOWANCE if job.cause else job.lease_left()))
        return max(0.0, until - now) * 1000 + 0.5

    # ---- what the executor says

    def _receive(self) -> None:
        while (data := self._channel.receive()) is not None:
            if not data:
                return
            message = decode(data)
            if isinstance(message, dict) and message.get("inc") == self._incarnation:
                self._obey(message)
            elif isinstance(message, dict) and message.get("t") == "spawn":
                self._refuse(message, "wrong_incarnation", "the order names another incarnation than this guard's")

    def _obey(self, message: dict[str, Any]) -> None:
        kind = message["t"]
        if self._muted_until:
            if kind == "reset" and message["losses"] == self._muted_until:
                self._muted_until = 0
            return
        self._channel.stored(int(message.get("stored", 0)))
        if kind == "hold":
            self._hold(bool(message["on"]))
        elif kind == "spawn":
            self._start(message)
        elif self._job is None or message.get("token") != self._job.token:
            return
        elif kind == "lease":
            self._job.lease = Lease(boot=float(message["boot"]), wall=float(message["wall"]))
        elif kind == "kill":
            self._end(self._job, str(message["cause"]), str(message["reason"]), float(message["grace"]))

    def _hold(self, on: bool) -> None:
        if on and not self._held:
            self._held_since = boottime()
        elif self._held and not on and self._job is not None:
            waited = boottime() - max(self._held_since, self._job.begun)
            if waited >= _WAIT_TOLD_AFTER and readable(self._job.pipes):
                words = f"the job waited up to {waited:.0f} s in its writes: the executor's journal of logs was full; nothing was left out"
                self._send_blocks(self._job.intake.say(words))
        self._held = on

    def _executor_gone(self) -> None:
        if self._job is not None:
            self._end(self._job, "executor_gone", "the executor process has gone", 0.0)

    # ---- start

    def _start(self, order: dict[str, Any]) -> None:
        lease = Lease(boot=float(order["boot"]), wall=float(order["wall"]))
        if self._job is not None:
            self._refuse(order, "slot_busy", "another attempt is in this slot")
        elif lease.left() <= 0:
            self._refuse(order, "lease", "the lease's deadline has passed")
        else:
            now = boottime()
            self._job = Job(
                order=order, lease=lease, started_ns=wall_ns(), begun=now, tell_at=now + _TELL_STARTED_AFTER
            )
            if order["timeout"]:
                self._job.attempt_end = now + float(order["timeout"])
            self._start_step(self._job)

    def _refuse(self, order: dict[str, Any], cause: str, reason: str) -> None:
        job = Job(order=order, lease=Lease(boot=0.0, wall=0.0), cause=cause, reason=reason)
        self._channel.send(encode(_end_message(job)))

    def _start_step(self, job: Job) -> None:
        job.status = None
        job.arm_step(boottime())
        try:
            if job.step == 0:
                self._scratch.prepare(job.order["payload"])
                self._send_blocks(job.intake.opening())
            job.main_pid = self._spawn(job)
        except SpawnError as error:
            job.cause, job.reason = "spawn_failed", str(error)
            self._finish(job)

    def _spawn(self, job: Job) -> int:
        order, step = job.order, job.order["steps"][job.step]
        env: dict[str, str] = dict(order["env"])
        env["TOBAN_PAYLOAD_FILE"] = self._scratch.payload
        env["TOBAN_LEASE_FD"] = str(LEASE_FD)
        enter(order["cwd"] or self._scratch.directory)
        program = step.get("program") or find_program(step["argv"][0], env.get("PATH", ""))
        out, err = open_pipe(), open_pipe()
        try:
            pid = spawn(
                program=program,
                argv=step["argv"],
                env=env,
                stdin=self._null,
                stdout=out[1],
                stderr=err[1],
                lease=self._lease_pipe[0],
            )
        except SpawnError:
            os.close(out[0])
            os.close(err[0])
            raise
        finally:
            os.close(out[1])
            os.close(err[1])
        for (fd, _), stream in ((out, STDOUT), (err, STDERR)):
            job.pipes[fd] = job.intake.stream(stream)
        return pid

    # ---- while it runs

    def _look_at(self, job: Job, child_ended: bool) -> None:
        now = boottime()
        if blocks := job.intake.tick():
            self._send_blocks(blocks)
        if not job.told_started and now >= job.tell_at:
            job.told_started = True
            self._channel.send(encode(_started_message(job)))
        if job.status is None and not job.cause:
            if job.lease_left() <= 0:
                self._lease_lost(job)
            elif now >= job.timeout_at:
                seconds = job.order["timeout"] if job.attempt_end <= job.step_end else None
                self._end(job, "timeout", _timeout_text(job, seconds), job.grace)
        elif job.lease.left() <= KILL_ALLOWANCE:
            job.kill_at = min(job.kill_at, now)
        if now >= job.kill_at:
            self._kill(job)
        if child_ended or job.kill_at < float("inf"):
            self._reap(job)

    def _lease_lost(self, job: Job) -> None:
        grace = min(float(job.order["lease_grace"]), job.lease.left() - KILL_ALLOWANCE)
        self._end(job, "lease", "the lease was not renewed in time", max(0.0, grace))

    def _read_pipe(self, job: Job, fd: int) -> bool:
        """One read; False when the pipe has nothing more for now or has ended."""
        try:
            data = os.read(fd, _READ)
        except BlockingIOError:
            return False
        if not data:
            self._close_pipe(job, fd)
            return False
        self._send_blocks(job.pipes[fd].feed(data))
        return True

    def _close_pipe(self, job: Job, fd: int) -> None:
        self._send_blocks(job.pipes.pop(fd).finish())
        self._unregister(fd)
        os.close(fd)

    def _send_blocks(self, blocks: list[LogBlock]) -> None:
        for block in blocks:
            self._channel.send(encode_block(block))

    # ---- the end

    def _end(self, job: Job, cause: str, reason: str, grace: float) -> None:
        """Begin to end the attempt, or hurry an end that has begun. The first cause stays; a main process that has
        ended keeps its result."""
        if job.status is None and not job.cause:
            job.cause, job.reason = cause, reason
            if cause in ("lease", "executor_gone"):
                self._say_lease_lost()
        self._terminate(job, grace)

    def _terminate(self, job: Job, grace: float) -> None:
        if job.kill_at == float("inf") and grace > 0:
            signal_tree(os.getpid(), (signal.SIGTERM, signal.SIGCONT))
        job.kill_at = min(job.kill_at, boottime() + grace)

    def _say_lease_lost(self) -> None:
        """Close the writing end, which every process of the job sees as the end of the pipe; the next job gets a new one."""
        for fd in self._lease_pipe:
            os.close(fd)
        self._lease_pipe = os.pipe()

    def _kill(self, job: Job) -> None:
        if self._cgroup is not None:
            self._cgroup.kill()
        signal_tree(os.getpid(), (signal.SIGKILL,))
        job.kill_at = boottime() + _KILL_AGAIN

    def _reap(self, job: Job) -> None:
        """Collect what has ended. When the main process has, the rest of its tree must go as well."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                self._step_over(job)
                return
            if pid == 0:
                break
            if pid == job.main_pid:
                job.status, job.finished_ns = status, wall_ns()
        if job.status is not None and job.kill_at == float("inf"):
            self._terminate(job, job.grace)

    def _step_over(self, job: Job) -> None:
        """No child is left: the tree is empty. Drain the pipes without waiting for somebody outside who holds them."""
        for fd in list(job.pipes):
            while self._read_pipe(job, fd):
                pass
            if fd in job.pipes:
                self._close_pipe(job, fd)
        job.kill_at = float("inf")
        more = job.step + 1 < len(job.order["steps"])
        if more and job.status == 0 and not job.cause:
            job.step += 1
            self._start_step(job)
        else:
            self._finish(job)

    def _finish(self, job: Job) -> None:
        enter("/")
        self._scratch.clear()
        self._send_blocks(job.intake.finish())
        self._job = None
        self._channel.send(encode(_end_message(job)), ticket=job.order.get("ticket", ""))


def _timeout_text(job: Job, attempt_seconds: float | None) -> str:
    if attempt_seconds is not None:
        return f"ran longer than timeout_seconds = {attempt_seconds:g}"
    step = job.order["steps"][job.step]
    return f"step {job.step + 1} ran longer than its timeout_seconds = {float(step['timeout']):g}"


def _started_message(job: Job) -> dict[str, Any]:
    return {
        "t": "started",
        "run": job.order["run"],
        "token": job.token,
        "pid": job.main_pid,
        "at_ns": job.started_ns,
    }


def _end_message(job: Job) -> dict[str, Any]:
    status = job.status
    return {
        "t": "end",
        "run": job.order["run"],
        "token": job.token,
        "pid": job.main_pid,
        "cause": job.cause,
        "reason": job.intake.clean(job.reason),
        "exit": os.WEXITSTATUS(status) if status is not None and os.WIFEXITED(status) else None,
        "signal": os.WTERMSIG(status) if status is not None and os.WIFSIGNALED(status) else None,
        "step": job.step,
        "steps": len(job.order["steps"]),
        "started_ns": job.started_ns,
        "finished_ns": job.finished_ns or wall_ns(),
        "last_seq": job.intake.numbering.last_seq,
        "last_line": job.intake.numbering.last_line,
        "logs": job.intake.counts,
    }


def serve(*, channel: Channel, incarnation: str, scratch: Scratch, group: SlotCgroup | None, losses: int = 0) -> None:
    """Body of a keeper process, already its own child subreaper."""
    entered = group is not None and group.prepare()
    cgroup = group if entered else None
    Keeper(channel=channel, incarnation=incarnation, scratch=scratch, cgroup=cgroup, losses=losses).run()
