"""Fencing guards: a resource refuses an attempt of a run when a newer one has reached it (docs/sdk.md, docs/fencing.md 3.11).

A lost executor may still be at work on an older attempt. Its token is smaller, so each write states its token, and the resource keeps
the largest that it has seen: a row of your database, a server behind HTTP, or an object in S3.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from toban.job import Job, current_job
from toban.transactions import fetch_value

if TYPE_CHECKING:
    from toban.transactions import SyncConnection

HEADER = "Toban-Fence"
MAX_FENCE = 2**63 - 1
_PREFIX = b"toban-fence "
_STORED = re.compile(_PREFIX + rb"([0-9]{19})\n")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,62}(\.[A-Za-z_][A-Za-z0-9_]{0,62})?")


class FencedOutError(Exception):
    """A newer attempt has reached the resource: nothing was changed. Stop the work; the newer attempt does it.

    `fence` is the token of this attempt, `seen` the larger one that the resource knows (0 = unknown).
    """

    def __init__(self, resource: str, fence: int, seen: int = 0) -> None:
        newer = f" of token {seen}" if seen else ""
        super().__init__(f"{resource}: a newer attempt{newer} has been there; this one has token {fence} and must stop")
        self.resource, self.fence, self.seen = resource, fence, seen


def current_fence(environ: Mapping[str, str] | None = None) -> int:
    """The fencing token of this attempt, TOBAN_FENCE. Raises LookupError outside of a run. A `toban.worker.Step` has its own.

    >>> current_fence({"TOBAN_FENCE": "2251800082120705"})
    2251800082120705
    """
    return (current_job() if environ is None else Job(environ=environ)).fence


def parse_fence(text: str) -> int:
    """A token as text, such as the value of the header. Raises ValueError for what is none.

    >>> parse_fence("12")
    12
    """
    if not (text.isascii() and text.isdigit() and len(text) <= 19 and 0 < int(text) <= MAX_FENCE):
        raise ValueError(f"{text[:40]!r} is no fencing token; it is a number from 1 to 2^63 - 1")
    return int(text)


class SqlGuard:
    """Tokens in a table of your database, a row for each resource. `table` may have a schema, as in `app.fences`.

    `SqlGuard(table).ddl` is the statement that makes the table; execute it with your migrations.
    """

    def __init__(self, table: str = "toban_fences") -> None:
        self._table = _checked_name(table)

    @property
    def ddl(self) -> str:
        """The statement that makes the table."""
        return f"CREATE TABLE {self._table} (resource text PRIMARY KEY, fence bigint NOT NULL CHECK (fence > 0))"

    def enter(self, connection: SyncConnection, resource: str, fence: int) -> None:
        """Admits the transaction of `connection` to a resource, until it ends. Raises FencedOutError for an older attempt.

        The row stays locked, so that an older attempt that has entered commits before a newer one enters, or not at all. Make
        it the first statement, and write in the same transaction. Raises OutsideTransactionError on a connection in autocommit mode.
        """
        # No row when the table has a larger token: the update does not take place.
        # The names were checked, and the values are parameters.
        statement = (
            f"INSERT INTO {self._table} AS kept (resource, fence) VALUES (:resource, :fence) "  # noqa: S608
            "ON CONFLICT (resource) DO UPDATE SET fence = excluded.fence WHERE kept.fence <= excluded.fence "
            "RETURNING fence"
        )
        values = {"resource": resource, "fence": fence}
        if fetch_value(connection, statement, values) is None:
            seen = fetch_value(
                connection,
                f"SELECT fence FROM {self._table} WHERE resource = :resource",  # noqa: S608
                {"resource": resource},
            )
            raise FencedOutError(resource, fence, int(seen or 0))


def http_headers(fence: int) -> dict[str, str]:
    """The header that a request to a guarded server has.

    >>> http_headers(12)
    {'Toban-Fence': '12'}
    """
    return {HEADER: str(fence)}


def fence_of(headers: Mapping[str, str]) -> int:
    """The token of a request, for a server. Raises ValueError without a good one: answer 400.

    >>> fence_of({"toban-fence": "12"})
    12
    """
    return parse_fence({name.lower(): value for name, value in headers.items()}.get(HEADER.lower(), ""))


def check_status(resource: str, status: int, fence: int, headers: Mapping[str, str] | None = None) -> None:
    """Raises FencedOutError for status 412, with which a guarded server refuses a request; its larger token is in the header.

    Also without a good header, which a proxy may drop: to stop is safe then, and to go on is not.
    """
    if status != 412:
        return
    try:
        seen = fence_of(headers or {})
    except ValueError:
        seen = 0
    raise FencedOutError(resource, fence, seen)


class S3Guard:
    """Objects of a bucket that begin with the token of their writer. `client` is one of boto3; the store supports If-Match.

    An object is 32 bytes, such as `toban-fence 0000000000000000007` and a line feed, and then the content: `read` leaves them out.
    Raises what boto3 raises, besides the errors of its methods.
    """

    def __init__(self, client: Any, bucket: str, *, tries: int = 10) -> None:
        self._client = client
        self._bucket = bucket
        self._tries = tries

    def put(self, key: str, body: bytes, fence: int) -> None:
        """Replaces an object, unless it is of a newer attempt: then FencedOutError. Raises TimeoutError when others win each of `tries` times.

        The object is written only if it is still the one whose token was compared.
        """
        self.update(key, lambda _: body, fence)

    def update(self, key: str, change: Callable[[bytes | None], bytes], fence: int) -> None:
        """As `put`, with the content made from the present one (None = there is none).

        `change` may be called several times. When the answer to a write is lost, it may get content that it has made itself.
        """
        parse_fence(str(fence))
        for _ in range(self._tries):
            before, condition = self._compare(key, fence)
            # The ETag may be a hash of the bytes. With the token among them, that of a newer attempt differs from every older one.
            stored = _PREFIX + b"%019d\n" % fence + change(before)
            try:
                self._client.put_object(Bucket=self._bucket, Key=key, Body=stored, **condition)
            except self._client.exceptions.ClientError as error:
                if not _was_changed_meanwhile(error):
                    raise
            else:
                return
        raise TimeoutError(f"s3://{self._bucket}/{key} was changed by others {self._tries} times; try again later")

    def read(self, key: str) -> bytes | None:
        """The content without the token; None = there is no object. That of an object without a token is the whole object."""
        found = self._get(key)
        return None if found is None else _split(found[0])[1]

    def _compare(self, key: str, fence: int) -> tuple[bytes | None, dict[str, str]]:
        """The content, and the condition under which it may be replaced. Raises FencedOutError."""
        found = self._get(key)
        if found is None:
            return None, {"IfNoneMatch": "*"}
        seen, content = _split(found[0])
        if seen > fence:
            raise FencedOutError(f"s3://{self._bucket}/{key}", fence, seen)
        return content, {"IfMatch": found[1]}

    def _get(self, key: str) -> tuple[bytes, str] | None:
        """The object as it is stored, and its ETag."""
        try:
            found = self._client.get_object(Bucket=self._bucket, Key=key)
        except self._client.exceptions.NoSuchKey:
            return None
        with found["Body"] as body:
            return body.read(), str(found["ETag"])


def _split(stored: bytes) -> tuple[int, bytes]:
    """Token and content; 0 for an object that was written before there was a guard."""
    found = _STORED.match(stored)
    return (int(found[1]), stored[found.end() :]) if found else (0, stored)


def _was_changed_meanwhile(error: Any) -> bool:
    code = str(error.response.get("Error", {}).get("Code", ""))
    status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode")
    return status in (409, 412) or code in ("PreconditionFailed", "ConditionalRequestConflict")


def _checked_name(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise ValueError(f"{name!r} is no name of a table; use letters, digits and '_', with a schema as in app.fences")
    return name
