"""Messages between the executor and its guards, over SOCK_SEQPACKET socket pairs.

The kernel keeps message boundaries, so there is no framing and a process that is killed never leaves half a message. Commands are marshalled: both
ends run the same files by the same interpreter, and a command never outlives them. Reports are kept in files (message_spool) that another release may
read, so their form stays: the first byte names the kind, ``J`` a JSON object, ``L`` a block of output lines.
"""

import json
import marshal
import mmap
import socket
import struct
from collections.abc import Callable, Mapping
from typing import Any

from toban_domain.log_block import LogBlock
from toban_domain.outcome import AttemptKey, ErrorLine
from toban_domain.secret import SecretFile
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
    Received,
    Reset,
    SetDeadline,
    SlotLost,
    Spawn,
)
from toban_executor.decide.models import AttemptEnd, LogRules, StartOrder, StepEnd, StepOrder
from toban_executor.decide.warm import WarmNote
from toban_fencing.executor_lease import Instant

MAX_MESSAGE = 320 * 1024
"""Bytes. An order whose message is larger is refused; a payload and a checkpoint of 32 KiB each, in any script, take at most half of it."""

Report = AttemptStart | AttemptEnd | FreezeTurn | JobNote | ProcessesUnreachable | SlotLost | WarmNote | LogBlock
"""What a guard sends."""

_ENCODER = json.JSONEncoder(separators=(",", ":"))
# json.loads takes twice as long for a short message.
_DECODER = json.JSONDecoder()
_BUFFER = 1 << 20
_LARGEST_RECEIVED = 1 << 19
# Jobs run as the same user and may have written a file of them; a power failure leaves any content.
UNREADABLE = (ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RecursionError, struct.error)
"""What `decode_report` raises for anything but a report."""
BLOCK_KIND = b"L"
"""First byte of a block of output lines."""
_BLOCK = struct.Struct("<cB?qqI")


def socket_pair() -> tuple[socket.socket, socket.socket]:
    """A connected pair with large buffers; neither end survives an exec unless passed on purpose."""
    pair = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    for end in pair:
        end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _BUFFER)
    return pair


class ReceiveBuffer:
    """Where messages are received. `socket.recv` would map memory for the largest message, and unmap it again, for each one; only the pages
    that a message has touched cost memory."""

    def __init__(self) -> None:
        self._memory = memoryview(mmap.mmap(-1, _LARGEST_RECEIVED))

    def receive(self, sock: socket.socket) -> bytes:
        """The next message, b"" when the other end is closed. Raises what `socket.recv` raises."""
        return bytes(self._memory[: sock.recv_into(self._memory)])


# ---- executor to guard


def encode_command(command: Command, *, incarnation: str, acked: int) -> bytes:
    """A command for the guards of `incarnation`; their reports up to number `acked` are on disk."""
    fields: tuple[Any, ...]
    match command:
        case Spawn():
            kind, fields = "spawn", _spawn_fields(command)
        case SetDeadline(token=token, deadline=deadline):
            times = (command.freeze_max, command.frozen_seconds)
            kind, fields = "deadline", (token, deadline.boot, deadline.wall, command.thaw, *times)
        case Kill(token=token, cause=cause, reason=reason, grace=grace):
            kind, fields = "kill", (token, cause, reason, grace)
        case Cancel(token=token, reason=reason, grace=grace):
            kind, fields = "cancel", (token, reason, grace, command.cooperative, command.force)
        case CheckpointStored(token=token, number=number, problem=problem):
            kind, fields = "checkpoint", (token, number, problem)
        case HoldOutput(on=on):
            kind, fields = "hold", (on,)
        case Reset(losses=losses):
            kind, fields = "reset", (losses,)
        case Acknowledge():
            kind, fields = "ack", ()
    return marshal.dumps((incarnation, acked, kind, fields))


def decode_command(data: bytes) -> Received:
    """The inverse of encode_command."""
    incarnation, acked, kind, fields = marshal.loads(data)
    return Received(incarnation, acked, _COMMANDS[kind](*fields))


