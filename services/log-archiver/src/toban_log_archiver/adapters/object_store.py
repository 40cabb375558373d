"""S3 by boto3, in threads."""

from __future__ import annotations

import asyncio
from ipaddress import ip_address
from urllib.parse import urlsplit

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

# A health check may take this long and no longer, seconds.
TIMEOUT_SECONDS = 2.0


class S3Bucket:
    """One bucket. On a local stack (endpoint on loopback) a missing bucket is made; anywhere else that is the operator's."""

    def __init__(self, *, endpoint_url: str, bucket: str, access_key: str, secret_key: str, region: str) -> None:
        self._bucket = bucket
        self._local = _is_loopback(endpoint_url)
        self._client = boto3.client(
            "s3",
            endpoint_url=endpoint_url,
            aws_access_key_id=access_key or None,
            aws_secret_access_key=secret_key or None,
            region_name=region,
            config=Config(
                connect_timeout=TIMEOUT_SECONDS,
                read_timeout=TIMEOUT_SECONDS,
                retries={"total_max_attempts": 1},
                s3={"addressing_style": "path"},
            ),
        )

    async def problem(self) -> str:
        """Why the bucket cannot be used; empty when it can."""
        return await asyncio.to_thread(self._problem)

    def _problem(self) -> str:
        try:
            self._client.head_bucket(Bucket=self._bucket)
        except ClientError as error:
            if error.response.get("ResponseMetadata", {}).get("HTTPStatusCode") != 404:
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


def _is_loopback(url: str) -> bool:
    host = urlsplit(url).hostname or ""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
