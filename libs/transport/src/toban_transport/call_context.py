"""What a call must pass before its handler runs, and what the handler may ask about its caller."""

from collections.abc import Mapping
from typing import Any

import grpc.aio

from toban_observability import metrics
from toban_transport import authz, deadline

_shared_calls = metrics.counter(
    "toban_tls_shared_identity_calls_total",
    "Calls with a certificate that several services share; the calling service is not known.",
    ("method",),
)


def admit(
    method: str,
    context: "grpc.aio.ServicerContext[Any, Any]",
    *,
    trust_domain: str,
    rules: authz.Rules,
    shared: bool,
    streaming: bool,
) -> float | None:
    """Authorise the caller and bound the call: seconds to enforce here, None when the caller's own deadline is the earlier one.

    Raises TobanError PERMISSION_DENIED or DEADLINE_REQUIRED.
    """
    name = authz.authorise(method, peer_spiffe_ids(context), trust_domain, rules, shared=shared)
    if authz.is_shared(name):
        _shared_calls.labels(method).inc()
    # The library's stub promises a float; without a deadline it is None.
    remaining: float | None = context.time_remaining()
    admitted = deadline.admitted_seconds(method, remaining, streaming=streaming)
    return admitted if remaining is not None and admitted < remaining else None


def peer_spiffe_ids(context: "grpc.aio.ServicerContext[Any, Any]") -> tuple[str, ...]:
    """The SPIFFE ids of the certificate that gRPC verified. Other names in it (DNS, CN, e-mail) say nothing about authority."""
    found = context.auth_context().get("peer_spiffe_id", ())
    return tuple(value.decode("utf-8", "replace") for value in found)


def peer_service(context: "grpc.aio.ServicerContext[Any, Any]") -> str:
    """The calling service, or `shared/<name>`; only meaningful inside a handler, which runs after authorisation."""
    return peer_spiffe_ids(context)[0].split("/", 3)[3]


def metadata(context: "grpc.aio.ServicerContext[Any, Any]") -> Mapping[str, str]:
    """The caller's metadata as text; binary entries are left out, of repeated keys the last counts."""
    entries: Any = context.invocation_metadata() or ()
    return {str(key): value for key, value in entries if isinstance(value, str)}
