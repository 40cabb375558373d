"""Looks at certificates without using them, for `toban doctor`: files as they lie there, and what a server shows."""

import socket
import ssl
import stat
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from toban_domain.errors import ErrorCode, TobanError
from toban_transport.certificate_chain import trusted
from toban_transport.identity import dns_name, spiffe_ids
from toban_transport.tls import CA, CERTIFICATE, KEY


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """What a certificate says, and whether one of our authorities issued it (None: we have none to tell)."""

    not_before: datetime
    not_after: datetime
    uris: tuple[str, ...]
    dns: tuple[str, ...]
    trusted: bool | None


@dataclass(frozen=True, slots=True, kw_only=True)
class FileFacts:
    """A folder of tls.crt, tls.key and ca.crt. None where a file could not be read; `problems` then says why, by file name.
    Of several authorities in ca.crt `authorities_begin` and `authorities_end` are those of the one that ends first."""

    directory: Path
    problems: tuple[tuple[str, str], ...] = ()
    certificate: Identity | None = None
    key_matches: bool | None = None
    key_mode: int | None = None
    authorities_begin: datetime | None = None
    authorities_end: datetime | None = None


def inspect_files(directory: Path) -> FileFacts:
    """Never raises: what is wrong is in the answer."""
    problems: list[tuple[str, str]] = []
    chain = _certificates(directory / CERTIFICATE, problems)
    authorities = _certificates(directory / CA, problems)
    key, mode = _key(directory / KEY, problems)
    first = min(authorities, key=lambda item: item.not_valid_after_utc, default=None)
    return FileFacts(
        directory=directory,
        problems=tuple(problems),
        certificate=_identity(chain[0], chain[1:], authorities) if chain else None,
        key_matches=chain[0].public_key() == key.public_key() if chain and key is not None else None,
        key_mode=mode,
        authorities_begin=first.not_valid_before_utc if first is not None else None,
        authorities_end=first.not_valid_after_utc if first is not None else None,
    )


def served(address: str, service: str, *, directory: Path, trust_domain: str, timeout: float) -> Identity:
    """The certificate of the server at host:port, unverified; raises UNAVAILABLE with the reason when there is no handshake."""
    host, _, port = address.rpartition(":")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.set_alpn_protocols(["h2"])
    try:
        context.load_cert_chain(directory / CERTIFICATE, directory / KEY)
    except (OSError, ssl.SSLError):
        # The server shows its certificate before it asks for ours.
        pass
    name = dns_name(service, trust_domain)
    try:
        with (
            socket.create_connection((host.strip("[]"), int(port)), timeout=timeout) as connection,
            context.wrap_socket(connection, server_hostname=name) as secure,
        ):
            shown = secure.getpeercert(binary_form=True)
    except ssl.SSLError as error:
        raise _unavailable(f"it does not speak TLS ({error.reason or error})") from None
    except OSError as error:
        raise _unavailable(error.strerror or str(error) or type(error).__name__) from None
    if not shown:
        raise _unavailable("it shows no certificate")
    return _identity(x509.load_der_x509_certificate(shown), [], _certificates(directory / CA, []))


def _certificates(path: Path, problems: list[tuple[str, str]]) -> list[x509.Certificate]:
    try:
        return x509.load_pem_x509_certificates(path.read_bytes())
    except OSError as error:
        problems.append((path.name, f"cannot be read ({error.strerror})"))
    except ValueError:
        problems.append((path.name, "holds no PEM certificate"))
    return []


def _key(path: Path, problems: list[tuple[str, str]]) -> tuple[PrivateKeyTypes | None, int | None]:
    mode = None
    try:
        mode = stat.S_IMODE(path.stat().st_mode)
        return load_pem_private_key(path.read_bytes(), password=None), mode
    except OSError as error:
        problems.append((path.name, f"cannot be read ({error.strerror})"))
    except (ValueError, TypeError):
        problems.append((path.name, "holds no PEM private key without a passphrase"))
    return None, mode


def _identity(
    certificate: x509.Certificate, chain: list[x509.Certificate], authorities: list[x509.Certificate]
) -> Identity:
    return Identity(
        not_before=certificate.not_valid_before_utc,
        not_after=certificate.not_valid_after_utc,
        uris=spiffe_ids(certificate),
        dns=_dns(certificate),
        trusted=any(trusted(certificate, by=authority, between=chain) for authority in authorities)
        if authorities
        else None,
    )


def _dns(certificate: x509.Certificate) -> tuple[str, ...]:
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return ()
    return tuple(names.get_values_for_type(x509.DNSName))


def _unavailable(why: str) -> TobanError:
    return TobanError(ErrorCode.UNAVAILABLE, why)
