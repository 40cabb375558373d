"""The development certificate authority: one EC P-256 certificate for each service.

Each service's folder has `tls.crt`, `tls.key` (mode 0600) and `ca.crt`. A certificate names its service twice:
one URI SAN `spiffe://<trust domain>/<service>`, which servers authorise, and one DNS SAN `<service>.<trust
domain>`, which clients pin. An IP SAN would let any service impersonate another on the same address; it has none.
Executors of a group have `executor/<group>` and `<group>.executor.<trust domain>`, in the folder `executor-<group>`.
"""

import os
from collections.abc import Iterable
from datetime import datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from toban_domain.deny_list import DENIED
from toban_domain.executor_group import DEFAULT_GROUP, GROUP_NAME, check_name
from toban_runtime.clock import SystemClock
from toban_runtime.private_file import write_private
from toban_transport.issue import builder, key_usage, leaf, pem, spiffe_id

SERVICES = ("coordinator", "executor", "log-archiver", "admin-web", "signer", "admin-cli", "external-worker")
WORKER = "external-worker"
"""`external-worker/TYPE` names a certificate that is good for steps of this worker type only; its folder is `external-worker.TYPE`."""
TRUST_DOMAIN = "toban.internal"
VALIDITY = timedelta(days=3650)
"""Of the authority."""
RENEW_BEFORE = timedelta(days=60)
LEAF_VALIDITY = timedelta(days=30)
"""Of a service's certificate: the longest time for which a stolen key is of use. It is renewed in the last third."""
LEAF_RENEW_BEFORE = timedelta(days=10)


