"""Judges what `probe` found: files, servers, clocks, versions, health. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from toban_domain.certificate_expiry import ends_soon
from toban_domain.errors import TobanError
from toban_domain.finding import Finding, Status, format_check_value

if TYPE_CHECKING:
    from toban_transport.certificate_inspection import FileFacts, Identity

# This machine's clock, seconds off PostgreSQL's: it decides which certificates count as valid, and shows times.
CLOCK_WARNING, CLOCK_ERROR = 2.0, 60.0
_OTHERS_WRITE_OR_READ = 0o027


@dataclass(frozen=True, slots=True, kw_only=True)
class Visit:
    """What was found at one address. Each step is tried after the one before; `step` is the one that failed, `failed` why."""

    service: str
    address: str
    step: str = ""
    failed: str = ""
    # It accepts connections; nothing more was tried without certificates here.
    unchecked: bool = False
    identity: Identity | None = None
    version: str = ""
    health: Mapping[str, Any] | None = None
    # The server's PostgreSQL clock minus ours, and by how much that may be wrong, seconds.
    clock: tuple[float, float] | None = None

    @property
    def subject(self) -> str:
        """Service and address, as findings name it."""
        return f"{self.service} {self.address}"


def files(facts: FileFacts, *, service: str, trust_domain: str, now: datetime) -> list[Finding]:
    """Our own certificate: complete, ours, still valid, and its key private."""
    found = [
        _bad("tls-files", str(facts.directory / name), "unusable", f"{name} {why}", _REISSUE)
        for name, why in facts.problems
    ]
    if facts.key_matches is False:
        found.append(_bad("tls-files", str(facts.directory), "mixed", "tls.key is not the key of tls.crt", _REISSUE))
    if not found:
        found.append(Finding(name="tls-files", subject=str(facts.directory), value="whole"))
    found += _key_mode(facts)
    if facts.certificate is not None:
        found += _own(facts, facts.certificate, service=service, trust_domain=trust_domain, now=now)
    if facts.authorities_end is not None:
        found.append(ending(str(facts.directory / "ca.crt"), facts.authorities_end, now, facts.authorities_begin))
    return found


def no_files(directory: Path) -> Finding:
    """The folder of our certificates is missing: one finding instead of for each file and each server."""
    message = "the folder does not exist, so no server can be checked"
    return _bad("tls-files", str(directory), "missing", message, _REISSUE)


def unusable(error: TobanError) -> Finding:
    """A mistake in the environment."""
    problem, _, remedy = error.message.partition("; ")
    return _bad("configuration", "environment", "unusable", problem, remedy or "set TOBAN_COORDINATORS, TOBAN_TLS_DIR")


def ending(subject: str, not_after: datetime, now: datetime, not_before: datetime | None = None) -> Finding:
    """The validity of a certificate: an error when it is over or has not begun, a warning when its end is near."""
    value = f"valid until {not_after:%Y-%m-%d %H:%M} UTC"
    if not_before is not None and not_before > now:
        return _bad(
            "certificate",
            subject,
            f"valid from {not_before:%Y-%m-%d %H:%M} UTC",
            "it is not valid yet",
            "set the clock of this machine, or wait",
        )
    left = not_after - now
    if not ends_soon(now, ends=not_after, begins=not_before):
        return Finding(name="certificate", subject=subject, value=value)
    if left <= timedelta(0):
        return _bad("certificate", subject, value, "it has expired", _REISSUE)
    days = f"{left.days} days" if left.days > 1 else f"{left.total_seconds() / 3600:.0f} hours"
    return _bad("certificate", subject, value, f"it ends in {days}", _REISSUE, status="warning")


def server(visit: Visit, *, trust_domain: str, now: datetime) -> list[Finding]:
    """One address: reached, the right service with a good certificate, answering."""
    found: list[Finding] = []
    if visit.identity is not None:
        found += _shown(visit, visit.identity, trust_domain=trust_domain, now=now)
    if visit.failed:
        message, remedy = _FAILURES[visit.step]
        found.append(
            _bad("server", visit.subject, visit.step, f"{message.format(visit.service)}: {visit.failed}", remedy)
        )
    else:
        value = "is reachable; not checked further without our own certificate" if visit.unchecked else "answers"
        found.append(Finding(name="server", subject=visit.subject, value=value))
    return found + _health(visit)


def versions(visit: Visit, ours: str) -> list[Finding]:
    """The release of a server against that of this command; nothing when it is unknown."""
    if not visit.version:
        return []
    if visit.version == ours:
        return [Finding(name="version", subject=visit.subject, value=visit.version)]
    message = f"it runs {visit.version}, this command is {ours}"
    remedy = "use the command of the same release; adjacent releases work together during an upgrade only"
    return [_bad("version", visit.subject, visit.version, message, remedy, status="warning")]


def clock(visits: list[Visit]) -> list[Finding]:
    """This machine's clock, by the coordinator that responded fastest."""
    known = [visit.clock for visit in visits if visit.clock is not None]
    if not known:
        return []
    offset, doubt = min(known, key=lambda pair: pair[1])
    value = f"{-offset:+.2f} s against PostgreSQL (within {doubt:.2f} s)"
    certain = max(0.0, abs(offset) - doubt)
    if certain <= CLOCK_WARNING:
        return [Finding(name="clock", subject="this machine", value=value)]
    message = f"it is {abs(offset):.1f} s {'behind' if offset > 0 else 'ahead of'} PostgreSQL's clock"
    remedy = "synchronise it by NTP (chrony, systemd-timesyncd); certificates and times shown depend on it"
    return [
        _bad("clock", "this machine", value, message, remedy, status="error" if certain > CLOCK_ERROR else "warning")
    ]


