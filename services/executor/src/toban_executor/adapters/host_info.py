"""The machine: its fingerprint (an executor may attest the past of its instance only there), its clock, disk and certificate."""

import hashlib
import os
import socket
from datetime import datetime
from pathlib import Path

from toban_domain.errors import TobanError
from toban_executor.ports.coordinator import Vitals
from toban_observability import metrics
from toban_observability.logs import get_logger
from toban_transport.tls import TlsFiles

MACHINE_ID = Path("/etc/machine-id")
_log = get_logger(__name__)
_disk_free = metrics.gauge("toban_executor_disk_free_bytes", "Free space on the file system of the state directory.")
_disk_size = metrics.gauge("toban_executor_disk_size_bytes", "Size of the file system of the state directory.")
_load = metrics.gauge(
    "toban_executor_load_ratio", "One-minute load average divided by the number of CPUs; 1 = all busy."
)


def fingerprint(named: str = "", machine_id: Path = MACHINE_ID) -> str:
    """Names this installation: a digest of `named`, else of its machine id and host name; without a machine id (a container) of the host name alone.

    Containers are named where their host name does not last as long as the state directory.
    """
    if named:
        return hashlib.sha256(f"toban executor\0\0named\0{named}".encode()).hexdigest()
    try:
        found = machine_id.read_text().strip()
    except OSError:
        found = ""
    return hashlib.sha256(f"toban executor\0{found}\0{socket.gethostname()}".encode()).hexdigest()


def vitals(*, state_dir: Path, tls: TlsFiles, wall: datetime) -> Vitals | None:
    """The state of this machine for a heartbeat; None when it cannot be read, since no lease may be lost for that."""
    try:
        disk = os.statvfs(state_dir)
        certificate = tls.current().certificate
    except (OSError, TobanError) as error:
        _log.debug("cannot read the disk or the certificate of this machine", error=str(error))
        return None
    free = disk.f_bavail * disk.f_frsize
    _disk_free.set(free)
    _disk_size.set(disk.f_blocks * disk.f_frsize)
    _load.set(os.getloadavg()[0] / (os.cpu_count() or 1))
    return Vitals(
        wall_clock=wall,
        disk_free_bytes=free,
        certificate_not_after=certificate.not_valid_after_utc,
    )
