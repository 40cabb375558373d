"""Every SCHEDULER_* variable that some part of Toban reads: the command may run in the environment of a service."""

from __future__ import annotations

import re
from collections.abc import Mapping

from toban_domain.errors import ErrorCode, TobanError

PREFIX = "SCHEDULER_"
# A test holds these against the configurations of the services, which are not loaded for a command.
_WORDS = """
ADMIN_HOST ADMIN_PORT ADVERTISE_HOST ALLOW_LIST COORDINATORS DATABASE_URL DATABASE_URL_FILE GRPC_HOST GRPC_PORT
HTTP_ALLOW_REMOTE HTTP_HOST HTTP_NAMES HTTP_PORT HTTP_THREADS LABELS LOG_ARCHIVERS LOG_BUDGET_MB LOG_FORMAT LOG_LEVEL
MACHINE NODE_ID READY_FILE REDIS_URL REDIS_URL_FILE REQUEST_SECONDS S3_ACCESS_KEY S3_ACCESS_KEY_FILE
S3_ADDRESSING_STYLE S3_BUCKET S3_ENDPOINT_URL S3_REGION S3_SECRET_KEY S3_SECRET_KEY_FILE SHUTDOWN_GRACE_SECONDS
SHUTDOWN_TIMEOUT_SECONDS SKIP_LATE_RUNS_AFTER_SECONDS SLOTS STATE_DIR TLS_DIR TLS_SHARED_IDENTITY TRUST_DOMAIN WEB_DIR
"""
KNOWN = frozenset(PREFIX + word for word in _WORDS.split())
# Kubernetes sets these in every pod beside a Service called `scheduler` or `scheduler-…`, the first one always.
_LINK_HOST = "_SERVICE_HOST"
_LINK = re.compile(r"_(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT|PORT_\d+_(TCP|UDP|SCTP)(_\w+)?)")


def unknown_variables(environ: Mapping[str, str]) -> list[TobanError]:
    """CONFIG_INVALID for each variable that nothing of Toban reads, with the nearest that something does: it is a typing error."""
    ours = sorted(name for name in environ if name.startswith(PREFIX) and name not in KNOWN)
    services = [name.removesuffix(_LINK_HOST) for name in ours if name.endswith(_LINK_HOST)]
    return [_unknown(name) for name in ours if not any(_is_link(name, service) for service in services)]


def _is_link(name: str, service: str) -> bool:
    return name.startswith(service) and _LINK.fullmatch(name, len(service)) is not None


def _unknown(name: str) -> TobanError:
    import difflib

    near = difflib.get_close_matches(name, sorted(KNOWN), n=1)
    hint = f"did you mean {near[0]}?" if near else "unset it"
    return TobanError(ErrorCode.CONFIG_INVALID, f"{name}: unknown variable in the environment; {hint}")
