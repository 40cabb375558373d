"""Where the cluster is, and who asks: variables, else the local stack's own record in $TOBAN_HOME/stack.json and its context.json."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from toban.client.target import is_token
from toban_domain.access import TOKEN_PREFIX
from toban_domain.errors import ErrorCode, TobanError

IDENTITY = "admin-cli"
TOKEN = "TOBAN_TOKEN"
DIRECT = "TOBAN_DIRECT"
# What `--context` names, for the process of the command.
CHOSEN = "_TOBAN_CONTEXT"
CONTEXT_FILE = "context.json"
DEFAULT_TLS_DIR = "/etc/scheduler/tls"
DEFAULT_TRUST_DOMAIN = "toban.internal"
COORDINATORS, LOG_ARCHIVERS, TLS_DIR, TRUST_DOMAIN = (
    "TOBAN_COORDINATORS",
    "TOBAN_LOG_ARCHIVERS",
    "TOBAN_TLS_DIR",
    "TOBAN_TRUST_DOMAIN",
)
_OWN = (COORDINATORS, LOG_ARCHIVERS, TLS_DIR, TRUST_DOMAIN)
# Nearer than this to one of them is a typing error: other variables that begin with TOBAN_ are for other programs.
_NEAR = 0.9
_OWN_PREFIX, _PREFIX = "TOBAN_", "SCHEDULER_"
# A test holds these against the configurations of the services, which are not loaded for a command.
_WORDS = """
ADMIN_HOST ADMIN_PORT ADMIN_TOKEN_FILE ADVERTISE_HOST ALLOW_LIST API_RATE CA_DIR CERTIFICATE_DAYS
CONTAINER_ENGINE CONTAINER_MOUNTS COORDINATORS DATABASE_URL
DATABASE_URL_FILE GRPC_HOST GRPC_PORT
HIDDEN_FOLDERS HTTP_ALLOW_REMOTE HTTP_HOST HTTP_NAMES HTTP_PORT HTTP_PROXIES HTTP_STEP_ALLOW HTTP_STEP_CA_FILE
ISOLATION JOB_CPUS JOB_MEMORY_MB JOB_PROCESSES JOB_UIDS
HTTP_THREADS HTTP_WORKERS KUBERNETES_API KUBERNETES_CA_FILE KUBERNETES_IMAGES KUBERNETES_MARGIN_SECONDS KUBERNETES_NAMESPACES
KUBERNETES_OWNER KUBERNETES_SERVICE_ACCOUNTS KUBERNETES_SETTLE_SECONDS KUBERNETES_TOKEN_FILE LABELS LOG_ARCHIVERS LOG_BUDGET_MB LOG_FORMAT LOG_LEVEL
MACHINE NODE_ID OIDC_CA_FILE OIDC_CLIENT_ID OIDC_CLIENT_SECRET OIDC_CLIENT_SECRET_FILE OIDC_CREATE_ACCOUNTS OIDC_GROUPS OIDC_GROUPS_CLAIM
OIDC_ISSUER OIDC_NAME OIDC_SCOPE OIDC_SESSION_MINUTES PASSWORD_SIGN_IN
READY_FILE RENEW_CERTIFICATE SIGNER REDIS_URL REDIS_URL_FILE REQUEST_SECONDS S3_ACCESS_KEY S3_ACCESS_KEY_FILE
S3_ADDRESSING_STYLE S3_BUCKET S3_ENDPOINT_URL S3_REGION S3_SECRET_KEY S3_SECRET_KEY_FILE SECRETS_KEY_FILE SHUTDOWN_GRACE_SECONDS
SHUTDOWN_TIMEOUT_SECONDS SKIP_LATE_RUNS_AFTER_SECONDS SLOTS SHOWN_FOLDERS STATE_DIR TLS_DIR TLS_SHARED_IDENTITY TRUST_DOMAIN
WARM_FORKS WARM_IDLE_SECONDS WARM_MEMORY_MB WARM_ZYGOTES WEBHOOK_ALLOW WEBHOOK_CA_FILE WEBHOOK_SENDERS WEB_DIR
"""
KNOWN_VARIABLES = frozenset(_PREFIX + word for word in _WORDS.split())
# Kubernetes sets these in every pod beside a Service called `scheduler` or `scheduler-…`, the first one always.
_LINK_HOST = "_SERVICE_HOST"
_LINK = re.compile(r"_(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT|PORT_\d+_(TCP|UDP|SCTP)(_\w+)?)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Addresses (host:port), certificates, and the API token of the person; without one the certificate itself acts."""

    coordinators: tuple[str, ...]
    log_archivers: tuple[str, ...]
    tls_dir: Path
    trust_domain: str
    token: str = field(default="", repr=False)


def read_settings(environ: Mapping[str, str], wrong: list[TobanError] | None = None) -> Settings:
    """Raises CONFIG_INVALID when no coordinator is configured, an address is not host:port or a variable has an unknown name; with `wrong` such
    addresses and variables are left out and added to it instead.
    """
    for problem in unknown_variables(environ):
        if wrong is None:
            raise problem
        wrong.append(problem)
    stack = read_stack(environ)
    coordinators = _addresses(COORDINATORS, environ, stack.get("coordinators", []), wrong)
    if not coordinators and not wrong:
        raise TobanError(
            ErrorCode.CONFIG_INVALID,
            f"no coordinator address is configured; set {COORDINATORS}=host:port,host:port, or `toban login URL`, or start "
            "a stack on this machine with `toban dev`",
        )
    return Settings(
        coordinators=coordinators,
        log_archivers=_addresses(LOG_ARCHIVERS, environ, stack.get("log_archivers", []), wrong),
        tls_dir=_tls_dir(Path(given(environ, TLS_DIR)[1] or stack.get("tls_dir") or DEFAULT_TLS_DIR)),
        trust_domain=given(environ, TRUST_DOMAIN)[1] or stack.get("trust_domain") or DEFAULT_TRUST_DOMAIN,
        token="" if environ.get(DIRECT) else read_token(environ) or local_context(environ),
    )


