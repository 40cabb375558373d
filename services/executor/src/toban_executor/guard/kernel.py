"""Calls of the kernel that Python 3.11 has no function for."""

import ctypes
import errno
import os
import struct
from pathlib import Path

CLONE_NEWNS = 0x00020000
CLONE_NEWIPC = 0x08000000
CLONE_NEWPID = 0x20000000
CLONE_NEWUSER = 0x10000000
MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_REMOUNT = 1, 2, 4, 8, 32
MS_BIND, MS_REC, MS_SLAVE = 0x1000, 0x4000, 0x80000
PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_SET_NAME, PR_CAPBSET_DROP = 1, 4, 15, 24
PR_SET_CHILD_SUBREAPER, PR_SET_NO_NEW_PRIVS, PR_CAP_AMBIENT = 36, 38, 47
PR_CAP_AMBIENT_CLEAR_ALL = 4
PR_SET_SECCOMP, SECCOMP_MODE_FILTER = 22, 2
IPC_KINDS = ("shm", "sem", "msg")
"""Of System V, as in /proc/sysvipc."""

_CAPABILITY_VERSION = 0x20080522
# add_key, request_key and keyctl have consecutive numbers: for programs of x86_64, i386, aarch64 and arm, by the kernel's name of each.
_KEY_CALLS = {0xC000003E: (248, 250), 0x40000003: (286, 288), 0xC00000B7: (217, 219), 0x40000028: (309, 311)}
_KEYCTL = {"x86_64": 250, "aarch64": 219}
_JOIN_SESSION_KEYRING = 1
# sched_getattr and ioprio_get.
_SCHEDULING = {"x86_64": (315, 252), "aarch64": (275, 31)}
_OF_PROCESS, _DISK_CLASS = 1, 13
_X32_BIT = 0x40000000
_ALLOW, _NO_SUCH_CALL = 0x7FFF0000, 0x00050000 | errno.ENOSYS
_LOAD, _AND, _EQUAL, _GREATER_EQUAL, _GREATER, _RETURN = 0x20, 0x54, 0x15, 0x35, 0x25, 0x06
_LIBC = ctypes.CDLL(None, use_errno=True)


def prctl(option: int, *values: int, name: str) -> None:
    """Raises OSError, with `name` in its text."""
    four = (*values, 0, 0, 0, 0)[:4]
    _check(_LIBC.prctl(option, *map(ctypes.c_ulong, four)), f"prctl({name})")


def set_name(name: str) -> None:
    """The name of this process in lists, 15 characters at most. Raises OSError."""
    _check(_LIBC.prctl(PR_SET_NAME, name.encode(), 0, 0, 0), "prctl(PR_SET_NAME)")


def keep_untraced() -> None:
    """From now on other processes of this user can neither trace this one nor read its memory. Raises OSError when one does already."""
    prctl(PR_SET_DUMPABLE, 0, name="PR_SET_DUMPABLE")
    status = Path("/proc/self/status").read_text()
    if "\nTracerPid:\t0\n" not in status:
        raise OSError(0, "another process traces this one")


def unshare(flags: int) -> None:
    """Raises OSError."""
    _check(_LIBC.unshare(flags), "unshare")


def setns(fd: int, flags: int) -> None:
    """Raises OSError."""
    _check(_LIBC.setns(fd, flags), "setns")


def enter_user_namespace() -> None:
    """This process, which has one thread, gets every capability over what it makes from now on, and keeps its uid. Raises OSError."""
    uid, gid = os.geteuid(), os.getegid()
    # Else its files in /proc belong to root.
    prctl(PR_SET_DUMPABLE, 1, name="PR_SET_DUMPABLE")
    unshare(CLONE_NEWUSER)
    for file, text in (("setgroups", "deny"), ("uid_map", f"{uid} {uid} 1"), ("gid_map", f"{gid} {gid} 1")):
        Path(f"/proc/self/{file}").write_text(text)
    prctl(PR_SET_DUMPABLE, 0, name="PR_SET_DUMPABLE")


