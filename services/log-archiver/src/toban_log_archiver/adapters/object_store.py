"""S3 by boto3, in threads."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable
from contextlib import closing
from ipaddress import ip_address
from typing import Any, Literal, TypeVar
from urllib.parse import urlsplit

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from toban_domain.errors import ErrorCode, TobanError
from toban_log_archiver.ports.object_store import Digest

# A health check may take this long and no longer, seconds.
TIMEOUT_SECONDS = 2.0
# The store may be silent this long while an object goes to it or comes from it, seconds.
DATA_SECONDS = 15.0
PIECE_BYTES = 1024 * 1024
_MISSING = 404
_CONFLICT = 409
_EXISTS = 412
# It has waited too long for us, or has too much to do.
_BUSY = frozenset({408, 429})

AddressingStyle = Literal["path", "virtual", "auto"]
T = TypeVar("T")


class S3Bucket:
    """One bucket. On a local stack (endpoint on loopback) a missing bucket is made; anywhere else that is the operator's.

    Without an endpoint it is AWS's own; without keys boto3's usual sources of credentials are used.
    """

    def __init__(
        self,
        *,
        endpoint_url: str,
        bucket: str,
        access_key: str,
        secret_key: str,
        region: str,
        addressing_style: AddressingStyle = "path",
        data_seconds: float = DATA_SECONDS,
    ) -> None:
        self._bucket = bucket
        self._local = _is_loopback(endpoint_url)

        def client(read_seconds: float) -> Any:
            return boto3.client(
                "s3",
                endpoint_url=endpoint_url or None,
                aws_access_key_id=access_key or None,
                aws_secret_access_key=secret_key or None,
                region_name=region,
                config=Config(
                    connect_timeout=TIMEOUT_SECONDS,
                    read_timeout=read_seconds,
                    # The next pass is the retry.
                    retries={"total_max_attempts": 1},
                    s3={"addressing_style": addressing_style},
                    # Objects are read back and compared; older servers do not know the checksums of newer clients.
                    request_checksum_calculation="when_required",
                    response_checksum_validation="when_required",
                ),
            )

        self._client = client(TIMEOUT_SECONDS)
        self._data = client(data_seconds)

    async def problem(self) -> str:
        """Why the bucket cannot be used; empty when it can."""
        return await asyncio.to_thread(self._problem)

    def uri(self, key: str) -> str:
        """Where an object is, for people."""
        return f"s3://{self._bucket}/{key}"

    async def put_new(self, key: str, body: bytes) -> bool:
        """Writes an object once."""
        return await self._call("put", key, lambda: self._put_new(key, body))

    async def digest(self, key: str) -> Digest | None:
        """Length and checksum of what is really there."""
        return await self._call("read", key, lambda: self._digest(key))

    async def read(self, key: str, offset: int, length: int) -> bytes:
        """A piece of an object."""
        return await self._call("read", key, lambda: self._read(key, offset, length))

    async def delete(self, key: str) -> None:
        """Removes an object, or finds it removed."""
        await self._call("delete", key, lambda: self._data.delete_object(Bucket=self._bucket, Key=key))

    async def _call(self, what: str, key: str, call: Callable[[], T]) -> T:
        try:
            return await asyncio.to_thread(call)
        except ClientError as error:
            refused = _status(error) == _CONFLICT or (what == "delete" and _is_final(error))
            code = ErrorCode.CONFLICT if refused else ErrorCode.UNAVAILABLE
            raise TobanError(code, f"the object store refuses to {what} {self.uri(key)}: {error}") from None
        except (BotoCoreError, OSError, ValueError) as error:
            raise TobanError(
                ErrorCode.UNAVAILABLE, f"the object store does not {what} {self.uri(key)}: {error}"
            ) from None

    def _put_new(self, key: str, body: bytes) -> bool:
        try:
            self._data.put_object(Bucket=self._bucket, Key=key, Body=body, IfNoneMatch="*")
        except ClientError as error:
            if _status(error) == _EXISTS:
                return False
            raise
        return True

    def _digest(self, key: str) -> Digest | None:
        try:
            answer = self._data.get_object(Bucket=self._bucket, Key=key)
        except ClientError as error:
            if _code(error) == "NoSuchKey":
                return None
            raise
        seen, length = hashlib.sha256(), 0
        with closing(answer["Body"]) as body:
            for piece in body.iter_chunks(PIECE_BYTES):
                seen.update(piece)
                length += len(piece)
        return Digest(length, seen.digest())

    def _read(self, key: str, offset: int, length: int) -> bytes:
        wanted = f"bytes={offset}-{offset + length - 1}"
        try:
            answer = self._data.get_object(Bucket=self._bucket, Key=key, Range=wanted)
        except ClientError as error:
            if _code(error) == "NoSuchKey":
                raise TobanError(ErrorCode.NOT_FOUND, f"the archive has no object {self.uri(key)}") from None
            raise
        with closing(answer["Body"]) as body:
            data: bytes = body.read()
        if len(data) != length:
            raise ValueError(f"{len(data)} of {length} bytes from {offset} on came")
        return data

    def _problem(self) -> str:
        try:
            self._client.head_bucket(Bucket=self._bucket)
        except ClientError as error:
            if _status(error) != _MISSING:
                return f"bucket {self._bucket!r} refuses our key: {error}"
            return self._make() if self._local else f"bucket {self._bucket!r} does not exist: create it"
        except (BotoCoreError, ValueError) as error:
            return f"the object store does not answer: {error}"
        return ""

    def _make(self) -> str:
        try:
            self._client.create_bucket(Bucket=self._bucket)
        except (ClientError, BotoCoreError) as error:
            return f"bucket {self._bucket!r} does not exist and cannot be made: {error}"
        return ""


def _status(error: ClientError) -> int:
    return int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))


def _is_final(error: ClientError) -> bool:
    """The store has understood and refused; it is not busy or broken."""
    return 400 <= _status(error) < 500 and _status(error) not in _BUSY


def _code(error: ClientError) -> str:
    return str(error.response.get("Error", {}).get("Code", ""))


def _is_loopback(url: str) -> bool:
    host = urlsplit(url).hostname or ""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
