"""The executor's side of its guards, on the event loop: commands to them, reports from them."""

import asyncio
import contextlib
import math
import socket
from collections.abc import Collection, Mapping, Sequence

from toban_domain.log_block import LogBlock
from toban_domain.outcome import AttemptKey
from toban_executor.adapters.lease_enforcer import LeaseEnforcer
from toban_executor.decide.guard_freeze import is_too_late
from toban_executor.decide.guard_types import (
    Acknowledge,
    AttemptStart,
    Cancel,
    CheckpointStored,
    Command,
    FreezeTurn,
    HoldOutput,
    JobNote,
    Kill,
    ProcessesUnreachable,
    Reset,
    SetDeadline,
    SlotLost,
    Spawn,
)
from toban_executor.decide.lease_end import LEASE_REASON, killed_at_lease_end
from toban_executor.decide.models import AttemptEnd, CancelOrder, StartOrder
from toban_executor.decide.usage import Measured
from toban_executor.decide.warm import WarmNote, choose_slot, wanted_keys
from toban_executor.guard.launch import GuardSet
from toban_executor.guard.message_spool import name_of
from toban_executor.guard.process_tree import TICKS, start_time, usage
from toban_executor.guard.protocol import MAX_MESSAGE, ReceiveBuffer, Report, decode_report, encode_command
from toban_executor.ports.guards import GuardListener
from toban_fencing.executor_lease import Instant
from toban_observability import metrics
from toban_observability.logs import get_logger
from toban_runtime.clock import Clock

_READS_A_TURN = 64
_ACK_BYTES = 64 * 1024
"""Each command acknowledges the reports that are on disk; after so many bytes of reports without a command, an acknowledgement goes alone.
A guard keeps no more than that, and what the executor has received and not written yet."""

_log = get_logger(__name__)
_restarts = metrics.counter("toban_executor_guard_restarts_total", "Slot supervisors that died and were replaced.")
_zygotes = metrics.gauge("toban_executor_zygotes", "Zygotes: processes that warm steps fork from.")
_forks = metrics.counter("toban_executor_zygote_forks_total", "Steps that were forked from a zygote.")
_zygote_ends = metrics.counter(
    "toban_executor_zygote_ends_total",
    "Zygotes that ended, by reason: idle, memory, forks, code (files changed), failed (imports), replaced, silent, threads (left by a fork), killed.",
    ("reason",),
)