def mount(source: str, target: str, kind: str, flags: int, data: str = "") -> None:
    """Raises OSError, with the target in its text."""
    given = (source.encode(), os.fsencode(target), kind.encode(), ctypes.c_ulong(flags), data.encode())
    _check(_LIBC.mount(*given), f"mount at {target}")


def remove_ipc(kind: str, number: int) -> None:
    """One of System V, which this process must own. Raises OSError."""
    # IPC_RMID is 0, as is the number of the semaphore, which does not matter.
    _check(_LIBC[f"{kind}ctl"](number, 0, 0, 0), f"{kind}ctl(IPC_RMID)")


def drop_bounding_set() -> None:
    """No program that this process executes gets a capability. Raises OSError."""
    for number in range(_last_capability() + 1):
        prctl(PR_CAPBSET_DROP, number, name="PR_CAPBSET_DROP")
    prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, name="PR_CAP_AMBIENT")


def clear_capabilities() -> None:
    """Empty the permitted, effective and inheritable set of this thread. Raises OSError."""
    header = struct.pack("=Ii", _CAPABILITY_VERSION, 0)
    _check(_LIBC.capset(header, bytes(24)), "capset")


def leave_session_keyring() -> None:
    """A new session keyring in place of the one that this process has inherited. Where it cannot be had, `refuse_keys` keeps both out of reach."""
    number = _KEYCTL.get(os.uname().machine)
    if number is not None:
        _LIBC.syscall(*map(ctypes.c_long, (number, _JOIN_SESSION_KEYRING, 0)))


def scheduling(pid: int) -> tuple[object, ...]:
    """How a process gets the processor and the disk, which its children inherit. Raises OSError."""
    numbers = _SCHEDULING.get(os.uname().machine)
    if numbers is None:
        return os.getpriority(os.PRIO_PROCESS, pid), os.sched_getscheduler(pid)
    attributes = ctypes.create_string_buffer(64)
    _check(
        _LIBC.syscall(ctypes.c_long(numbers[0]), ctypes.c_long(pid), attributes, len(attributes), 0), "sched_getattr"
    )
    disk = _LIBC.syscall(*map(ctypes.c_long, (numbers[1], _OF_PROCESS, pid)))
    # Without a class, some kernels have another number before a process first uses the disk.
    return attributes.raw, disk if disk >> _DISK_CLASS else 0


def refuse_keys() -> None:
    """From now on the calls for keys of the kernel do not exist here (ENOSYS). Needs PR_SET_NO_NEW_PRIVS. Raises OSError."""
    program = _without_key_calls()
    filters = ctypes.create_string_buffer(program, len(program))
    header = ctypes.create_string_buffer(struct.pack("@HP", len(program) // 8, ctypes.addressof(filters)))
    prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.addressof(header), name="PR_SET_SECCOMP")


def _without_key_calls() -> bytes:
    """A program for the kernel's filter of calls: first it loads what kind of program calls (at 4), then, for each kind, the number (at 0)."""
    size = 5
    allow = 1 + size * len(_KEY_CALLS)
    lines = [(_LOAD, 0, 0, 4)]
    for kind, (first, last) in _KEY_CALLS.items():
        at = len(lines)
        lines += [
            (_EQUAL, 0, size - 1, kind),
            (_LOAD, 0, 0, 0),
            (_AND, 0, 0, 0xFFFFFFFF ^ _X32_BIT),
            (_GREATER_EQUAL, 0, allow - at - 4, first),
            (_GREATER, allow - at - 5, allow + 1 - at - 5, last),
        ]
    lines += [(_RETURN, 0, 0, _ALLOW), (_RETURN, 0, 0, _NO_SUCH_CALL)]
    return b"".join(struct.pack("=HBBI", *line) for line in lines)


def _last_capability() -> int:
    return int(Path("/proc/sys/kernel/cap_last_cap").read_text())


def _check(result: int, what: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
