"""The executor's side of its guards: orders out, what they say in, on the event loop."""

import asyncio
import base64
import contextlib
import math
import os
import signal
import socket
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from toban_domain.outcome import AttemptKey
from toban_executor.decide.log_block import LogBlock
from toban_executor.decide.models import AttemptEnd, StartOrder
from toban_executor.guard.launch import GuardSet
from toban_executor.guard.left import name_of
from toban_executor.guard.tree import children, descendants
from toban_executor.guard.wire import MAX_MESSAGE, decode, encode
from toban_executor.ports import Block, GuardListener
from toban_fencing.executor_lease import Instant
from toban_observability import metrics
from toban_observability.logs import get_logger
from toban_runtime.clock import Clock

_READS_A_TURN = 64
_TELL_BYTES = 64 * 1024
"""A guard hears with its next order how far its words are on disk; after so many bytes of them, with the next write to disk. So what it keeps is
that, and what the executor has taken and not written yet."""

_log = get_logger(__name__)
_restarts = metrics.counter("toban_executor_guard_restarts_total", "Keepers that died and were replaced.")


class GuardClient:
    """One slot for each socket of the set. Not thread-safe: use it on the loop's thread."""

    def __init__(self, *, guards: GuardSet, clock: Clock) -> None:
        self._guards = guards
        self._clock = clock
        self._free = list(range(len(guards.slots)))
        self._busy: dict[int, StartOrder] = {}
        self._slot_of: dict[AttemptKey, int] = {}
        self._listener: GuardListener | None = None
        self._hold = False
        # What each keeper has been told; it differs from `_hold` while a message could not be sent.
        self._held = [False] * len(guards.slots)
        # Number of the last message of each keeper that is on disk, and bytes heard since the keeper was told.
        self._stored = [0] * len(guards.slots)
        self._untold = [0] * len(guards.slots)
        # Number of the last message of slots that have said more than is on disk.
        self._heard: dict[int, int] = {}

    def listen(self, listener: GuardListener) -> None:
        """Begin to hear the guards."""
        self._listener = listener
        loop = asyncio.get_running_loop()
        for slot, sock in enumerate(self._guards.slots):
            sock.setblocking(False)
            loop.add_reader(sock.fileno(), self._read, slot)

    def deafen(self) -> None:
        """Hear nothing more; the guards keep it for the next incarnation."""
        loop = asyncio.get_running_loop()
        for sock in self._guards.slots:
            loop.remove_reader(sock.fileno())

    async def close(self, patience: float) -> bool:
        """Let the guards go; True when they have ended in order within `patience` seconds, which proves that no job is left."""
        self.deafen()
        for slot in range(len(self._guards.slots)):
            self._tell_stored(slot)
        self._guards.close()
        until = self._clock.boottime() + patience
        while self._guards.master.poll() is None:
            if self._clock.boottime() > until:
                return False
            await self._clock.sleep(0.005)
        # A master that crashed has not seen its keepers end.
        return self._guards.master.returncode == 0

    # ---- orders

    def spawn(
        self,
        order: StartOrder,
        *,
        env: Mapping[str, str],
        programs: Sequence[str],
        deadline: Instant,
        lease_grace: float,
    ) -> None:
        """Hand an attempt to a free slot; what cannot be handed over ends at once with the reason."""
        slot = self._free.pop()
        self._busy[slot], self._slot_of[order.key] = order, slot
        message = self._spawn_message(order, env, programs, deadline, lease_grace)
        data = encode(self._named(slot, message))
        if len(data) > MAX_MESSAGE:
            self._end_unstarted(slot, f"argv, environment and payload together exceed {MAX_MESSAGE} bytes")
        elif not self._send(slot, data):
            self._end_unstarted(slot, "the guard of the slot does not take orders")

    def push_deadline(self, deadline: Instant) -> None:
        """Tell every busy guard until when it may let its job run."""
        for slot, order in self._busy.items():
            message = {"t": "lease", "token": order.key.token, "boot": deadline.boot, "wall": deadline.wall}
            self._send(slot, encode(self._named(slot, message)))

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
        message = {"t": "kill", "token": key.token, "cause": cause, "reason": reason, "grace": seconds}
        self._send(slot, encode(self._named(slot, message)))
        return seconds

    def kill_directly(self) -> None:
        """SIGKILL every job from this process, for guards that are stopped themselves."""
        for keeper in children(self._guards.master.pid):
            for member in descendants(keeper):
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(member, signal.SIGKILL)

    def hold_output(self, hold: bool) -> None:
        """Tell the guards to leave the jobs' pipes alone, so that jobs wait in their writes, or to go on.

        What they say themselves is heard all the time: starts and ends are never held back. A guard that cannot be told now is told with the
        next call.
        """
        self._hold = hold
        for slot, held in enumerate(self._held):
            if held != hold:
                self._tell_hold(slot)

    def _tell_hold(self, slot: int) -> None:
        data = encode(self._named(slot, {"t": "hold", "on": self._hold}))
        with contextlib.suppress(OSError):
            self._guards.slots[slot].send(data, socket.MSG_DONTWAIT)
            self._held[slot] = self._hold

    def _spawn_message(
        self,
        order: StartOrder,
        env: Mapping[str, str],
        programs: Sequence[str],
        deadline: Instant,
        lease_grace: float,
    ) -> dict[str, Any]:
        steps = [
            {"argv": list(step.argv), "program": program, "timeout": step.timeout_seconds}
            for step, program in zip(order.steps, programs, strict=True)
        ]
        message = {"t": "spawn", "run": order.key.run_id, "token": order.key.token, "steps": steps, "env": dict(env)}
        message |= {"cwd": order.working_dir, "payload": order.payload_json, "timeout": order.timeout_seconds}
        message |= {"grace": order.grace_seconds, "lease_grace": lease_grace, "logs": asdict(order.logs)}
        message |= {"ticket": base64.b64encode(order.ticket).decode()}
        return message | {"boot": deadline.boot, "wall": deadline.wall}

    def _named(self, slot: int, message: dict[str, Any]) -> dict[str, Any]:
        return message | {"inc": self._guards.incarnation, "stored": self._stored[slot]}

    def _send(self, slot: int, data: bytes) -> bool:
        try:
            self._guards.slots[slot].send(data, socket.MSG_DONTWAIT)
        except OSError as error:
            _log.warning("guard does not take a message", slot=slot, error=str(error))
            return False
        self._untold[slot] = 0
        return True

    def _end_unstarted(self, slot: int, reason: str) -> None:
        order = self._busy[slot]
        now_ns = int(self._clock.wall().timestamp() * 1e9)
        end = AttemptEnd(key=order.key, cause="spawn_failed", reason=reason, finished_ns=now_ns)
        asyncio.get_running_loop().call_soon(self._ended, slot, end)

    # ---- what of theirs is on disk

    def heard(self) -> dict[str, int]:
        """Number of the last message of each guard that has said more than is known to be on disk, by the guard's name."""
        return {name_of(self._guards.incarnation, slot): number for slot, number in self._heard.items()}

    def stored(self, marks: Mapping[str, int]) -> None:
        """Messages up to these are on disk, in the way of `heard`."""
        for slot, number in list(self._heard.items()):
            mark = marks.get(name_of(self._guards.incarnation, slot), 0)
            self._stored[slot] = max(self._stored[slot], mark)
            if mark >= number:
                del self._heard[slot]
            if self._untold[slot] > _TELL_BYTES:
                self._tell_stored(slot)

    def _tell_stored(self, slot: int) -> None:
        with contextlib.suppress(OSError):
            self._guards.slots[slot].send(encode(self._named(slot, {"t": "stored"})), socket.MSG_DONTWAIT)
            self._untold[slot] = 0

    # ---- what they say

    def _read(self, slot: int) -> None:
        for _ in range(_READS_A_TURN):
            try:
                data = self._guards.slots[slot].recv(1 << 18)
            except (BlockingIOError, InterruptedError):
                return
            except OSError:
                data = b""
            if not data:
                self._gone(slot)
                return
            self._untold[slot] += len(data)
            self._hear(slot, decode(data))

    def _hear(self, slot: int, message: dict[str, Any] | LogBlock) -> None:
        assert self._listener is not None
        order = self._busy.get(slot)
        if isinstance(message, LogBlock) or message["t"] != "lost":
            self._heard[slot] = self._heard.get(slot, self._stored[slot]) + 1
        if isinstance(message, LogBlock):
            if order is not None:
                self._listener.output(order.key, block_of(message))
        elif message["t"] == "lost":
            self._lost(slot, int(message["losses"]))
        elif order is not None and int(message["token"]) == order.key.token:
            if message["t"] == "started":
                self._listener.started(order.key, int(message["pid"]), int(message["at_ns"]))
            else:
                self._ended(slot, end_of(message))

    def _ended(self, slot: int, end: AttemptEnd) -> None:
        assert self._listener is not None
        self._busy.pop(slot, None)
        self._slot_of.pop(end.key, None)
        self._free.append(slot)
        self._listener.ended(end)

    def _lost(self, slot: int, losses: int) -> None:
        """The keeper died and the master has killed its tree. Its successor obeys what is sent after this answer."""
        _restarts.inc()
        _log.error("guard of a slot died and was replaced", slot=slot)
        # As the successor counts its messages.
        self._heard[slot] = losses << 32
        if not self._send(slot, encode(self._named(slot, {"t": "reset", "losses": losses}))):
            self._gone(slot)
        self._held[slot] = False
        if self._hold:
            self._tell_hold(slot)
        order = self._busy.get(slot)
        if order is not None:
            now_ns = int(self._clock.wall().timestamp() * 1e9)
            reason = "the guard of the slot died"
            self._ended(slot, AttemptEnd(key=order.key, cause="guard_lost", reason=reason, finished_ns=now_ns))

    def _gone(self, slot: int) -> None:
        _log.error("guards have ended", slot=slot)
        asyncio.get_running_loop().remove_reader(self._guards.slots[slot].fileno())
        assert self._listener is not None
        self._listener.guards_gone()


def block_of(said: LogBlock) -> Block:
    """Lines as a guard has said them."""
    return Block(said.stream, said.partial, said.at_ns, said.seq_from, said.count, said.text)


def end_of(message: Mapping[str, Any]) -> AttemptEnd:
    """What a guard's message of the end of an attempt says."""
    return AttemptEnd(
        key=AttemptKey(int(message["run"]), int(message["token"])),
        cause=message["cause"],
        reason=message["reason"],
        exit_code=message["exit"],
        signal=message["signal"],
        step=message["step"],
        steps=message["steps"],
        started_ns=message["started_ns"] if message["pid"] else 0,
        finished_ns=message["finished_ns"],
        last_seq=message["last_seq"],
        last_line=message["last_line"],
        redacted=message["logs"]["redacted"],
        left_out={reason: (lines, size) for reason, (lines, size) in message["logs"]["left"].items()},
    )
