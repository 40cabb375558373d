"""Entry of the guard: ``python -m toban_executor.guard INCARNATION STATE_DIR CONTROL_FD SLOT_FD,…``."""

import os
import socket
import sys
from pathlib import Path

from toban_executor.guard.master import Master


def main() -> None:
    """Run the master with the descriptors that `launch` has passed."""
    incarnation, state_dir, control, slots = sys.argv[1:5]
    for fd in (control, *slots.split(",")):
        # They came through an exec; no job may have them.
        os.set_inheritable(int(fd), False)
    Master(
        incarnation=incarnation,
        state_dir=Path(state_dir),
        control=int(control),
        slots=[socket.socket(fileno=int(fd)) for fd in slots.split(",")],
    ).run()


if __name__ == "__main__":
    main()
