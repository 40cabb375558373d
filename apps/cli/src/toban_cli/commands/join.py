"""`toban executor join`: this machine becomes an executor."""

from __future__ import annotations

import json
import socket
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from toban_cli import report
from toban_cli.access_options import read_secret
from toban_domain.errors import ErrorCode, TobanError

if TYPE_CHECKING:
    from toban_cli.rest.site import Site

SECONDS = 30.0
MOST_BYTES = 1 << 20
_ANSWER = {"certificate", "authorities", "group", "trust_domain", "coordinators", "log_archivers", "ends_at"}
Url = Annotated[str, typer.Argument(metavar="URL", help="Address of the site.", show_default=False)]
Token = Annotated[
    str,
    typer.Argument(metavar="TOKEN", help="Of `toban invite add`; - reads it from standard input.", show_default=False),
]
Folder = Annotated[
    Path, typer.Option("--dir", metavar="DIR", help="Where key and certificate go; the settings go to DIR.env.")
]
CaFile = Annotated[
    Path | None, typer.Option("--ca-file", metavar="FILE", help="PEM certificates of the CA of the site.")
]
Advertise = Annotated[
    str,
    typer.Option(
        "--advertise", metavar="HOST", help="Name or address that coordinators reach it by (default: its host name)."
    ),
]
Port = Annotated[int, typer.Option("--port", min=1, max=65535, help="Where coordinators reach it.")]
PrintUnit = Annotated[bool, typer.Option("--print-unit", help="Print its systemd unit on standard output.")]
Replace = Annotated[bool, typer.Option("--replace", help="Replace the key and the settings that are there.")]


def join(
    url: Url,
    token: Token,
    folder: Folder = Path("/etc/toban/executor"),
    ca_file: CaFile = None,
    advertise: Advertise = "",
    port: Port = 50051,
    print_unit: PrintUnit = False,
    replace: Replace = False,
) -> None:
    """Make this machine an executor: a key that never leaves it, a certificate for the key, and the settings of the service.

    Then start the service, for example by the unit of --print-unit. It renews its certificate itself.

    Examples:
    toban executor join https://toban.example.com toban_join_...
    toban executor join https://toban.example.com - --print-unit
    """
    from importlib.util import find_spec

    from toban_cli.rest.site import Site, check_url

    if find_spec("cryptography") is None or find_spec("toban_executor") is None:
        raise TobanError(ErrorCode.UNIMPLEMENTED, "the executor is not installed here; pip install toban-executor")
    from toban_transport.issue import keep, new_request

    site = Site(url=check_url(url), ca_file=str(ca_file.absolute()) if ca_file else "")
    # Units of systemd take no other paths.
    folder = folder.resolve()
    settings = folder.with_name(f"{folder.name}.env")
    _check_place(folder, settings, replace=replace)
    key, request = new_request()
    secret = read_secret("Token of the invite") if token == "-" else token
    answer = _ask(site, {"token": secret, "request": request.decode(), "machine": socket.gethostname()})
    certificate, authorities = answer["certificate"].encode(), answer["authorities"].encode()
    try:
        keep(folder, key=key, certificate=certificate, authorities=authorities)
        settings.write_text(_settings(answer, folder, advertise or socket.gethostname(), port), encoding="utf-8")
    except OSError as error:
        raise _unwritable(folder, error) from None
    report.note(
        f"certificate of executor group {answer['group']} until {answer['ends_at']} in {folder}; settings in {settings}"
    )
    if print_unit:
        from toban_cli.commands.unit import Service, text_of

        report.echo(text_of(Service.EXECUTOR, sys.executable).replace("/etc/toban/executor", str(folder)))
    else:
        report.note(
            "start it: `toban unit executor` prints a systemd unit, or run `python -m toban_executor` with these settings"
        )


def _check_place(folder: Path, settings: Path, *, replace: bool) -> None:
    """Before the invite is used. Raises ALREADY_EXISTS, CONFIG_INVALID."""
    if not replace and ((folder / "tls.key").exists() or (settings.exists() and settings.stat().st_size)):
        message = (
            f"{folder} has a key already, or {settings} is there; --replace replaces both, --dir names another folder"
        )
        raise TobanError(ErrorCode.ALREADY_EXISTS, message)
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        settings.touch(mode=0o600)
    except OSError as error:
        raise _unwritable(folder, error) from None


def _unwritable(folder: Path, error: OSError) -> TobanError:
    message = (
        f"{folder} cannot be written ({error.strerror}); run this as the account of the executor, or name another --dir"
    )
    return TobanError(ErrorCode.CONFIG_INVALID, message)


def _settings(answer: dict[str, Any], folder: Path, advertise: str, port: int) -> str:
    values = {
        "COORDINATORS": ",".join(answer["coordinators"]),
        "LOG_ARCHIVERS": ",".join(answer["log_archivers"]),
        "TRUST_DOMAIN": answer["trust_domain"],
        "TLS_DIR": folder,
        "GRPC_HOST": "0.0.0.0",
        "GRPC_PORT": port,
        "ADVERTISE_HOST": advertise,
        "RENEW_CERTIFICATE": "1",
    }
    lines = [f"SCHEDULER_{name}={value}" for name, value in values.items() if value]
    return "\n".join(["# Written by `toban executor join`.", *lines, ""])


def _ask(site: Site, body: dict[str, str]) -> dict[str, Any]:
    """The answer of the site. Raises UNAVAILABLE, and what the site refuses with."""
    import urllib.error
    import urllib.request

    request = urllib.request.Request(
        f"{site.url}/join",
        data=json.dumps(body).encode(),
        headers={"Content-Type": "application/json", "User-Agent": site.user_agent},
    )
    try:
        with urllib.request.urlopen(request, timeout=SECONDS, context=site.tls()) as response:
            found = json.loads(response.read(MOST_BYTES))
    except urllib.error.HTTPError as error:
        raise _refused(error.read(MOST_BYTES), error.code) from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "reason", error)
        raise TobanError(ErrorCode.UNAVAILABLE, f"{site.url} does not answer ({reason}); {site.hint}") from None
    if not isinstance(found, dict) or not set(found) >= _ANSWER:
        raise TobanError(
            ErrorCode.INTERNAL, f"{site.url} left out a part of the answer; is it a site of Toban of this release?"
        )
    return found


def _refused(content: bytes, status: int) -> TobanError:
    try:
        problem = json.loads(content)
        return TobanError(ErrorCode(problem["code"]), str(problem["detail"]))
    except (ValueError, LookupError, TypeError):
        return TobanError(ErrorCode.UNAVAILABLE, f"the site answered with status {status}; is its address right?")