def make_ca(directory: Path, *, now: datetime | None = None) -> Path:
    """Makes `ca.key` (mode 0600) and `ca.crt` in `directory` unless a valid pair exists; returns `directory`."""
    moment = now or SystemClock().wall()
    certificate_file, key_file = directory / "ca.crt", directory / "ca.key"
    if key_file.exists() and _is_valid_for_long(certificate_file, moment, RENEW_BEFORE):
        return directory
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "Toban development CA")])
    certificate = (
        builder(name, name, key.public_key(), moment, VALIDITY)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(key_usage(signs_certificates=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    write_private(key_file, pem(key))
    certificate_file.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    return directory


def issue(
    ca_dir: Path, service: str, out_dir: Path, *, trust_domain: str = TRUST_DOMAIN, now: datetime | None = None
) -> Path:
    """Issues a certificate of `service` in `out_dir` unless a current one exists that is not near its end."""
    moment = now or SystemClock().wall()
    authority = x509.load_pem_x509_certificate((ca_dir / "ca.crt").read_bytes())
    if _is_current(out_dir, authority, service, trust_domain, moment):
        return out_dir
    out_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    reissue(ca_dir, service, out_dir, trust_domain=trust_domain, now=moment)
    trusted = out_dir / "ca.crt"
    # While the authority changes, it holds two of them.
    if not trusted.exists() or authority not in x509.load_pem_x509_certificates(trusted.read_bytes()):
        replace_file(trusted, authority.public_bytes(serialization.Encoding.PEM))
    return out_dir


def reissue(
    ca_dir: Path,
    service: str,
    out_dir: Path,
    *,
    trust_domain: str = TRUST_DOMAIN,
    now: datetime | None = None,
    validity: timedelta = LEAF_VALIDITY,
) -> None:
    """Replaces key and certificate of `service` in `out_dir`, each atomically; `ca.crt` stays.

    Raises ValueError when the authority has no EC key.
    """
    authority = x509.load_pem_x509_certificate((ca_dir / "ca.crt").read_bytes())
    signer = serialization.load_pem_private_key((ca_dir / "ca.key").read_bytes(), password=None)
    if not isinstance(signer, ec.EllipticCurvePrivateKey):
        raise ValueError(f"{ca_dir / 'ca.key'} is not an EC key")
    key = ec.generate_private_key(ec.SECP256R1())
    issued = leaf(authority, service, trust_domain, key.public_key(), now or SystemClock().wall(), validity)
    certificate = issued.sign(signer, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
    write_private(out_dir / "tls.key", pem(key))
    replace_file(out_dir / "tls.crt", certificate)


def replace_file(path: Path, content: bytes) -> None:
    """Replaces `path` atomically: a reader sees the old content or the new one."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    draft.write_bytes(content)
    draft.replace(path)


def make_all(
    directory: Path, *, groups: Iterable[str] = (), trust_domain: str = TRUST_DOMAIN, now: datetime | None = None
) -> Path:
    """Makes the authority in `directory`/ca and a sub-folder for each of SERVICES and for each group of executors, each with the deny-list; returns
    `directory`.

    Groups that have a folder keep it. Raises TobanError INVALID_ARGUMENT for a name that no group has.
    """
    authority = make_ca(directory / "ca", now=now)
    wanted = {*identities(directory), *(f"executor/{check_name(group)}" for group in groups if group != DEFAULT_GROUP)}
    for identity in sorted(wanted):
        issue(authority, identity, directory / folder_of(identity), trust_domain=trust_domain, now=now)
    hand_out_denied(directory)
    return directory


def folder_of(identity: str) -> str:
    """The sub-folder with the certificate of a service, of `executor/<group>`, or of `external-worker/<type>`."""
    # A type of workers can have dashes and dots; a group has no dot.
    return identity.replace("/", "." if identity.startswith(f"{WORKER}/") else "-", 1)


def identities(directory: Path) -> list[str]:
    """Every identity whose certificate belongs into `directory`: SERVICES, and groups of executors and types of workers with a folder."""
    groups = sorted(path.parent.name.removeprefix("executor-") for path in directory.glob("executor-*/tls.crt"))
    types = sorted(path.parent.name.removeprefix(f"{WORKER}.") for path in directory.glob(f"{WORKER}.*/tls.crt"))
    of_groups = (f"executor/{group}" for group in groups if GROUP_NAME.fullmatch(group))
    return [*SERVICES, *of_groups, *(f"{WORKER}/{one}" for one in types)]


def renew_due(directory: Path, *, trust_domain: str = TRUST_DOMAIN, now: datetime | None = None) -> list[str]:
    """Issues new certificates where the present one is near its end, from the authority that runs; returns their identities."""
    renewed = []
    for identity in identities(directory):
        file = directory / folder_of(identity) / "tls.crt"
        before = file.read_bytes() if file.exists() else b""
        issue(directory / "ca", identity, file.parent, trust_domain=trust_domain, now=now)
        renewed += [identity] if file.read_bytes() != before else []
    hand_out_denied(directory)
    return renewed


def hand_out_denied(directory: Path) -> None:
    """Copies the deny-list of `directory` beside each certificate, once there is one."""
    if not (directory / DENIED).exists():
        return
    content = (directory / DENIED).read_bytes()
    for identity in identities(directory):
        held = directory / folder_of(identity) / DENIED
        if not held.exists() or held.read_bytes() != content:
            replace_file(held, content)


def _is_valid_for_long(certificate_file: Path, now: datetime, margin: timedelta) -> bool:
    if not certificate_file.exists():
        return False
    certificate = x509.load_pem_x509_certificate(certificate_file.read_bytes())
    return certificate.not_valid_before_utc <= now < certificate.not_valid_after_utc - margin


def _is_current(out_dir: Path, authority: x509.Certificate, service: str, trust_domain: str, now: datetime) -> bool:
    """Whether `out_dir` has a complete, valid set for this service, domain and authority, of a leaf as short-lived as they are made now."""
    if not all((out_dir / name).exists() for name in ("tls.key", "ca.crt")) or not _is_valid_for_long(
        out_dir / "tls.crt", now, LEAF_RENEW_BEFORE
    ):
        return False
    certificate = x509.load_pem_x509_certificate((out_dir / "tls.crt").read_bytes())
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    if certificate.not_valid_after_utc > now + LEAF_VALIDITY:
        return False
    try:
        certificate.verify_directly_issued_by(authority)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return names.get_values_for_type(x509.UniformResourceIdentifier) == [spiffe_id(service, trust_domain)]
