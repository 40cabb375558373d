"""The machine: its name (what an executor says about the past of its instance counts only there), its clock, disk and certificate."""

import hashlib
import os
import socket
from datetime import datetime
from pathlib import Path

from toban_domain.errors import TobanError
from toban_executor.ports import Vitals
from toban_observability.logs import get_logger
from toban_transport.tls import TlsFiles

MACHINE_ID = Path("/etc/machine-id")
_log = get_logger(__name__)


def fingerprint(machine_id: Path = MACHINE_ID) -> str:
    """Names this installation: a digest of its machine id and host name. Without a machine id (a container) the host name alone."""
    try:
        found = machine_id.read_text().strip()
    except OSError:
        found = ""
    return hashlib.sha256(f"toban executor\0{found}\0{socket.gethostname()}".encode()).hexdigest()


def vitals(*, state_dir: Path, tls: TlsFiles, wall: datetime) -> Vitals | None:
    """What a heartbeat tells of this machine; None when it cannot be read, since no lease may be lost for that."""
    try:
        disk = os.statvfs(state_dir)
        certificate = tls.current().certificate
    except (OSError, TobanError) as error:
        _log.debug("the machine cannot be looked at", error=str(error))
        return None
    return Vitals(
        wall_clock=wall,
        disk_free_bytes=disk.f_bavail * disk.f_frsize,
        certificate_not_after=certificate.not_valid_after_utc,
    )
