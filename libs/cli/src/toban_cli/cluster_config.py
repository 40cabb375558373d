"""Where the cluster is: SCHEDULER_* variables, else the local stack's own record in $TOBAN_HOME/stack.json."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from toban_cli.env_vars import unknown_variables
from toban_domain.errors import ErrorCode, TobanError

IDENTITY = "admin-cli"
DEFAULT_TLS_DIR = "/etc/scheduler/tls"
DEFAULT_TRUST_DOMAIN = "toban.internal"


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Addresses (host:port) and certificates."""

    coordinators: tuple[str, ...]
    log_archivers: tuple[str, ...]
    tls_dir: Path
    trust_domain: str


def read_settings(environ: Mapping[str, str], wrong: list[TobanError] | None = None) -> Settings:
    """Raises CONFIG_INVALID when no coordinator is named, an address is not host:port or a variable has an unknown name; with `wrong` such
    addresses and variables are left out and told there instead.
    """
    for problem in unknown_variables(environ):
        if wrong is None:
            raise problem
        wrong.append(problem)
    stack = _stack(environ)
    coordinators = _addresses("SCHEDULER_COORDINATORS", environ, stack.get("coordinators", []), wrong)
    if not coordinators and not wrong:
        raise TobanError(
            ErrorCode.CONFIG_INVALID,
            "no coordinator is named; set SCHEDULER_COORDINATORS=host:port,host:port, or run `make up` and use scripts/toban",
        )
    return Settings(
        coordinators=coordinators,
        log_archivers=_addresses("SCHEDULER_LOG_ARCHIVERS", environ, stack.get("log_archivers", []), wrong),
        tls_dir=_tls_dir(Path(environ.get("SCHEDULER_TLS_DIR") or stack.get("tls_dir") or DEFAULT_TLS_DIR)),
        trust_domain=environ.get("SCHEDULER_TRUST_DOMAIN") or stack.get("trust_domain") or DEFAULT_TRUST_DOMAIN,
    )


def _stack(environ: Mapping[str, str]) -> dict[str, Any]:
    home = environ.get("TOBAN_HOME")
    path = Path(home) / "stack.json" if home else None
    if path is None or not path.exists():
        return {}
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise TobanError(ErrorCode.CONFIG_INVALID, f"{path} cannot be read ({error}); run `make up` again") from None
    return record if isinstance(record, dict) else {}


def _addresses(
    variable: str, environ: Mapping[str, str], recorded: list[str], wrong: list[TobanError] | None
) -> tuple[str, ...]:
    given = environ.get(variable, "")
    addresses = tuple(part.strip() for part in given.split(",") if part.strip()) if given else tuple(recorded)
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