def _spawn_fields(spawn: Spawn) -> tuple[Any, ...]:
    order, deadline = spawn.order, spawn.deadline
    return (
        tuple(order.key),
        [tuple(step) for step in order.steps],
        order.payload_json,
        order.timeout_seconds,
        order.grace_seconds,
        order.working_dir,
        order.ticket,
        tuple(order.logs),
        tuple(spawn.programs),
        dict(spawn.env),
        (deadline.boot, deadline.wall),
        spawn.lease_grace,
        order.on_lease_loss,
        spawn.freeze_max,
        order.checkpoint_json,
        order.first_step,
        order.result_expected,
        [(secret.file, secret.file_env, secret.value) for secret in order.secrets],
    )


def _spawn(
    key: tuple[int, int],
    steps: list[tuple[Any, ...]],
    payload_json: str,
    timeout_seconds: int,
    grace_seconds: float,
    working_dir: str,
    ticket: bytes,
    logs: tuple[Any, ...],
    programs: tuple[str, ...],
    env: dict[str, str],
    deadline: tuple[float, float],
    lease_grace: float,
    on_lease_loss: str,
    freeze_max: float,
    checkpoint_json: str,
    first_step: int,
    result_expected: bool,
    secrets: list[tuple[str, str, bytes]],
) -> Spawn:
    order = StartOrder(
        key=AttemptKey._make(key),
        steps=tuple([StepOrder._make(step) for step in steps]),
        payload_json=payload_json,
        timeout_seconds=timeout_seconds,
        grace_seconds=grace_seconds,
        working_dir=working_dir,
        ticket=ticket,
        logs=LogRules._make(logs),
        on_lease_loss=on_lease_loss,
        checkpoint_json=checkpoint_json,
        first_step=first_step,
        result_expected=result_expected,
        secrets=tuple([SecretFile(file=file, file_env=variable, value=value) for file, variable, value in secrets]),
    )
    return Spawn(
        order=order,
        programs=programs,
        env=env,
        deadline=Instant(*deadline),
        lease_grace=lease_grace,
        freeze_max=freeze_max,
    )


def _set_deadline(
    token: int, boot: float, wall: float, thaw: bool, freeze_max: float, frozen_seconds: float
) -> SetDeadline:
    deadline = Instant(boot, wall)
    return SetDeadline(token=token, deadline=deadline, thaw=thaw, freeze_max=freeze_max, frozen_seconds=frozen_seconds)


def _kill(token: int, cause: str, reason: str, grace: float) -> Kill:
    return Kill(token=token, cause=cause, reason=reason, grace=grace)


def _cancel(token: int, reason: str, grace: float, cooperative: bool, force: bool) -> Cancel:
    return Cancel(token=token, reason=reason, grace=grace, cooperative=cooperative, force=force)


_COMMANDS: Mapping[str, Callable[..., Command]] = {
    "spawn": _spawn,
    "deadline": _set_deadline,
    "kill": _kill,
    "cancel": _cancel,
    "checkpoint": CheckpointStored,
    "hold": HoldOutput,
    "reset": Reset,
    "ack": Acknowledge,
}


# ---- guard to executor


def encode_report(
    report: AttemptStart | AttemptEnd | FreezeTurn | JobNote | ProcessesUnreachable | SlotLost | WarmNote,
) -> bytes:
    """One report; blocks of output have their own form."""
    match report:
        case AttemptEnd():
            return _json(_end_fields(report))
        case AttemptStart(key=key, pid=pid, started_ns=at_ns):
            return _json({"t": "started", "run": key.run_id, "token": key.token, "pid": pid, "at_ns": at_ns})
        case FreezeTurn(key=key, frozen=frozen, seconds=seconds, at_ns=at_ns):
            turn = {"frozen": frozen, "seconds": seconds, "at_ns": at_ns}
            return _json({"t": "freeze", "run": key.run_id, "token": key.token, **turn})
        case JobNote(key=key, kind=kind, text=text, number=number):
            note = {"kind": kind, "text": text, "n": number}
            return _json({"t": "note", "run": key.run_id, "token": key.token, **note})
        case ProcessesUnreachable(key=key, processes=processes):
            return _json({"t": "unreachable", "run": key.run_id, "token": key.token, "processes": processes})
        case SlotLost(slot=slot, losses=losses):
            return _json({"t": "lost", "slot": slot, "losses": losses})
        case WarmNote(keys=keys, forks=forks, ended=ended):
            return _json({"t": "warm", "keys": keys, "forks": forks, "ended": dict(ended)})


