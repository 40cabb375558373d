"""The one error family that crosses the wire: a stable code, a message of one sentence, and optional machine-readable detail.

`GRPC_STATUS` and `exit_code` map each code to its gRPC status and to the exit code of the CLI. A message names what is
wrong, where, and the remedy. docs/errors.md lists the codes.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any


class ErrorCode(StrEnum):
    """Stable names, seen by callers as `toban-code` metadata, in JSON and in docs/errors.md."""

    # The request is invalid.
    INVALID_ARGUMENT = "INVALID_ARGUMENT"
    MANIFEST_INVALID = "MANIFEST_INVALID"
    PAYLOAD_INVALID = "PAYLOAD_INVALID"
    PAYLOAD_TOO_LARGE = "PAYLOAD_TOO_LARGE"
    SCHEDULE_INVALID = "SCHEDULE_INVALID"
    DEADLINE_REQUIRED = "DEADLINE_REQUIRED"
    # The resource does not exist, or is not in the required state.
    NOT_FOUND = "NOT_FOUND"
    JOB_NOT_FOUND = "JOB_NOT_FOUND"
    SCHEDULE_NOT_FOUND = "SCHEDULE_NOT_FOUND"
    RUN_NOT_FOUND = "RUN_NOT_FOUND"
    EXECUTOR_NOT_FOUND = "EXECUTOR_NOT_FOUND"
    TRIGGER_NOT_FOUND = "TRIGGER_NOT_FOUND"
    SECRET_NOT_FOUND = "SECRET_NOT_FOUND"
    ALREADY_EXISTS = "ALREADY_EXISTS"
    RESOURCE_INVALID_STATE = "RESOURCE_INVALID_STATE"
    CANCEL_UNSUPPORTED = "CANCEL_UNSUPPORTED"
    DUPLICATE_SCOPE = "DUPLICATE_SCOPE"
    JOB_DISABLED = "JOB_DISABLED"
    NOT_REPEATABLE = "NOT_REPEATABLE"
    CONFLICT = "CONFLICT"
    # Authentication, authorisation and fencing.
    UNAUTHENTICATED = "UNAUTHENTICATED"
    PERMISSION_DENIED = "PERMISSION_DENIED"
    INCARNATION_UNKNOWN = "INCARNATION_UNKNOWN"
    WRONG_INCARNATION = "WRONG_INCARNATION"
    STALE_EPOCH = "STALE_EPOCH"
    EPOCH_UNPROVEN = "EPOCH_UNPROVEN"
    FENCED_OUT = "FENCED_OUT"
    CLAIM_LOST = "CLAIM_LOST"
    TICKET_MISSING = "TICKET_MISSING"
    TICKET_INVALID = "TICKET_INVALID"
    TICKET_EXPIRED = "TICKET_EXPIRED"
    # The server or its stores.
    UNIMPLEMENTED = "UNIMPLEMENTED"
    UNAVAILABLE = "UNAVAILABLE"
    DEADLINE_EXCEEDED = "DEADLINE_EXCEEDED"
    RESOURCE_EXHAUSTED = "RESOURCE_EXHAUSTED"
    INTERNAL = "INTERNAL"
    CONFIG_INVALID = "CONFIG_INVALID"
    SECRETS_KEY_MISSING = "SECRETS_KEY_MISSING"
    PROVIDER_UNAVAILABLE = "PROVIDER_UNAVAILABLE"


_C = ErrorCode

GRPC_STATUS: Mapping[ErrorCode, str] = {
    _C.INVALID_ARGUMENT: "INVALID_ARGUMENT",
    _C.MANIFEST_INVALID: "INVALID_ARGUMENT",
    _C.PAYLOAD_INVALID: "INVALID_ARGUMENT",
    _C.PAYLOAD_TOO_LARGE: "INVALID_ARGUMENT",
    _C.SCHEDULE_INVALID: "INVALID_ARGUMENT",
    _C.DEADLINE_REQUIRED: "INVALID_ARGUMENT",
    _C.NOT_FOUND: "NOT_FOUND",
    _C.JOB_NOT_FOUND: "NOT_FOUND",
    _C.SCHEDULE_NOT_FOUND: "NOT_FOUND",
    _C.RUN_NOT_FOUND: "NOT_FOUND",
    _C.EXECUTOR_NOT_FOUND: "NOT_FOUND",
    _C.TRIGGER_NOT_FOUND: "NOT_FOUND",
    _C.SECRET_NOT_FOUND: "NOT_FOUND",
    _C.ALREADY_EXISTS: "ALREADY_EXISTS",
    _C.RESOURCE_INVALID_STATE: "FAILED_PRECONDITION",
    _C.CANCEL_UNSUPPORTED: "FAILED_PRECONDITION",
    _C.DUPLICATE_SCOPE: "ALREADY_EXISTS",
    _C.JOB_DISABLED: "FAILED_PRECONDITION",
    _C.NOT_REPEATABLE: "ALREADY_EXISTS",
    _C.CONFLICT: "ABORTED",
    _C.UNAUTHENTICATED: "UNAUTHENTICATED",
    _C.PERMISSION_DENIED: "PERMISSION_DENIED",
    _C.INCARNATION_UNKNOWN: "UNAUTHENTICATED",
    _C.WRONG_INCARNATION: "FAILED_PRECONDITION",
    _C.STALE_EPOCH: "FAILED_PRECONDITION",
    _C.EPOCH_UNPROVEN: "FAILED_PRECONDITION",
    _C.FENCED_OUT: "ABORTED",
    _C.CLAIM_LOST: "FAILED_PRECONDITION",
    _C.TICKET_MISSING: "PERMISSION_DENIED",
    _C.TICKET_INVALID: "PERMISSION_DENIED",
    _C.TICKET_EXPIRED: "UNAUTHENTICATED",
    _C.UNIMPLEMENTED: "UNIMPLEMENTED",
    _C.UNAVAILABLE: "UNAVAILABLE",
    _C.DEADLINE_EXCEEDED: "DEADLINE_EXCEEDED",
    _C.RESOURCE_EXHAUSTED: "RESOURCE_EXHAUSTED",
    _C.INTERNAL: "INTERNAL",
    _C.CONFIG_INVALID: "FAILED_PRECONDITION",
    _C.SECRETS_KEY_MISSING: "FAILED_PRECONDITION",
    _C.PROVIDER_UNAVAILABLE: "FAILED_PRECONDITION",
}

# Exit codes of the CLI, modelled on sysexits.h; 1 is reserved for "the run did not succeed".
_EXIT_BY_STATUS: Mapping[str, int] = {
    "INVALID_ARGUMENT": 65,
    "NOT_FOUND": 66,
    "ALREADY_EXISTS": 73,
    "FAILED_PRECONDITION": 74,
    "ABORTED": 75,
    "UNAUTHENTICATED": 77,
    "PERMISSION_DENIED": 77,
    "UNIMPLEMENTED": 70,
    "UNAVAILABLE": 69,
    "DEADLINE_EXCEEDED": 75,
    "RESOURCE_EXHAUSTED": 75,
    "INTERNAL": 70,
}
# Invalid input of different kinds, with exit codes of their own although gRPC has one status for all of them.
_EXIT_BY_CODE: Mapping[ErrorCode, int] = {
    _C.SCHEDULE_INVALID: 67,
    _C.PAYLOAD_TOO_LARGE: 71,
    _C.PAYLOAD_INVALID: 72,
    _C.CONFIG_INVALID: 78,
}


class TobanError(Exception):
    """An error with a stable code. `message` is one line: what is wrong, where, and the remedy; `detail` is JSON-serialisable."""

    def __init__(self, code: ErrorCode, message: str, *, detail: Mapping[str, Any] | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.detail: dict[str, Any] = dict(detail or {})

    @property
    def exit_code(self) -> int:
        """Exit code of a CLI command that fails with this error; docs/errors.md lists them."""
        return _EXIT_BY_CODE.get(self.code) or _EXIT_BY_STATUS[GRPC_STATUS[self.code]]


class FencedOut(TobanError):
    """A fenced write found another epoch in its row: this process no longer holds the leadership (or the role `of`)."""

    def __init__(self, epoch: int, *, of: str = "leader") -> None:
        super().__init__(ErrorCode.FENCED_OUT, f"fenced out: epoch {epoch} is no longer the current epoch of the {of}")
        self.epoch = epoch
