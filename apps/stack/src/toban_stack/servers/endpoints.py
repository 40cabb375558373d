"""Addresses of the servers of a stack, with their secrets."""

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoints:
    """URLs and keys; those of servers that were not requested are empty. Secrets stay out of the repr.

    `database_url` is for migrations and tests; each service has a URL with its own role.
    """

    database_url: str = field(default="", repr=False)
    coordinator_database_url: str = field(default="", repr=False)
    log_archiver_database_url: str = field(default="", repr=False)
    redis_url: str = field(default="", repr=False)
    s3_endpoint_url: str = ""
    s3_bucket: str = "toban-logs"
    s3_region: str = "us-east-1"
    s3_access_key: str = field(default="", repr=False)
    s3_secret_key: str = field(default="", repr=False)
