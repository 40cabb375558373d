"""What a call must pass before its handler runs, and what the handler may ask about its caller."""

from collections.abc import Collection, Mapping
from contextvars import ContextVar
from datetime import datetime
from functools import lru_cache
from ipaddress import ip_address
from typing import Any
from urllib.parse import unquote

import grpc.aio
from cryptography import x509

from toban_domain.errors import ErrorCode, TobanError
from toban_observability import metrics
from toban_observability.context import CALLER, Caller
from toban_transport import authz, deadline
from toban_transport.person_rules import ADDRESS

_shared_calls = metrics.counter(
    "toban_tls_shared_identity_calls_total",
    "Calls with a certificate that several services share; the calling service is not known.",
    ("method",),
)

TLS_VERSION = "TLSv1.3"

# Of the call that the current task serves.
_actor: ContextVar[str] = ContextVar("actor", default="")


def admit(
    method: str,
    context: "grpc.aio.ServicerContext[Any, Any]",
    *,
    trust_domain: str,
    rules: authz.Rules,
    shared: bool,
    streaming: bool,
    now: datetime,
    denied: Collection[int] = (),
) -> float | None:
    """Authorise the caller and bound the call: seconds to enforce here, None when the caller's own deadline is the earlier one.

    Raises TobanError UNAUTHENTICATED for TLS before 1.3, and for a certificate that has expired at `now` or whose serial number is among
    `denied`, PERMISSION_DENIED or DEADLINE_REQUIRED.
    """
    check_tls(context)
    left = certificate_seconds(context, now, denied)
    name = authz.authorise(method, peer_spiffe_ids(context), trust_domain, rules, shared=shared)
    if authz.is_shared(name):
        _shared_calls.labels(method).inc()
    # The library's stub promises a float; without a deadline it is None.
    remaining: float | None = context.time_remaining()
    admitted = min(left, deadline.admitted_seconds(method, remaining, streaming=streaming))
    return admitted if remaining is not None and admitted < remaining else None


def check_tls(context: "grpc.aio.ServicerContext[Any, Any]") -> None:
    """Raises UNAUTHENTICATED for a version before 1.3: there a server signs bytes of its peer's choice with its key, and shows certificates
    in clear. gRPC for Python has no setting for it, so it is checked with each call, where gRPC says the version."""
    for found in context.auth_context().get("ssl_tls_version", ()):
        version = found.decode("ascii", "replace")
        if version != TLS_VERSION:
            raise TobanError(ErrorCode.UNAUTHENTICATED, f"the connection has {version}; use TLS 1.3")


def certificate_seconds(
    context: "grpc.aio.ServicerContext[Any, Any]", now: datetime, denied: Collection[int] = ()
) -> float:
    """How long the peer's certificate is still valid. Raises UNAUTHENTICATED when it has expired: TLS checks that in full handshakes only,
    so without this it would go on in open connections and in sessions that it resumes. Likewise for one whose serial number is `denied`."""
    found = context.auth_context().get("x509_pem_cert", ())
    if not found:
        raise TobanError(
            ErrorCode.UNAUTHENTICATED, "the connection has no client certificate; connect with one of this CA"
        )
    ends, serial = _end_and_serial(bytes(next(iter(found))))
    if serial in denied:
        raise TobanError(
            ErrorCode.UNAUTHENTICATED,
            f"the caller's certificate {serial:x} is on the deny-list; issue another one, and find out who has the key of this one",
        )
    left = (ends - now).total_seconds()
    if left <= 0:
        raise expired(ends)
    return left


def expired(ends: datetime) -> TobanError:
    """UNAUTHENTICATED for a certificate that is valid until `ends`."""
    return TobanError(
        ErrorCode.UNAUTHENTICATED,
        f"the caller's certificate expired at {ends:%Y-%m-%d %H:%M:%S} UTC; issue it again; callers read new certificate files by themselves",
    )


@lru_cache(maxsize=1024)
def _end_and_serial(pem: bytes) -> tuple[datetime, int]:
    certificate = x509.load_pem_x509_certificate(pem)
    return certificate.not_valid_after_utc, certificate.serial_number


def peer_spiffe_ids(context: "grpc.aio.ServicerContext[Any, Any]") -> tuple[str, ...]:
    """The SPIFFE ids of the certificate that gRPC verified. Other names in it (DNS, CN, e-mail) say nothing about authority."""
    found = context.auth_context().get("peer_spiffe_id", ())
    return tuple(value.decode("utf-8", "replace") for value in found)


def peer_service(context: "grpc.aio.ServicerContext[Any, Any]") -> str:
    """The calling service, or `shared/<name>`; only meaningful inside a handler, which runs after authorisation."""
    return authz.service_of(peer_name(context))


def peer_name(context: "grpc.aio.ServicerContext[Any, Any]") -> str:
    """What the caller's certificate names: as `peer_service`, and `executor/<group>`."""
    return peer_spiffe_ids(context)[0].split("/", 3)[3]


def peer_group(context: "grpc.aio.ServicerContext[Any, Any]") -> str:
    """The group of executors that the caller's certificate names."""
    return authz.group_of(peer_name(context))


def peer_serial(context: "grpc.aio.ServicerContext[Any, Any]") -> str:
    """The serial number of the caller's certificate, as `serial_of`."""
    return serial_of(bytes(next(iter(context.auth_context()["x509_pem_cert"]))))


def serial_of(certificate: bytes) -> str:
    """The serial number of a certificate (PEM), as deny-lists have it: hexadecimal."""
    return f"{_end_and_serial(certificate)[1]:x}"


def actor_of(context: "grpc.aio.ServicerContext[Any, Any]") -> str:
    """Who acts by this call, for the audit: `user ada`, `user ada, token 3`, or without a person `certificate admin-cli`."""
    return _actor.get() or f"certificate {peer_service(context)}"


def set_actor(actor: str) -> None:
    """Names the person of the call that the current task serves."""
    _actor.set(actor)


def set_caller(context: "grpc.aio.ServicerContext[Any, Any]", given: Mapping[str, str]) -> Caller:
    """Keeps, for the audit, where the call that the current task serves comes from; `given` is its metadata.

    The site speaks for the browsers behind it, so its word counts for their address; of any other caller the connection does.
    """
    service = peer_service(context)
    handed_on = given.get(ADDRESS, "") if service == authz.ADMIN_WEB or authz.is_shared(service) else ""
    caller = Caller(_address(handed_on) or _address(_host(context.peer())), service)
    CALLER.set(caller)
    return caller


@lru_cache(maxsize=1024)
def _host(peer: str) -> str:
    """The host of gRPC's name of a peer: `ipv4:127.0.0.1:5000`, `ipv6:%5B::1%5D:5000`, `unix:`."""
    return unquote(peer).partition(":")[2].rpartition(":")[0].strip("[]")


@lru_cache(maxsize=1024)
def _address(text: str) -> str:
    """An IP address in its usual form; "" for anything else."""
    try:
        found = ip_address(text)
    except ValueError:
        return ""
    mapped = getattr(found, "ipv4_mapped", None)
    return str(mapped or found)


def metadata(context: "grpc.aio.ServicerContext[Any, Any]") -> Mapping[str, str]:
    """The caller's metadata as text; binary entries are left out, of repeated keys the last counts."""
    entries: Any = context.invocation_metadata() or ()
    return {str(key): value for key, value in entries if isinstance(value, str)}
