"""What the witness of a dead executor needs, in a sealed descriptor that the guard supervisor keeps, and the start of the witness.

The executor makes the descriptor before its guards, and fills and seals it when it has its key; until then there is no witness. Secrets go no other
way: arguments and environment of a process can be read by others, and so can a file.
"""

import fcntl
import json
import os
import signal
import sys
from dataclasses import asdict, dataclass, field

WITNESS_FD = 3
"""The number under which the witness finds the descriptor."""
OUTCOMES_ONLY = "--outcomes-only"
"""Argument of a witness that attests nothing: a slot supervisor was killed with the executor."""
STOPPED_IN_ORDER = b"e"
"""What an executor that has not died sends over the control pipe before it closes it."""
_SEALS = fcntl.F_SEAL_SEAL | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE
_DEFAULT_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGPIPE, signal.SIGCHLD)


@dataclass(frozen=True, slots=True, kw_only=True)
class WitnessCredentials:
    """How to reach coordinators and log-archivers, and to prove for whom the witness speaks. `lease_seconds` is the lease of the incarnation."""

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


def make_descriptor() -> int:
    """An empty descriptor, which no job inherits. Raises OSError."""
    return os.memfd_create("toban-witness", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)


def fill(descriptor: int, credentials: WitnessCredentials) -> None:
    """Write the credentials and seal the descriptor: no process can change them from now on. Raises OSError."""
    os.pwrite(descriptor, json.dumps(asdict(credentials)).encode(), 0)
    fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, _SEALS)


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
    values = json.loads(os.pread(descriptor, os.fstat(descriptor).st_size, 0))
    addresses = {name: tuple(values[name]) for name in ("coordinators", "log_archivers")}
    return WitnessCredentials(**{**values, **addresses})


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
