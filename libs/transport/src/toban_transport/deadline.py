"""How long a call may last: every call needs a deadline, and the server bounds it. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from toban_domain.errors import ErrorCode, TobanError

MAX_UNARY_SECONDS = 60.0
MAX_STREAM_SECONDS = 3600.0
"""Streams are opened again by their callers: connections end by age anyway, so that revoked certificates go."""

MAX_SECONDS: Mapping[str, float] = {
    "/toban_proto.v1.WorkerService/Ping": 5.0,
    "/toban_proto.v1.ExecutorGateway/Register": 10.0,
    "/toban_proto.v1.ExecutorGateway/Heartbeat": 10.0,
    "/toban_proto.v1.ExecutorGateway/ConfirmContinuation": 5.0,
    # It waits for an offer for up to 30 s.
    "/toban_proto.v1.ExternalWork/Claim": 40.0,
    "/toban_proto.v1.Peer/Ping": 5.0,
    "/toban_proto.v1.Peer/GetStatus": 5.0,
}
"""Methods whose bound is not the default one of their kind, in seconds."""


def admitted_seconds(method: str, remaining: float | None, *, streaming: bool) -> float:
    """Seconds that this call may last: what the caller asked for, at most the method's maximum.

    `remaining` is what the call's deadline leaves, None without one: that is DEADLINE_REQUIRED.
    """
    if remaining is None:
        raise TobanError(ErrorCode.DEADLINE_REQUIRED, f"{method} was called without a deadline; set a timeout")
    return min(remaining, MAX_SECONDS.get(method, MAX_STREAM_SECONDS if streaming else MAX_UNARY_SECONDS))
