"""The executor's side of its guards: orders out, what they say in, on the event loop."""

import asyncio
import contextlib
import os
import signal
import socket
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from toban_domain.outcome import AttemptKey
from toban_executor.decide.blocks import LogBlock
from toban_executor.decide.lease import Instant
from toban_executor.decide.messages import AttemptEnd, StartOrder
from toban_executor.guard.launch import GuardSet
from toban_executor.guard.tree import children, descendants
from toban_executor.guard.wire import MAX_MESSAGE, decode, encode
from toban_executor.ports import Block, GuardListener
from toban_observability import metrics
from toban_observability.logs import get_logger
from toban_runtime.clock import Clock

_READS_A_TURN = 64

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

    def listen(self, listener: GuardListener) -> None:
        """Begin to hear the guards."""
        self._listener = listener
        loop = asyncio.get_running_loop()
        for slot, sock in enumerate(self._guards.slots):
            sock.setblocking(False)
            loop.add_reader(sock.fileno(), self._read, slot)

    async def close(self, patience: float) -> bool:
        """Let the guards go; True when they have ended in order within `patience` seconds, which proves that no job is left."""
        loop = asyncio.get_running_loop()
        for sock in self._guards.slots:
            loop.remove_reader(sock.fileno())
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
        data = encode(self._spawn_message(order, env, programs, deadline, lease_grace))
        if len(data) > MAX_MESSAGE:
            self._end_unstarted(slot, f"argv, environment and payload together exceed {MAX_MESSAGE} bytes")
        elif not self._send(slot, data):
            self._end_unstarted(slot, "the guard of the slot does not take orders")

    def push_deadline(self, deadline: Instant) -> None:
        """Tell every busy guard until when it may let its job run."""
        for slot, order in self._busy.items():
            message = {"t": "lease", "token": order.key.token, "boot": deadline.boot, "wall": deadline.wall}
            self._send(slot, encode(self._named(message)))

    def kill(self, key: AttemptKey, *, cause: str, reason: str, grace: float | None) -> bool:
        """SIGTERM now, SIGKILL after `grace` seconds (None = the order's own), for the whole tree. False when no slot has the attempt."""
        slot = self._slot_of.get(key)
        if slot is None:
            return False
        seconds = self._busy[slot].grace_seconds if grace is None else grace
        message = {"t": "kill", "token": key.token, "cause": cause, "reason": reason, "grace": seconds}
        self._send(slot, encode(self._named(message)))
        return True

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
        data = encode(self._named({"t": "hold", "on": self._hold}))
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
        return self._named(message | {"boot": deadline.boot, "wall": deadline.wall})

    def _named(self, message: dict[str, Any]) -> dict[str, Any]:
        return message | {"inc": self._guards.incarnation}

    def _send(self, slot: int, data: bytes) -> bool:
        try:
            self._guards.slots[slot].send(data, socket.MSG_DONTWAIT)
        except OSError as error:
            _log.warning("guard does not take a message", slot=slot, error=str(error))
            return False
        return True

    def _end_unstarted(self, slot: int, reason: str) -> None:
        order = self._busy[slot]
        now_ns = int(self._clock.wall().timestamp() * 1e9)
        end = AttemptEnd(key=order.key, cause="spawn_failed", reason=reason, finished_ns=now_ns)
        asyncio.get_running_loop().call_soon(self._ended, slot, end)

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
            self._hear(slot, decode(data))

    def _hear(self, slot: int, message: dict[str, Any] | LogBlock) -> None:
        assert self._listener is not None
        order = self._busy.get(slot)
        if isinstance(message, LogBlock):
            if order is not None:
                fields = (message.stream, message.partial, message.at_ns, message.seq_from, message.count, message.text)
                self._listener.output(order.key, Block(*fields))
        elif message["t"] == "lost":
            self._lost(slot, int(message["losses"]))
        elif order is not None and int(message["token"]) == order.key.token:
            if message["t"] == "started":
                self._listener.started(order.key, int(message["pid"]), int(message["at_ns"]))
            else:
                self._ended(slot, _end(order, message))

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
        if not self._send(slot, encode(self._named({"t": "reset", "losses": losses}))):
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


def _end(order: StartOrder, message: dict[str, Any]) -> AttemptEnd:
    return AttemptEnd(
        key=order.key,
        cause=message["cause"],
        reason=message["reason"],
        exit_code=message["exit"],
        signal=message["signal"],
        step=message["step"],
        steps=len(order.steps),
        started_ns=message["started_ns"] if message["pid"] else 0,
        finished_ns=message["finished_ns"],
        last_seq=message["last_seq"],
        last_line=message["last_line"],
        redacted=message["logs"]["redacted"],
        left_out={reason: (lines, size) for reason, (lines, size) in message["logs"]["left"].items()},
    )
