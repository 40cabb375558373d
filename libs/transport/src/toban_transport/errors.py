"""TobanError over the wire: the code and detail travel in trailing metadata, the message as the gRPC details."""

import json
from typing import Any

import grpc

from toban_domain.errors import GRPC_STATUS, ErrorCode, TobanError

CODE_KEY = "toban-code"
DETAIL_KEY = "toban-detail"
MAX_DETAIL_BYTES = 4096
MAX_MESSAGE_CHARS = 1000
"""Trailing metadata is bounded by clients (8 KiB in all by default): past these, detail is dropped and the message cut."""
# What gRPC says of a certificate that it does not take; the reason stands behind it.
_REFUSED = "CERTIFICATE_VERIFY_FAILED"

_BY_STATUS = {
    grpc.StatusCode.INVALID_ARGUMENT: ErrorCode.INVALID_ARGUMENT,
    grpc.StatusCode.OUT_OF_RANGE: ErrorCode.INVALID_ARGUMENT,
    grpc.StatusCode.NOT_FOUND: ErrorCode.NOT_FOUND,
    grpc.StatusCode.ALREADY_EXISTS: ErrorCode.ALREADY_EXISTS,
    grpc.StatusCode.FAILED_PRECONDITION: ErrorCode.RESOURCE_INVALID_STATE,
    grpc.StatusCode.ABORTED: ErrorCode.CONFLICT,
    grpc.StatusCode.UNAUTHENTICATED: ErrorCode.UNAUTHENTICATED,
    grpc.StatusCode.PERMISSION_DENIED: ErrorCode.PERMISSION_DENIED,
    grpc.StatusCode.UNIMPLEMENTED: ErrorCode.UNIMPLEMENTED,
    grpc.StatusCode.UNAVAILABLE: ErrorCode.UNAVAILABLE,
    grpc.StatusCode.CANCELLED: ErrorCode.UNAVAILABLE,
    grpc.StatusCode.DEADLINE_EXCEEDED: ErrorCode.DEADLINE_EXCEEDED,
    grpc.StatusCode.RESOURCE_EXHAUSTED: ErrorCode.RESOURCE_EXHAUSTED,
}

Trailing = tuple[tuple[str, str], ...]


def to_status(error: TobanError) -> tuple[grpc.StatusCode, str, Trailing]:
    """How an error leaves a server: status, details, trailing metadata."""
    trailing: Trailing = ((CODE_KEY, error.code.value),)
    if error.detail:
        detail = json.dumps(error.detail, default=str)
        if len(detail) <= MAX_DETAIL_BYTES:
            trailing += ((DETAIL_KEY, detail),)
    return grpc.StatusCode[GRPC_STATUS[error.code]], error.message[:MAX_MESSAGE_CHARS], trailing


def from_rpc_error(error: grpc.RpcError) -> TobanError:
    """The TobanError that the server meant, or the nearest one for an error of the transport itself."""
    status, text = _status(error)
    trailing = {key: value for key, value in _trailing(error) if isinstance(value, str)}
    try:
        code = ErrorCode(trailing.get(CODE_KEY, ""))
    except ValueError:
        # No code (the transport's own error), or one of a newer server: the status still says the kind.
        return TobanError(_BY_STATUS.get(status, ErrorCode.INTERNAL), _plain(status, text))
    return TobanError(code, text, detail=_detail(trailing.get(DETAIL_KEY, "")))


def _status(error: grpc.RpcError) -> tuple[grpc.StatusCode, str]:
    # Every RpcError that a call raises is a grpc.Call too; the base class declares neither method.
    code, details = getattr(error, "code", None), getattr(error, "details", None)
    status = code() if callable(code) else grpc.StatusCode.UNKNOWN
    return status, (details() if callable(details) else "") or status.name


def _trailing(error: grpc.RpcError) -> list[tuple[str, Any]]:
    trailing = getattr(error, "trailing_metadata", None)
    return [(str(key), value) for key, value in (trailing() if callable(trailing) else None) or ()]


def _detail(text: str) -> dict[str, Any]:
    try:
        detail = json.loads(text or "{}")
    except ValueError:
        return {}
    return detail if isinstance(detail, dict) else {}


def _plain(status: grpc.StatusCode, text: str) -> str:
    text = " ".join(text.split())[:MAX_MESSAGE_CHARS]
    if status is not grpc.StatusCode.UNAVAILABLE:
        return text
    if "Hostname Verification" in text:
        return "the server's certificate names another service or trust domain; check the address"
    if _REFUSED in text:
        why = text.partition(_REFUSED)[2].strip(": ").removesuffix(": OK")
        return (
            f"the server's certificate is not of our CA, or has expired ({why}); check the address and the certificates"
        )
    return f"cannot reach the service, or it refused our certificate; check that it runs, and the certificates ({text})"
