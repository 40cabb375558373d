"""Which machine a state directory belongs to: what an executor says about the past of its instance counts only on that machine."""

import hashlib
import socket
from pathlib import Path

MACHINE_ID = Path("/etc/machine-id")


def fingerprint(machine_id: Path = MACHINE_ID) -> str:
    """Names this installation: a digest of its machine id and host name. Without a machine id (a container) the host name alone."""
    try:
        found = machine_id.read_text().strip()
    except OSError:
        found = ""
    return hashlib.sha256(f"toban executor\0{found}\0{socket.gethostname()}".encode()).hexdigest()
