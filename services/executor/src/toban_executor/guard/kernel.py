"""Calls of the kernel that Python 3.11 has no function for."""

import ctypes
import os
import struct
from pathlib import Path

CLONE_NEWNS = 0x00020000
CLONE_NEWIPC = 0x08000000
CLONE_NEWPID = 0x20000000
MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_REMOUNT = 1, 2, 4, 8, 32
MS_BIND, MS_REC, MS_SLAVE = 0x1000, 0x4000, 0x80000
PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_CAPBSET_DROP = 1, 4, 24
PR_SET_CHILD_SUBREAPER, PR_SET_NO_NEW_PRIVS, PR_CAP_AMBIENT = 36, 38, 47
PR_CAP_AMBIENT_CLEAR_ALL = 4

_CAPABILITY_VERSION = 0x20080522
_LIBC = ctypes.CDLL(None, use_errno=True)


def prctl(option: int, *values: int, name: str) -> None:
    """Raises OSError, with `name` in its text."""
    four = (*values, 0, 0, 0, 0)[:4]
    _check(_LIBC.prctl(option, *map(ctypes.c_ulong, four)), f"prctl({name})")


def unshare(flags: int) -> None:
    """Raises OSError."""
    _check(_LIBC.unshare(flags), "unshare")


def setns(fd: int, flags: int) -> None:
    """Raises OSError."""
    _check(_LIBC.setns(fd, flags), "setns")


def mount(source: str, target: str, kind: str, flags: int, data: str = "") -> None:
    """Raises OSError, with the target in its text."""
    given = (source.encode(), os.fsencode(target), kind.encode(), ctypes.c_ulong(flags), data.encode())
    _check(_LIBC.mount(*given), f"mount at {target}")


def drop_bounding_set() -> None:
    """No program that this process executes gets a capability. Raises OSError."""
    for number in range(_last_capability() + 1):
        prctl(PR_CAPBSET_DROP, number, name="PR_CAPBSET_DROP")
    prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, name="PR_CAP_AMBIENT")


def clear_capabilities() -> None:
    """Empty the permitted, effective and inheritable set of this thread. Raises OSError."""
    header = struct.pack("=Ii", _CAPABILITY_VERSION, 0)
    _check(_LIBC.capset(header, bytes(24)), "capset")


def _last_capability() -> int:
    return int(Path("/proc/sys/kernel/cap_last_cap").read_text())


def _check(result: int, what: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
