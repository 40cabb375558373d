"""Free ports on loopback, stored so that a restarted process keeps its address."""

import json
import os
import random
import socket
from collections import deque
from collections.abc import Callable, Mapping
from pathlib import Path

from toban_stack.errors import StackError

# Below the range of Linux for outgoing connections, which could otherwise occupy the port of a process that restarts.
FIRST_PORT, LAST_PORT = 20_000, 32_000
# The first port of that range.
FIRST_OUTGOING = 32_768
TRIES = 200
# The last ports that this process chose, as descriptors of sockets whose names are taken. They are open until it ends.
_RESERVED: deque[int] = deque()
# More than a stack has.
RESERVED_AT_ONCE = 64


def is_free(port: int) -> bool:
    """Whether a server can bind 127.0.0.1:port now."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def free_port(first: int = FIRST_PORT, last: int = LAST_PORT, *, companion_offset: int = 0) -> int:
    """A port that is free now and that no other process has chosen for a server which it is about to start.

    With `companion_offset` the port at that distance is free too (SeaweedFS puts gRPC 10,000 above HTTP).
    Raises StackError after TRIES ports that are taken.
    """
    chooser = random.SystemRandom()
    for _ in range(TRIES):
        port = chooser.randrange(first, last)
        if is_free(port) and (not companion_offset or is_free(port + companion_offset)) and _reserve(port):
            return port
    raise StackError(f"no free port between {first} and {last} on 127.0.0.1 after {TRIES} tries")


def _reserve(port: int) -> bool:
    """Keeps `port` from every other process that starts a stack, until this one ends or has chosen RESERVED_AT_ONCE more.

    A server binds its port a second or more after it was chosen. A name in the abstract namespace of Unix sockets belongs, as
    ports do, to the network namespace, and goes with the process.
    """
    name = socket.socket(socket.AF_UNIX)
    try:
        name.bind(f"\0toban-port-{port}")
    except OSError:
        name.close()
        return False
    _RESERVED.append(name.detach())
    while len(_RESERVED) > RESERVED_AT_ONCE:
        os.close(_RESERVED.popleft())
    return True


class PortBook:
    """The port of each name, stored in a JSON file.

    A port set by the variable `TOBAN_<NAME>_PORT` (TOBAN_PG_PORT, TOBAN_COORDINATOR_1_PORT, ...) wins.
    """

    def __init__(
        self, *, path: Path, environment: Mapping[str, str], on_progress: Callable[[str], None] = lambda _: None
    ) -> None:
        self._path = path
        self._environment = environment
        self._on_progress = on_progress
        self._ports: dict[str, int] = json.loads(path.read_text()) if path.exists() else {}

    def port(self, name: str, *, in_use: bool = False, companion_offset: int = 0) -> int:
        """The port of `name`. With `in_use` the process that owns it is running, so it need not be free."""
        wanted = self._environment.get(variable(name))
        if wanted is not None:
            return self._given(name, wanted, in_use)
        known = self._ports.get(name)
        if known is not None and (in_use or is_free(known)):
            return known
        first, last = FIRST_PORT, LAST_PORT
        if companion_offset:
            # Its companion lies between all other ports and those of outgoing connections: no name ever gets it.
            first, last = LAST_PORT - companion_offset, FIRST_OUTGOING - companion_offset
        taken = set(self._ports.values())
        port = free_port(first, last, companion_offset=companion_offset)
        while port in taken:
            port = free_port(first, last, companion_offset=companion_offset)
        if known is not None:
            self._on_progress(f"port {known} of {name} is taken by another process: {name} has port {port} from now on")
        return self._remember(name, port)

    def _given(self, name: str, wanted: str, in_use: bool) -> int:
        if not wanted.isdigit() or not 0 < int(wanted) < 65_536:
            raise StackError(f"{variable(name)}={wanted!r} is not a port: give a number from 1 to 65535")
        port = int(wanted)
        if not in_use and not is_free(port):
            raise StackError(f"{variable(name)}={port} is taken by another process: stop it or choose another port")
        return self._remember(name, port)

    def _remember(self, name: str, port: int) -> int:
        self._ports[name] = port
        draft = self._path.with_suffix(".new")
        draft.write_text(json.dumps(self._ports, indent=1, sort_keys=True))
        draft.replace(self._path)
        return port


def variable(name: str) -> str:
    """The environment variable that sets the port of `name`."""
    return f"TOBAN_{'PG' if name == 'postgres' else name.upper().replace('-', '_')}_PORT"