class GuardClient:
    """One slot for each socket of the set. Not thread-safe: use it on the loop's thread."""

    def __init__(self, *, guards: GuardSet, clock: Clock) -> None:
        self._guards = guards
        self._clock = clock
        self._enforcer = LeaseEnforcer(guards)
        self._free = list(range(len(guards.slots)))
        self._busy: dict[int, StartOrder] = {}
        self._slot_of: dict[AttemptKey, int] = {}
        # When the first process of each attempt that has been running for a moment began, in clock ticks since boot.
        self._begun: dict[AttemptKey, int] = {}
        # Keys of the zygotes of slots that have some.
        self._zygotes: dict[int, tuple[str, ...]] = {}
        self._listener: GuardListener | None = None
        self._hold = False
        self._receive_buffer = ReceiveBuffer()
        # What each slot was sent last; it differs from `_hold` while a message could not be sent.
        self._held = [False] * len(guards.slots)
        # Number of the last report of each slot that is on disk, and bytes received since the slot's last acknowledgement.
        self._acked = [0] * len(guards.slots)
        self._unacked_bytes = [0] * len(guards.slots)
        # Number of the last report of slots that have sent more than is on disk.
        self._received: dict[int, int] = {}

    def listen(self, listener: GuardListener) -> None:
        """Begin to read the reports of the guards."""
        self._listener = listener
        loop = asyncio.get_running_loop()
        for slot, sock in enumerate(self._guards.slots):
            sock.setblocking(False)
            loop.add_reader(sock.fileno(), self._read, slot)
        # The guard supervisor alone has the other end.
        loop.add_reader(self._guards.control.fileno(), self._supervisor_gone)

    def stop_reading(self) -> None:
        """Read no more reports; the guards keep them for the next incarnation."""
        loop = asyncio.get_running_loop()
        for sock in [*self._guards.slots, self._guards.control]:
            loop.remove_reader(sock.fileno())

    async def close(self, timeout: float) -> bool:
        """Close the sockets; True when the guards have ended in order within `timeout` seconds, which proves that no job is left."""
        self.stop_reading()
        for slot in range(len(self._guards.slots)):
            self._acknowledge(slot)
        self._guards.close()
        until = self._clock.boottime() + timeout
        while self._guards.supervisor.poll() is None:
            if self._clock.boottime() > until:
                return False
            await self._clock.sleep(0.005)
        # A guard supervisor that crashed has not seen its children end.
        return self._guards.supervisor.returncode == 0

    async def measure(self) -> dict[AttemptKey, Measured]:
        """What the processes of the attempts use that have been running for a moment. It reads /proc in a thread."""
        begun = {key: (self._slot_of[key], since) for key, since in self._begun.items()}
        if not begun:
            return {}

        def look() -> dict[AttemptKey, Measured]:
            supervisors = self._enforcer.supervisors()
            # What is older than the attempt belongs to the slot: its sandbox and its zygotes.
            return {key: usage(supervisors[slot], since) for key, (slot, since) in begun.items() if slot in supervisors}

        found = await asyncio.to_thread(look)
        return {key: measured for key, measured in found.items() if key in self._begun}

    # ---- commands

    def spawn(
        self,
        order: StartOrder,
        *,
        env: Mapping[str, str],
        programs: Sequence[str],
        deadline: Instant,
        lease_grace: float,
        freeze_max: float,
    ) -> None:
        """Give an attempt to a free slot; what cannot be sent ends at once with the reason."""
        # The keys of zygotes are digests: not made where no slot has one.
        slot = choose_slot(self._free, self._zygotes, wanted_keys(order, env) if self._zygotes else [])
        self._free.remove(slot)
        self._busy[slot], self._slot_of[order.key] = order, slot
        command = Spawn(
            order=order,
            programs=programs,
            env=env,
            deadline=deadline,
            lease_grace=lease_grace,
            freeze_max=freeze_max,
        )
        data = self._encode(slot, command)
        if len(data) > MAX_MESSAGE:
            self._end_unstarted(slot, f"argv, environment, payload and secrets together exceed {MAX_MESSAGE} bytes")
        elif not self._send(slot, data):
            self._end_unstarted(slot, "the guard of the slot does not take orders")

    def push_deadline(
        self,
        deadline: Instant,
        *,
        thaw: Collection[AttemptKey],
        frozen_seconds: Mapping[AttemptKey, float],
        freeze_max: float,
    ) -> None:
        """Send every busy guard the time until which it may let its job run; of frozen jobs only those in `thaw` go on."""
        for slot, order in self._busy.items():
            key = order.key
            command = SetDeadline(
                token=key.token,
                deadline=deadline,
                thaw=key in thaw,
                freeze_max=freeze_max,
                frozen_seconds=frozen_seconds.get(key, 0.0),
            )
            self._command(slot, command)
            if key in thaw and self._enforcer.thaw(slot):
                self._turned(key, frozen=False)

    def kill(
        self, key: AttemptKey, *, cause: str, reason: str, grace: float | None, at_most: float = math.inf
    ) -> float | None:
        """SIGTERM now, SIGKILL after `grace` seconds (None = the order's own, `at_most` so many), for the whole tree.

        The seconds that it has; None when no slot has the attempt.
        """
        slot = self._slot_of.get(key)
        if slot is None:
            return None
        seconds = min(self._busy[slot].grace_seconds if grace is None else grace, at_most)
        self._command(slot, Kill(token=key.token, cause=cause, reason=reason, grace=seconds))
        return seconds

    def cancel(self, order: CancelOrder) -> bool:
        """Begin to cancel the attempt, as the order has it; False when no slot has it."""
        slot = self._slot_of.get(order.key)
        if slot is None:
            return False
        command = Cancel(
            token=order.key.token,
            reason=order.reason or "canceled",
            grace=order.grace_seconds,
            cooperative=order.mode == "cooperative",
            force=order.force,
        )
        self._command(slot, command)
        return True

    def checkpoint_stored(self, key: AttemptKey, number: int, problem: str) -> None:
        """Answer the job whose checkpoint is committed, or cannot be, which `problem` says."""
        slot = self._slot_of.get(key)
        if slot is not None:
            self._command(slot, CheckpointStored(key.token, number, problem))

    def enforce_lease(
        self, *, late: float, frozen: Collection[AttemptKey], over: Collection[AttemptKey], doubtful: bool
    ) -> None:
        """The lease ended `late` seconds ago: do from this process what guards that are stopped themselves have not done.

        `frozen` are known to be frozen, `over` of them for too long. `doubtful`: only the wall clock says that it ended, so nothing is killed
        that can be frozen.
        """
        for slot, order in self._busy.items():
            key = order.key
            if order.on_lease_loss == "continue":
                continue
            if (order.on_lease_loss != "freeze" and not doubtful) or key in over:
                self._kill_at_lease_end(slot, key)
            elif key not in frozen or self._enforcer.has_frozen(slot):
                self._freeze(slot, key, late=late)

    def _freeze(self, slot: int, key: AttemptKey, *, late: float) -> None:
        verified = self._enforcer.freeze(slot)
        if verified or self._enforcer.has_stopped(slot):
            # Also when only a part of the tree is stopped: the next grant thaws nothing but attempts that heartbeats named as frozen.
            self._turned(key, frozen=True)
        if not verified and is_too_late(late, checks=self._enforcer.checks(slot)):
            self._kill_at_lease_end(slot, key)

    def _kill_at_lease_end(self, slot: int, key: AttemptKey) -> None:
        if not self._enforcer.has_killed(slot):
            # Before the signals: a guard that goes on then reads the cause before it collects the processes.
            self._command(slot, Kill(token=key.token, cause="lease", reason=LEASE_REASON, grace=0.0))
        self._enforcer.kill(slot)

    def _turned(self, key: AttemptKey, *, frozen: bool) -> None:
        assert self._listener is not None
        self._listener.freeze_turned(FreezeTurn(key=key, frozen=frozen, seconds=0.0, at_ns=self._now_ns()))

    def hold_output(self, hold: bool) -> None:
        """Make the guards leave the jobs' pipes alone, so that jobs wait in their writes, or read them again.

        Starts and ends are never held back. A guard that cannot be sent this now gets it with the next call.
        """
        self._hold = hold
        for slot, held in enumerate(self._held):
            if held != hold:
                self._send_hold(slot)

    def _send_hold(self, slot: int) -> None:
        with contextlib.suppress(OSError):
            self._guards.slots[slot].send(self._encode(slot, HoldOutput(self._hold)), socket.MSG_DONTWAIT)
            self._held[slot] = self._hold

    def _encode(self, slot: int, command: Command) -> bytes:
        return encode_command(command, incarnation=self._guards.incarnation, acked=self._acked[slot])

    def _command(self, slot: int, command: Command) -> bool:
        return self._send(slot, self._encode(slot, command))

    def _send(self, slot: int, data: bytes) -> bool:
        try:
            self._guards.slots[slot].send(data, socket.MSG_DONTWAIT)
        except OSError as error:
            _log.warning("could not send a command to the guard of a slot", slot=slot, error=str(error))
            return False
        self._unacked_bytes[slot] = 0
        return True

    def _end_unstarted(self, slot: int, reason: str) -> None:
        order = self._busy[slot]
        end = AttemptEnd(key=order.key, cause="spawn_failed", reason=reason, finished_ns=self._now_ns())
        asyncio.get_running_loop().call_soon(self._ended, slot, end)

    def _now_ns(self) -> int:
        return int(self._clock.wall().timestamp() * 1e9)

    def _ticks_at(self, at_ns: int) -> int:
        """A moment (Unix time) in clock ticks since boot, as `start_time`: for a first process that has ended before its start report is read."""
        return int((self._clock.boottime() - (self._now_ns() - at_ns) / 1e9) * TICKS)

    # ---- acknowledgements

    def ack_offsets(self) -> dict[str, int]:
        """Number of the last report of each guard that has sent more than is known to be on disk, by the guard's name."""
        return {name_of(self._guards.incarnation, slot): number for slot, number in self._received.items()}

    def ack(self, offsets: Mapping[str, int]) -> None:
        """Reports up to these numbers are on disk; `offsets` as `ack_offsets` returned them."""
        for slot, number in list(self._received.items()):
            offset = offsets.get(name_of(self._guards.incarnation, slot), 0)
            self._acked[slot] = max(self._acked[slot], offset)
            if offset >= number:
                del self._received[slot]
            if self._unacked_bytes[slot] > _ACK_BYTES:
                self._acknowledge(slot)

    def _acknowledge(self, slot: int) -> None:
        with contextlib.suppress(OSError):
            self._guards.slots[slot].send(self._encode(slot, Acknowledge()), socket.MSG_DONTWAIT)
            self._unacked_bytes[slot] = 0

    # ---- reports

    def _read(self, slot: int) -> None:
        for _ in range(_READS_A_TURN):
            try:
                data = self._receive_buffer.receive(self._guards.slots[slot])
            except (BlockingIOError, InterruptedError):
                return
            except OSError:
                data = b""
            if not data:
                self._disconnected(slot)
                return
            self._unacked_bytes[slot] += len(data)
            report = decode_report(data)
            self._dispatch(slot, report)
            if isinstance(report, AttemptEnd):
                # Nothing follows it at once, as a rule; the loop shows what does.
                return

    def _dispatch(self, slot: int, report: Report) -> None:
        assert self._listener is not None
        if isinstance(report, SlotLost):
            self._lost(slot, report.losses)
            return
        if isinstance(report, FreezeTurn):
            # Not numbered: no later incarnation needs it.
            self._listener.freeze_turned(report)
            return
        if isinstance(report, WarmNote):
            self._note_zygotes(slot, report)
            return
        if isinstance(report, JobNote):
            if report.key in self._slot_of:
                self._listener.noted(report)
            return
        self._received[slot] = self._received.get(slot, self._acked[slot]) + 1
        order = self._busy.get(slot)
        if order is None:
            return
        if isinstance(report, LogBlock):
            self._listener.output(order.key, report)
        elif report.key.token != order.key.token:
            return
        elif isinstance(report, AttemptStart):
            self._begun[order.key] = start_time(report.pid) or self._ticks_at(report.started_ns)
            self._listener.started(order.key, report.pid, report.started_ns)
        elif isinstance(report, ProcessesUnreachable):
            self._listener.unreachable(order.key, report.processes)
        else:
            self._ended(slot, report)

    def _note_zygotes(self, slot: int, note: WarmNote) -> None:
        self._zygotes.pop(slot, None)
        if note.keys:
            self._zygotes[slot] = note.keys
        _zygotes.set(sum(map(len, self._zygotes.values())))
        _forks.inc(note.forks)
        for reason, count in note.ended.items():
            _zygote_ends.labels(reason).inc(count)

    def _ended(self, slot: int, end: AttemptEnd) -> None:
        assert self._listener is not None
        self._busy.pop(slot, None)
        self._slot_of.pop(end.key, None)
        self._begun.pop(end.key, None)
        if self._enforcer.has_killed(slot):
            end = killed_at_lease_end(end)
        self._enforcer.forget(slot)
        self._free.append(slot)
        self._listener.ended(end)

    def _lost(self, slot: int, losses: int) -> None:
        """The slot supervisor died and its tree was killed. Its successor obeys what is sent after this answer."""
        _restarts.inc()
        _log.error("slot supervisor died and was replaced; its job was killed", slot=slot)
        # As the successor numbers its reports.
        self._received[slot] = losses << 32
        self._note_zygotes(slot, WarmNote())
        if not self._command(slot, Reset(losses)):
            self._disconnected(slot)
        self._held[slot] = False
        if self._hold:
            self._send_hold(slot)
        order = self._busy.get(slot)
        if order is not None:
            reason = "the guard of the slot died"
            self._ended(slot, AttemptEnd(key=order.key, cause="guard_lost", reason=reason, finished_ns=self._now_ns()))

    def _supervisor_gone(self) -> None:
        asyncio.get_running_loop().remove_reader(self._guards.control.fileno())
        assert self._listener is not None
        self._listener.supervisor_gone()

    def _disconnected(self, slot: int) -> None:
        _log.error("slot supervisor ended without a successor; this incarnation is over", slot=slot)
        asyncio.get_running_loop().remove_reader(self._guards.slots[slot].fileno())
        assert self._listener is not None
        # First: whatever happens to the jobs, this incarnation is over.
        self._listener.guards_gone()
        # At once: until the next incarnation ends what is left, the lease may run out and the runs start elsewhere.
        self._enforcer.kill_abandoned()