def encode_block(block: LogBlock) -> bytes:
    """One block of output lines."""
    *fields, text = block
    return _BLOCK.pack(BLOCK_KIND, *fields) + text


def decode_report(data: bytes) -> Report:
    """The inverse of encode_report and encode_block. Raises one of UNREADABLE for anything else."""
    if data[:1] == BLOCK_KIND:
        _, *fields = _BLOCK.unpack_from(data)
        return LogBlock._make((*fields, data[_BLOCK.size :]))
    body = _DECODER.decode(data[1:].decode())
    match body["t"]:
        case "end":
            return _end(body)
        case "started":
            return AttemptStart(key=_key(body), pid=int(body["pid"]), started_ns=int(body["at_ns"]))
        case "freeze":
            at_ns = int(body["at_ns"])
            return FreezeTurn(key=_key(body), frozen=bool(body["frozen"]), seconds=body["seconds"], at_ns=at_ns)
        case "note":
            return JobNote(key=_key(body), kind=body["kind"], text=body["text"], number=body["n"])
        case "unreachable":
            return ProcessesUnreachable(key=_key(body), processes=int(body["processes"]))
        case "lost":
            return SlotLost(slot=int(body["slot"]), losses=int(body["losses"]))
        case "warm":
            return WarmNote(keys=tuple(body["keys"]), forks=int(body["forks"]), ended=body["ended"])
        case kind:
            raise ValueError(f"unknown report {kind!r}")


def _end_fields(end: AttemptEnd) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "t": "end",
        "run": end.key.run_id,
        "token": end.key.token,
        "pid": end.pid,
        "cause": end.cause,
        "reason": end.reason,
        "exit": end.exit_code,
        "signal": end.signal,
        "step": end.step,
        "steps": end.steps,
        "started_ns": end.started_ns,
        "finished_ns": end.finished_ns,
        "last_seq": end.last_seq,
        "last_line": end.last_line,
        "logs": {"redacted": end.redacted, "left": dict(end.left_out)},
    }
    if end.result_json or end.log_ref or end.step_ends or end.result_expected:
        job = {"result": end.result_json, "log_ref": end.log_ref, "steps": end.step_ends}
        fields["job"] = {**job, "expected": end.result_expected}
    if end.error_lines:
        fields["errors"] = end.error_lines
    return fields


def _end(body: Mapping[str, Any]) -> AttemptEnd:
    # Earlier releases name nothing of the job's own.
    job = body.get("job", {})
    return AttemptEnd(
        key=_key(body),
        pid=body["pid"],
        cause=body["cause"],
        reason=body["reason"],
        exit_code=body["exit"],
        signal=body["signal"],
        step=body["step"],
        steps=body["steps"],
        # Earlier releases named a time for attempts without a process too.
        started_ns=body["started_ns"] if body["pid"] else 0,
        finished_ns=body["finished_ns"],
        last_seq=body["last_seq"],
        last_line=body["last_line"],
        redacted=body["logs"]["redacted"],
        left_out={reason: (lines, size) for reason, (lines, size) in body["logs"]["left"].items()},
        result_json=job.get("result", ""),
        log_ref=job.get("log_ref", ""),
        result_expected=job.get("expected", False),
        step_ends=tuple(StepEnd._make(step) for step in job.get("steps", ())),
        error_lines=tuple(ErrorLine._make(line) for line in body.get("errors", ())),
    )


def _key(body: Mapping[str, Any]) -> AttemptKey:
    return AttemptKey(int(body["run"]), int(body["token"]))


def _json(body: Mapping[str, Any]) -> bytes:
    return b"J" + _ENCODER.encode(body).encode()
