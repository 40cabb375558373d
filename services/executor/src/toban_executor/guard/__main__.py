"""Entry of the guard: ``python -m toban_executor.guard INCARNATION STATE_DIR JOB_FILES WARM SANDBOXES UIDS FDS``, where FDS
are those of the control socket, of the credentials, of each slot, and of the claim of each uid."""

import os
import socket
import sys
from pathlib import Path

from toban_executor.decide.isolation import SandboxPlan
from toban_executor.decide.warm import WarmLimits
from toban_executor.guard.guard_supervisor import GuardSupervisor


def main() -> None:
    """Run the guard supervisor with the descriptors that `launch` has passed."""
    incarnation, state_dir, job_files, warm, sandboxes, uids, fds = sys.argv[1:8]
    claimed = tuple(map(int, filter(None, uids.split(","))))
    control, credentials, *others = passed = [int(fd) for fd in fds.split(",")]
    slots = others[: len(others) - len(claimed)]
    for fd in passed:
        # They came through an exec; no job may have them.
        os.set_inheritable(fd, False)
    GuardSupervisor(
        incarnation=incarnation,
        state_dir=Path(state_dir),
        control=control,
        credentials=credentials,
        slots=[socket.socket(fileno=fd) for fd in slots],
        job_files=int(job_files),
        warm=WarmLimits.decode(warm),
        sandboxes=SandboxPlan.decode(sandboxes),
        uids=claimed,
    ).run()


if __name__ == "__main__":
    main()
