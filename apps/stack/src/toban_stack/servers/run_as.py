"""Runs a program under another user id: PostgreSQL refuses to run as root.

Usage: python -I -S run_as.py namespace|drop UID GID PROGRAM [ARGUMENT...]

`namespace` maps the caller to UID in a user namespace of one id: files keep their owner, and no account is
needed. `drop` gives up root permanently, for machines that deny user namespaces. This file is run by its path,
because it must start quickly and replace itself by the program. Exit code 96: the kernel refused.
"""

import ctypes
import os
import sys
from pathlib import Path

CLONE_NEWUSER = 0x10000000
REFUSED = 96


def enter_namespace(uid: int, gid: int) -> None:
    """Moves this process into a new user namespace where it is uid:gid."""
    outer_uid, outer_gid = os.geteuid(), os.getegid()
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(CLONE_NEWUSER) != 0:
        raise OSError(ctypes.get_errno(), "unshare(CLONE_NEWUSER)")
    Path("/proc/self/setgroups").write_text("deny")
    Path("/proc/self/uid_map").write_text(f"{uid} {outer_uid} 1")
    Path("/proc/self/gid_map").write_text(f"{gid} {outer_gid} 1")


def drop(uid: int, gid: int) -> None:
    """Gives up root for uid:gid."""
    os.setgroups([])
    os.setgid(gid)
    os.setuid(uid)


def main(arguments: list[str]) -> None:
    """Changes the user id and becomes the program."""
    mode, uid, gid, program = arguments[0], int(arguments[1]), int(arguments[2]), arguments[3:]
    try:
        {"namespace": enter_namespace, "drop": drop}[mode](uid, gid)
    except OSError as error:
        sys.stderr.write(f"run_as {mode} {uid}:{gid}: {error}\n")
        raise SystemExit(REFUSED) from error
    os.execv(program[0], program)


if __name__ == "__main__":
    main(sys.argv[1:])
