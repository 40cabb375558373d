"""What a failed write means: it did not happen, the lease is not ours any more, or the outcome is unknown.

`DidNotHappen`: nothing was committed; the next tick may try again. `Refused` is about the data, `Unsuitable` about the database.
`FencedOut` (toban_domain.errors): another leader writes now; stop leading.
`OutcomeUnknown`: the connection broke while COMMIT was under way; take a new token, then read. No psycopg exception leaves this package.
"""

from __future__ import annotations

import psycopg
from psycopg_pool import PoolClosed, PoolTimeout

from toban_domain.errors import ErrorCode, FencedOut, TobanError

__all__ = [
    "DidNotHappen",
    "FencedOut",
    "OutcomeUnknown",
    "Refused",
    "StoreError",
    "TooLong",
    "Unsuitable",
    "connection_lost",
    "sort_error",
]

# Statement or transaction bounds: query_canceled, lock_not_available, idle_in_transaction_session_timeout, transaction_timeout.
_TIMEOUTS = frozenset({"57014", "55P03", "25P03", "25P04"})
_AT_WORK = frozenset({"57014", "55P03"})
# Connection exceptions, shutdowns by the server, and "statement completion unknown".
_LOST_PREFIXES = ("08", "57P")
_LOST = frozenset({"40003", "25P03", "25P04"})
_CHECK_VIOLATION = "23514"
# Undefined or forbidden objects, features that this server lacks, catalogs and schemas that are missing, its own faults.
_UNSUITABLE = ("0A", "3D", "3F", "42", "XX", "F0")
# Out of resources, the wrong state of an object, an operator's intervention, a failed disk: nothing can be stored for now.
_UNAVAILABLE = ("40", "53", "55", "57", "25", "58")


class StoreError(TobanError):
    """A statement or transaction failed. `sqlstate` is PostgreSQL's code, empty when the connection broke."""

    def __init__(self, code: ErrorCode, message: str, *, sqlstate: str = "") -> None:
        super().__init__(code, message)
        self.sqlstate = sqlstate


class DidNotHappen(StoreError):
    """Nothing was committed."""


class TooLong(DidNotHappen):
    """A statement, a lock wait or a fenced transaction took longer than its bound: cut the work or try again."""

    @property
    def by_server(self) -> bool:
        """PostgreSQL itself was at work, or waited for a lock, for that long. Else it may as well have waited for this process, which says
        nothing about what was to be written."""
        return self.sqlstate in _AT_WORK


class Refused(DidNotHappen):
    """The database refused the data (classes 22, 23 and 54, or a trigger); `constraint` names the rule where there is one."""

    def __init__(
        self, message: str, *, sqlstate: str, constraint: str = "", code: ErrorCode = ErrorCode.CONFLICT
    ) -> None:
        super().__init__(code, message, sqlstate=sqlstate)
        self.constraint = constraint


class Unsuitable(DidNotHappen):
    """The database cannot store this as it is now: a partition, a table or a right is missing. The data may be good: keep it and try again."""

    @property
    def lacks_partition(self) -> bool:
        """True when a row found no partition."""
        return self.sqlstate == _CHECK_VIOLATION


class OutcomeUnknown(StoreError):
    """The connection broke while the commit was under way: it happened or it did not. Read before writing again."""


def connection_lost(error: BaseException) -> bool:
    """True when this error ended the connection, so that no answer to a statement under way will come."""
    if not isinstance(error, psycopg.OperationalError | psycopg.InterfaceError):
        return False
    state = error.sqlstate or ""
    return not state or state in _LOST or state.startswith(_LOST_PREFIXES)


def sort_error(error: psycopg.Error | PoolTimeout | PoolClosed, *, committing: bool) -> StoreError:
    """The StoreError that says what `error` means; `committing` is true when a COMMIT (or a lone statement) was under way."""
    state = error.sqlstate or "" if isinstance(error, psycopg.Error) else ""
    message = _first_line(error)
    if isinstance(error, PoolTimeout | PoolClosed):
        return DidNotHappen(
            ErrorCode.UNAVAILABLE, f"PostgreSQL does not answer, or all connections to it are in use: {message}"
        )
    if state in _TIMEOUTS:
        return TooLong(
            ErrorCode.DEADLINE_EXCEEDED, f"PostgreSQL ended the work at its time bound: {message}", sqlstate=state
        )
    if connection_lost(error):
        kind = OutcomeUnknown if committing else DidNotHappen
        return kind(ErrorCode.UNAVAILABLE, f"the connection to PostgreSQL was lost: {message}", sqlstate=state)
    if _lacks_partition(error, state):
        return Unsuitable(ErrorCode.UNAVAILABLE, f"PostgreSQL cannot store this now: {message}", sqlstate=state)
    if state.startswith(_UNSUITABLE):
        return Unsuitable(ErrorCode.INTERNAL, f"PostgreSQL refused the statement: {message}", sqlstate=state)
    if state.startswith(("22", "23", "54")) or state == "P0001":
        return Refused(message, sqlstate=state, constraint=_constraint(error))
    if not state and isinstance(error, psycopg.DataError) and "NUL" in message:
        # The driver's own refusal, before anything was sent.
        return Refused("a text has a NUL character; leave it out", sqlstate="", code=ErrorCode.INVALID_ARGUMENT)
    code = ErrorCode.UNAVAILABLE if state.startswith(_UNAVAILABLE) else ErrorCode.INTERNAL
    return DidNotHappen(code, f"PostgreSQL refused the statement: {message}", sqlstate=state)


def _lacks_partition(error: psycopg.Error, state: str) -> bool:
    """PostgreSQL names the table and no constraint; a trigger that refuses a change names neither."""
    return state == _CHECK_VIOLATION and not _constraint(error) and bool(error.diag.table_name)


def _first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__


def _constraint(error: psycopg.Error) -> str:
    return error.diag.constraint_name or ""
