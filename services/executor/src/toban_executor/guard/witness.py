"""What the witness of a dead executor needs, in a sealed descriptor that the guard supervisor keeps, and the start of the witness.

The executor makes the descriptor before its guards, and fills and seals it when it has its key; until then there is no witness. Secrets go no other
way: arguments and environment of a process can be read by others, and so can a file. Only the nonce of the last grant changes later, by a mapping
that the executor made before it sealed the descriptor: a witness without it would attest the end of a copy, too.
"""

import fcntl
import json
import mmap
import os
import signal
import struct
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from functools import partial

WITNESS_FD = 3
"""The number under which the witness finds the descriptor."""
OUTCOMES_ONLY = "--outcomes-only"
"""Argument of a witness that attests nothing: a slot supervisor was killed with the executor."""
STOPPED_IN_ORDER = b"e"
"""What an executor that has not died sends over the control pipe before it closes it."""
_SEALS = fcntl.F_SEAL_SEAL | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW
_F_SEAL_FUTURE_WRITE = 0x10
"""Linux 5.1: nothing writes any more, but by mappings that exist."""
_NONCE = struct.Struct("=q")
_DEFAULT_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGPIPE, signal.SIGCHLD)


@dataclass(frozen=True, slots=True, kw_only=True)
class WitnessCredentials:
    """How to reach coordinators and log-archivers, and to prove for whom the witness speaks.

    `lease_seconds` is the lease of the incarnation, `nonce` came with its last grant (0 = none).
    """

    incarnation: str
    key: str = field(repr=False)
    instance_secret: str = field(repr=False)
    state_dir: str
    coordinators: tuple[str, ...]
    log_archivers: tuple[str, ...]
    tls_dir: str
    trust_domain: str
    log_format: str
    log_level: str
    lease_seconds: float
    nonce: int = 0


def make_descriptor() -> int:
    """An empty descriptor, which no job inherits. Raises OSError."""
    return os.memfd_create("toban-witness", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)


def fill(descriptor: int, credentials: WitnessCredentials) -> Callable[[int], None]:
    """Write the credentials and seal the descriptor: no process can change them from now on. The answer takes the nonce of each grant.

    Raises OSError.
    """
    text = json.dumps(asdict(credentials)).encode()
    os.pwrite(descriptor, _NONCE.pack(credentials.nonce) + text, 0)
    nonce = mmap.mmap(descriptor, _NONCE.size)
    with suppress(OSError):
        # Older kernels do not know it. Then only the processes that have the descriptor could write: this one and the guard supervisor.
        fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, _F_SEAL_FUTURE_WRITE)
    fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, _SEALS)
    return partial(_NONCE.pack_into, nonce, 0)


def is_sealed(descriptor: int) -> bool:
    """True for a descriptor that was filled; False for any other file."""
    try:
        return fcntl.fcntl(descriptor, fcntl.F_GET_SEALS) & _SEALS == _SEALS
    except OSError:
        return False


def read(descriptor: int) -> WitnessCredentials:
    """The credentials of a sealed descriptor. Raises ValueError for any other."""
    if not is_sealed(descriptor):
        raise ValueError("it has no sealed credentials")
    content = os.pread(descriptor, os.fstat(descriptor).st_size, 0)
    values = json.loads(content[_NONCE.size :])
    [nonce] = _NONCE.unpack_from(content)
    addresses = {name: tuple(values[name]) for name in ("coordinators", "log_archivers")}
    return WitnessCredentials(**{**values, **addresses, "nonce": nonce})


def stopped_in_order(control: int) -> bool:
    """Whether the executor sent STOPPED_IN_ORDER before it closed this pipe."""
    try:
        return os.read(control, 1) == STOPPED_IN_ORDER
    except OSError:
        return False


def start(descriptor: int, *, proven: bool) -> None:
    """Start the witness in a fresh interpreter, with this process's environment and standard error. Raises OSError."""
    more = [] if proven else [OUTCOMES_ONLY]
    os.posix_spawn(
        sys.executable,
        [sys.executable, "-m", "toban_executor", "witness", *more],
        os.environ,
        file_actions=[(os.POSIX_SPAWN_DUP2, descriptor, WITNESS_FD)],
        setsigmask=[],
        setsigdef=_DEFAULT_SIGNALS,
    )
