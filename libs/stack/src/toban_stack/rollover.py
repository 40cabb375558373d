"""New certificates for a stack that runs: leaves from the same authority, and another authority in three steps.

Services look at their files by themselves; nothing is started anew. Usage: python -m toban_stack certs STEP

    renew           a new key and certificate for each service, from the same authority
    trust-new-ca    makes another authority; every service trusts both
    use-new-ca      a new key and certificate for each service, from the new authority
    drop-old-ca     every service trusts the new authority alone
"""

import shutil
from collections.abc import Callable, Mapping
from datetime import timedelta
from pathlib import Path

from toban_stack import certs
from toban_stack.errors import StackError

NEXT, OLD = "ca-next", "ca-old"


def renew(directory: Path, *, validity: timedelta = certs.VALIDITY) -> str:
    """New leaves from the authority in use; what was done, in a line."""
    _authority(directory)
    for service in certs.SERVICES:
        certs.reissue(directory / "ca", service, directory / service, validity=validity)
    return f"{len(certs.SERVICES)} certificates renewed"


def trust_new_ca(directory: Path) -> str:
    """Another authority beside the one in use; everybody trusts both."""
    old = _authority(directory)
    if (directory / OLD).exists():
        raise StackError(
            f"{directory / OLD} is there: the last change of the authority is not over; do drop-old-ca first"
        )
    new = certs.make_ca(directory / NEXT)
    _trust(directory, old.read_bytes() + (new / "ca.crt").read_bytes())
    return "every service trusts both authorities"


def use_new_ca(directory: Path) -> str:
    """Leaves from the new authority, which is the one in use from now on; everybody still trusts both."""
    if not (directory / NEXT / "ca.crt").exists():
        raise StackError(f"{directory / NEXT} is not there: do trust-new-ca first")
    for service in certs.SERVICES:
        certs.reissue(directory / NEXT, service, directory / service)
    (directory / "ca").rename(directory / OLD)
    (directory / NEXT).rename(directory / "ca")
    return "every service has a certificate of the new authority"


def drop_old_ca(directory: Path) -> str:
    """Nobody trusts the old authority any more."""
    if not (directory / OLD).exists():
        raise StackError(f"{directory / OLD} is not there: do trust-new-ca and use-new-ca first")
    _trust(directory, _authority(directory).read_bytes())
    shutil.rmtree(directory / OLD)
    return "every service trusts the new authority alone"


STEPS: Mapping[str, Callable[[Path], str]] = {
    "renew": renew,
    "trust-new-ca": trust_new_ca,
    "use-new-ca": use_new_ca,
    "drop-old-ca": drop_old_ca,
}


def _authority(directory: Path) -> Path:
    certificate = directory / "ca" / "ca.crt"
    if not certificate.exists():
        raise StackError(f"{certificate} is not there: `make up` makes the certificates")
    return certificate


def _trust(directory: Path, bundle: bytes) -> None:
    for service in certs.SERVICES:
        certs.replace_file(directory / service / "ca.crt", bundle)