def given(environ: Mapping[str, str], variable: str) -> tuple[str, str]:
    """The value of a variable of the command, and which one has it: TOBAN_..., else SCHEDULER_..., so that the command works in the container of
    a service without more. "" where neither is set.
    """
    of_service = _PREFIX + variable.removeprefix(_OWN_PREFIX)
    name = variable if environ.get(variable) or not environ.get(of_service) else of_service
    return name, environ.get(name, "")


def read_token(environ: Mapping[str, str]) -> str:
    """TOBAN_TOKEN; "" without it. Raises CONFIG_INVALID for what is no API token."""
    token = environ.get(TOKEN, "").strip()
    if token and not is_token(token):
        # Its value is not shown.
        message = (
            f"{TOKEN} is no API token: one line that begins with {TOKEN_PREFIX}; `toban token add USER NAME` makes one"
        )
        raise TobanError(ErrorCode.CONFIG_INVALID, message)
    return token


def local_context(environ: Mapping[str, str]) -> str:
    """The token of the local stack's context, which goes to that stack only; "" where there is none. Raises CONFIG_INVALID."""
    home = environ.get("TOBAN_HOME")
    if not home or given(environ, COORDINATORS)[1]:
        return ""
    path = Path(home) / CONTEXT_FILE
    try:
        token = str(json.loads(path.read_text(encoding="utf-8"))["token"])
    except FileNotFoundError:
        return ""
    except (OSError, ValueError, LookupError, TypeError) as error:
        message = f"{path} cannot be read ({error}); run `toban dev` again, or use `toban --direct`"
        raise TobanError(ErrorCode.CONFIG_INVALID, message) from None
    if not is_token(token):
        message = f"{path} has no API token; run `toban dev` again, or use `toban --direct`"
        raise TobanError(ErrorCode.CONFIG_INVALID, message)
    return token


def unknown_variables(environ: Mapping[str, str]) -> list[TobanError]:
    """CONFIG_INVALID for each variable that nothing of Toban reads, with the nearest that something does: it is probably a typing error."""
    import difflib

    ours = sorted(name for name in environ if name.startswith(_PREFIX) and name not in KNOWN_VARIABLES)
    services = [name.removesuffix(_LINK_HOST) for name in ours if name.endswith(_LINK_HOST)]
    unknown = [name for name in ours if not any(_is_link(name, service) for service in services)]
    others = sorted(name for name in environ if name.startswith(_OWN_PREFIX) and name not in _OWN)
    misspelt = [name for name in others if difflib.get_close_matches(name, _OWN, n=1, cutoff=_NEAR)]
    return [_unknown_variable(name, sorted(KNOWN_VARIABLES)) for name in unknown] + [
        _unknown_variable(name, _OWN) for name in misspelt
    ]


def _is_link(name: str, service: str) -> bool:
    return name.startswith(service) and _LINK.fullmatch(name, len(service)) is not None


def _unknown_variable(name: str, known: Sequence[str]) -> TobanError:
    import difflib

    near = difflib.get_close_matches(name, known, n=1)
    hint = f"did you mean {near[0]}?" if near else "unset it"
    return TobanError(ErrorCode.CONFIG_INVALID, f"{name}: unknown variable in the environment; {hint}")


def read_stack(environ: Mapping[str, str]) -> dict[str, Any]:
    """The local stack's own record; empty where there is none. Raises CONFIG_INVALID."""
    home = environ.get("TOBAN_HOME")
    path = Path(home) / "stack.json" if home else None
    if path is None or not path.exists():
        return {}
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise TobanError(ErrorCode.CONFIG_INVALID, f"{path} cannot be read ({error}); run `toban dev` again") from None
    return record if isinstance(record, dict) else {}


def _addresses(
    variable: str, environ: Mapping[str, str], recorded: list[str], wrong: list[TobanError] | None
) -> tuple[str, ...]:
    variable, value = given(environ, variable)
    addresses = tuple(part.strip() for part in value.split(",") if part.strip()) if value else tuple(recorded)
    good = tuple(address for address in addresses if _is_address(address))
    for address in addresses:
        if address in good:
            continue
        problem = TobanError(
            ErrorCode.CONFIG_INVALID,
            f"{variable} has {address!r}, which is not host:port; write {variable}=host:port,host:port",
        )
        if wrong is None:
            raise problem
        wrong.append(problem)
    return good


def _is_address(address: str) -> bool:
    host, _, port = address.rpartition(":")
    return bool(host) and port.isascii() and port.isdigit() and len(port) <= 5 and 1 <= int(port) <= 65535


def _tls_dir(directory: Path) -> Path:
    """A folder of certificates, or a folder with one folder a service, as the local stack has it."""
    own = directory / IDENTITY
    return own if own.is_dir() else directory
