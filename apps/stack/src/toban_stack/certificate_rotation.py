"""Certificate rotation in a running stack: new leaves from the same authority, a new authority in three steps, certificates that are refused.

Services reload their files without a restart. Usage: python -m toban_stack certs STEP

    renew           a new key and certificate for each service, from the same authority
    trust-new-ca    a second authority; every service trusts both
    use-new-ca      a new key and certificate for each service, from the new authority
    drop-old-ca     every service trusts the new authority alone
    revoke SERVICE  a new key and certificate for this service; the one before is refused
    deny SERIAL     the certificate with this serial number is refused
    group NAME      a key and certificate for executors of this group, in the folder executor-NAME
    worker TYPE     a certificate for external workers that may do steps of this worker_type only
"""

import re
import shutil
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from pathlib import Path

from cryptography import x509

from toban_domain.deny_list import DENIED, parse_denied, serial_number
from toban_domain.executor_group import DEFAULT_GROUP, check_name
from toban_stack import certs
from toban_stack.errors import StackError
from toban_stack.toban_command import spelled

# As the key worker_type of a step.
_WORKER_TYPE = re.compile(r"[a-z0-9]([a-z0-9._-]{0,126}[a-z0-9])?")
NEXT, OLD = "ca-next", "ca-old"


def renew(directory: Path, *, validity: timedelta = certs.LEAF_VALIDITY) -> str:
    """Issues new leaves from the authority in use. Returns a line about the change, as each step does."""
    _authority(directory)
    found = certs.identities(directory)
    for identity in found:
        certs.reissue(directory / "ca", identity, directory / certs.folder_of(identity), validity=validity)
    return f"{len(found)} certificates renewed"


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
    for identity in certs.identities(directory):
        certs.reissue(directory / NEXT, identity, directory / certs.folder_of(identity))
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


def add_group(directory: Path, group: str) -> str:
    """Issues a certificate for executors of a group, unless a current one exists. Raises TobanError INVALID_ARGUMENT for a bad name."""
    if check_name(group) == DEFAULT_GROUP:
        raise StackError(f"executors of group {group!r} use {directory / 'executor'}")
    identity = f"executor/{group}"
    _authority(directory)
    if (directory / NEXT).exists() or (directory / OLD).exists():
        raise StackError("a change of the authority is not finished; do its other steps first")
    folder = certs.issue(directory / "ca", identity, directory / certs.folder_of(identity))
    return f"certificate of group {group}: {folder}"


def revoke(directory: Path, service: str) -> str:
    """Issues a new certificate for `service` and puts the serial number of the one before on the deny-list."""
    _authority(directory)
    if service not in (found := certs.identities(directory)):
        raise StackError(f"{service!r} has no certificate: one of {', '.join(found)}")
    folder = directory / certs.folder_of(service)
    before = x509.load_pem_x509_certificate((folder / "tls.crt").read_bytes())
    certs.reissue(directory / "ca", service, folder)
    return f"a new certificate for {service}; {_deny(directory, before.serial_number, service)}"


def deny(directory: Path, serial: str) -> str:
    """Puts a serial number on the deny-list of every service."""
    _authority(directory)
    try:
        return _deny(directory, serial_number(serial), "")
    except ValueError as error:
        raise StackError(str(error)) from None


def _deny(directory: Path, serial: int, comment: str) -> str:
    listed = directory / DENIED
    content = listed.read_text(encoding="utf-8") if listed.exists() else ""
    if serial not in parse_denied(content):
        lines = [*content.splitlines(), f"{serial:x}" + (f"  # {comment}" if comment else "")]
        certs.replace_file(listed, "".join(f"{line}\n" for line in lines).encode())
    certs.hand_out_denied(directory)
    return f"{serial:x} is refused from now on ({listed})"


def make_worker(directory: Path, worker_type: str) -> str:
    """Issues a certificate for external workers of one type, from the authority in use."""
    _authority(directory)
    if not _WORKER_TYPE.fullmatch(worker_type):
        raise StackError(f"{worker_type[:60]!r} is no worker_type: write it as in the step, a-z, 0-9, '.', '_', '-'")
    folder = certs.issue(
        directory / "ca", f"{certs.WORKER}/{worker_type}", directory / certs.folder_of(f"{certs.WORKER}/{worker_type}")
    )
    # While an authority is being replaced, both are trusted.
    certs.replace_file(folder / "ca.crt", (directory / certs.WORKER / "ca.crt").read_bytes())
    return f"{folder} is for external workers of worker_type {worker_type}"


STEPS: Mapping[str, Callable[[Path], str]] = {
    "renew": renew,
    "trust-new-ca": trust_new_ca,
    "use-new-ca": use_new_ca,
    "drop-old-ca": drop_old_ca,
}

WITH_ARGUMENT: Mapping[str, Callable[[Path, str], str]] = {
    "revoke": revoke,
    "deny": deny,
    "group": add_group,
    "worker": make_worker,
}
USAGE = (*STEPS, "revoke SERVICE", "deny SERIAL", "group NAME", "worker TYPE")


def step(arguments: Sequence[str]) -> Callable[[Path], str] | None:
    """What these words of a command line are; None for what is no step."""
    match arguments:
        case [name] if name in STEPS:
            return STEPS[name]
        case [name, argument] if name in WITH_ARGUMENT:
            return lambda directory: WITH_ARGUMENT[name](directory, argument)
        case _:
            return None


def _authority(directory: Path) -> Path:
    certificate = directory / "ca" / "ca.crt"
    if not certificate.exists():
        raise StackError(f"{certificate} does not exist: `{spelled('make up')}` makes the certificates")
    return certificate


def _trust(directory: Path, bundle: bytes) -> None:
    for identity in certs.identities(directory):
        certs.replace_file(directory / certs.folder_of(identity) / "ca.crt", bundle)
