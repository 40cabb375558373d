"""Starts the guards from the executor. Must run before gRPC is imported anywhere in the process."""

import contextlib
import os
import socket
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

from toban_executor.decide.isolation import SandboxPlan
from toban_executor.decide.warm import WarmLimits
from toban_executor.guard import witness
from toban_executor.guard.protocol import socket_pair
from toban_executor.guard.uid_claims import Claims, claim
from toban_runtime.open_files import open_files

START_SECONDS = 20.0


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardSet:
    """The executor's ends: one socket a slot, the control socket, the process of the guard supervisor.

    `credentials` is the descriptor for a witness (guard/witness.py), empty until the executor fills it. `claims` are the uids of the slots in class
    `isolated`: the executor holds them, too, so that they are its own when it has to end what dead guards have left.
    """

    incarnation: str
    supervisor: subprocess.Popen[bytes]
    control: socket.socket
    slots: list[socket.socket]
    credentials: int
    claims: Claims = field(default_factory=Claims)

    def close(self) -> None:
        """Close the sockets in order: the guards kill what runs, record that nothing is left, and end without a witness."""
        with contextlib.suppress(OSError):  # They have ended.
            self.control.send(witness.STOPPED_IN_ORDER)
        for sock in [*self.slots, self.control]:
            sock.close()
        self.claims.close()


def start_guards(
    *,
    incarnation: str,
    state_dir: Path,
    slots: int,
    job_files: int = 0,
    warm: WarmLimits | None = None,
    sandboxes: SandboxPlan | None = None,
) -> GuardSet:
    """Start the guard supervisor with one process a slot and wait until they are there.

    `warm` are the limits of zygotes. With `sandboxes` jobs are of class `isolated`.
    Jobs may have `job_files` files open (0 = as many as this process).
    Raises RuntimeError when the guard does not come up (its error is on stderr) or the range of uids is too small,
    OSError when this machine has not enough for it. Nothing of it is left then.
    """
    with contextlib.ExitStack() as undo:
        control, control_far = (undo.enter_context(end) for end in socket.socketpair())
        near, far = [], []
        for _ in range(slots):
            ends = socket_pair()
            near.append(undo.enter_context(ends[0]))
            far.append(undo.enter_context(ends[1]))
        claims = claim(sandboxes.uids, slots) if sandboxes is not None and sandboxes.uids else Claims()
        undo.callback(claims.close)
        credentials = witness.make_descriptor()
        undo.callback(os.close, credentials)
        fds = [control_far.fileno(), credentials, *(end.fileno() for end in far), *claims.locks]
        files = str(job_files or open_files())
        kept = [(warm or WarmLimits()).encode(), sandboxes.encode() if sandboxes is not None else ""]
        kept += [",".join(map(str, numbers)) for numbers in (claims.uids, fds)]
        arguments = [incarnation, str(state_dir), files, *kept]
        supervisor = subprocess.Popen(
            [sys.executable, "-m", "toban_executor.guard", *arguments],
            pass_fds=fds,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            start_new_session=True,
        )
        undo.callback(_end, supervisor)
        for end in (control_far, *far):
            end.close()
        control.settimeout(START_SECONDS)
        if control.recv(1) != b"r":
            raise RuntimeError("the guard process ended while it started")
        control.setblocking(False)
        undo.pop_all()
    return GuardSet(
        incarnation=incarnation,
        supervisor=supervisor,
        control=control,
        slots=near,
        credentials=credentials,
        claims=claims,
    )


def _end(supervisor: subprocess.Popen[bytes]) -> None:
    # Its children end by themselves when the sockets are closed; no job was started.
    supervisor.kill()
    supervisor.wait()