def no_address(service: str, variable: str) -> Finding:
    """A service without a single address."""
    return _bad(
        "configuration",
        variable,
        "empty",
        f"no address of a {service} is configured, so none can be checked",
        f"set {variable}=host:port,host:port",
        status="warning",
    )


_REISSUE = "issue a new one for this service into the folder of SCHEDULER_TLS_DIR (in a clone, `make certs` renews those of the local stack)"
# Step → (what it means, the remedy).
_FAILURES = {
    "resolve": ("the host name of the {} cannot be resolved", "correct the address, or the DNS of this machine"),
    "connect": (
        "cannot connect to the {}",
        "check that it runs (`toban dev status` for the local stack), then the firewalls in between",
    ),
    "tls": ("the TLS handshake with the {} failed", "check that this is its gRPC port, not the admin port of /healthz"),
    "call": (
        "the {} is reachable, but a call failed",
        "see its log and /healthz for the reason, such as a refused certificate",
    ),
    "own certificate": (
        "the {} was not called",
        "correct our own certificate files first (see tls-files, key-mode and certificate)",
    ),
}


def _own(facts: FileFacts, certificate: Identity, *, service: str, trust_domain: str, now: datetime) -> list[Finding]:
    subject = str(facts.directory / "tls.crt")
    found = [ending(subject, certificate.not_after, now, certificate.not_before)]
    wanted = f"spiffe://{trust_domain}/{service}"
    if certificate.uris != (wanted,):
        shown = ", ".join(certificate.uris) or "no name"
        message = f"it names {shown}; servers accept this command only as {wanted}"
        found.append(_bad("identity", subject, shown, message, _REISSUE))
    else:
        found.append(Finding(name="identity", subject=subject, value=wanted))
    if certificate.trusted is False:
        message = "ca.crt did not issue tls.crt: servers of one authority refuse clients of another"
        found.append(_bad("trust", subject, "other authority", message, _REISSUE))
    return found


def _key_mode(facts: FileFacts) -> list[Finding]:
    if facts.key_mode is None:
        return []
    subject, value = str(facts.directory / "tls.key"), f"mode {facts.key_mode:04o}"
    if not facts.key_mode & _OTHERS_WRITE_OR_READ:
        return [Finding(name="key-mode", subject=subject, value=value)]
    message = "others on this machine can read or change the private key"
    return [
        _bad(
            "key-mode",
            subject,
            value,
            message,
            f"chmod 600 {subject}, and issue a new one if another account may have read it",
        )
    ]


def _shown(visit: Visit, identity: Identity, *, trust_domain: str, now: datetime) -> list[Finding]:
    wanted = f"{visit.service}.{trust_domain}"
    found = [ending(visit.subject, identity.not_after, now, identity.not_before)]
    if identity.trusted is False:
        message = "its certificate was not issued by our ca.crt"
        remedy = "give both sides certificates of one authority; if this is another cluster, correct the address"
        found.append(_bad("trust", visit.subject, "other authority", message, remedy))
    if wanted not in identity.dns:
        shown = ", ".join(identity.dns) or "no name"
        message = f"its certificate is that of {shown}, not of {wanted}"
        remedy = f"check that the address is that of a {visit.service}, and TOBAN_TRUST_DOMAIN here, SCHEDULER_TRUST_DOMAIN there"
        found.append(_bad("identity", visit.subject, shown, message, remedy))
    return found


def _health(visit: Visit) -> list[Finding]:
    """The checks of the server's /healthz that are not ok."""
    checks = (visit.health or {}).get("checks")
    if not isinstance(checks, Mapping):
        return []
    problems = {
        name: check for name, check in checks.items() if isinstance(check, Mapping) and check.get("status") != "ok"
    }
    if not problems:
        return [Finding(name="health", subject=visit.subject, value=f"{len(checks)} checks are ok")]
    return [
        _bad(
            "health",
            visit.subject,
            f"{name}: {format_check_value(check.get('value'))}",
            f"its /healthz reports that {name} is not ok",
            "see docs/operations.md for the check, and the log of the server",
            status="error" if check.get("status") == "error" else "warning",
        )
        for name, check in problems.items()
    ]


def _bad(name: str, subject: str, value: str, message: str, remedy: str, *, status: Status = "error") -> Finding:
    return Finding(name=name, subject=subject, value=value, status=status, message=message, remedy=remedy)
