"""Certificate rotation in a running stack: new leaves from the same authority, or a new authority in three steps.

Services reload their files without a restart. Usage: python -m toban_stack certs STEP|worker TYPE

    renew           a new key and certificate for each service, from the same authority
    trust-new-ca    a second authority; every service trusts both
    use-new-ca      a new key and certificate for each service, from the new authority
    drop-old-ca     every service trusts the new authority alone
    worker TYPE     a certificate for external workers that may do steps of this worker_type only
"""

import re
import shutil
from collections.abc import Callable, Mapping
from datetime import timedelta
from pathlib import Path

from toban_stack import certs
from toban_stack.errors import StackError

# As the key worker_type of a step.
_WORKER_TYPE = re.compile(r"[a-z0-9]([a-z0-9._-]{0,126}[a-z0-9])?")
NEXT, OLD = "ca-next", "ca-old"


def renew(directory: Path, *, validity: timedelta = certs.VALIDITY) -> str:
    """Issues new leaves from the authority in use. Returns a line about the change, as each step does."""
    _authority(directory)
    issued = certs.issued(directory)
    for service, folder in issued.items():
        certs.reissue(directory / "ca", service, folder, validity=validity)
    return f"{len(issued)} certificates renewed"


def trust_new_ca(directory: Path) -> str:
    """Makes a second authority, which every service trusts beside the one in use."""
    old = _authority(directory)
    if (directory / OLD).exists():
        raise StackError(
            f"{directory / OLD} exists: the last change of the authority is not finished; do drop-old-ca first"
        )
    new = certs.make_ca(directory / NEXT)
    _trust(directory, old.read_bytes() + (new / "ca.crt").read_bytes())
    return "every service trusts both authorities"


def use_new_ca(directory: Path) -> str:
    """Issues leaves from the new authority, which is in use from now on; every service still trusts both."""
    if not (directory / NEXT / "ca.crt").exists():
        raise StackError(f"{directory / NEXT} does not exist: do trust-new-ca first")
    for service, folder in certs.issued(directory).items():
        certs.reissue(directory / NEXT, service, folder)
    (directory / "ca").rename(directory / OLD)
    (directory / NEXT).rename(directory / "ca")
    return "every service has a certificate of the new authority"


def drop_old_ca(directory: Path) -> str:
    """Removes the old authority from what services trust."""
    if not (directory / OLD).exists():
        raise StackError(f"{directory / OLD} does not exist: do trust-new-ca and use-new-ca first")
    _trust(directory, _authority(directory).read_bytes())
    shutil.rmtree(directory / OLD)
    return "every service trusts the new authority alone"


def make_worker(directory: Path, worker_type: str) -> str:
    """Issues a certificate for external workers of one type, from the authority in use."""
    _authority(directory)
    if not _WORKER_TYPE.fullmatch(worker_type):
        raise StackError(f"{worker_type[:60]!r} is no worker_type: write it as in the step, a-z, 0-9, '.', '_', '-'")
    folder = certs.issue(directory / "ca", f"{certs.WORKER}/{worker_type}", directory / f"{certs.WORKER}.{worker_type}")
    # While an authority is being replaced, both are trusted.
    certs.replace_file(folder / "ca.crt", (directory / certs.WORKER / "ca.crt").read_bytes())
    return f"{folder} is for external workers of worker_type {worker_type}"


STEPS: Mapping[str, Callable[[Path], str]] = {
    "renew": renew,
    "trust-new-ca": trust_new_ca,
    "use-new-ca": use_new_ca,
    "drop-old-ca": drop_old_ca,
}


def _authority(directory: Path) -> Path:
    certificate = directory / "ca" / "ca.crt"
    if not certificate.exists():
        raise StackError(f"{certificate} does not exist: `make up` makes the certificates")
    return certificate


def _trust(directory: Path, bundle: bytes) -> None:
    for folder in certs.issued(directory).values():
        certs.replace_file(folder / "ca.crt", bundle)
