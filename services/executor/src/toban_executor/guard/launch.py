"""Starts the guards from the executor. Must run before gRPC is imported anywhere in the process."""

import socket
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from toban_executor.guard.wire import socket_pair


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardSet:
    """The executor's ends: one socket a slot, the control socket, the master process."""

    incarnation: str
    master: subprocess.Popen[bytes]
    control: socket.socket
    slots: list[socket.socket]

    def close(self) -> None:
        """Let go of the guards: they kill what runs, testify and end."""
        for sock in [*self.slots, self.control]:
            sock.close()


def start_guards(*, incarnation: str, state_dir: Path, slots: int) -> GuardSet:
    """Start the master with one keeper a slot and wait until they are there.

    Raises RuntimeError when the guard does not come up (its own words are on stderr).
    """
    control, control_far = socket.socketpair()
    pairs = [socket_pair() for _ in range(slots)]
    fds = [far.fileno() for _, far in pairs]
    arguments = [incarnation, str(state_dir), str(control_far.fileno()), ",".join(map(str, fds))]
    master = subprocess.Popen(
        [sys.executable, "-m", "toban_executor.guard", *arguments],
        pass_fds=[control_far.fileno(), *fds],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        start_new_session=True,
    )
    control_far.close()
    for _, far in pairs:
        far.close()
    control.settimeout(20)
    if control.recv(1) != b"r":
        raise RuntimeError("the guard process ended while it started")
    control.setblocking(False)
    return GuardSet(incarnation=incarnation, master=master, control=control, slots=[near for near, _ in pairs])
