"""Certificates that several services have in common: refused unless the installation says that it wants that, and never in silence."""

from toban_domain.errors import ErrorCode, TobanError
from toban_observability import metrics
from toban_observability.logs import get_logger
from toban_transport.authz import is_shared, name_of
from toban_transport.identity import spiffe_ids
from toban_transport.tls import CERTIFICATE, TlsFiles

_log = get_logger(__name__)
_accepted = metrics.gauge(
    "toban_tls_shared_identity",
    "1 = this process accepts certificates that several services share: each of them can impersonate the others.",
)


def accept(tls: TlsFiles, *, trust_domain: str, shared: bool) -> None:
    """Say at the start whether shared certificates count here. Raises CONFIG_INVALID when they do not and our own is one."""
    _accepted.set(shared)
    if shared:
        _log.warning(
            "shared certificates are accepted: every service can pass for every other one; issue one a service when you can"
        )
        return
    try:
        name = name_of(spiffe_ids(tls.current().certificate), trust_domain)
    except TobanError:
        # Not for us to judge: others will refuse it, and say why.
        return
    if is_shared(name):
        raise TobanError(
            ErrorCode.CONFIG_INVALID,
            f"{tls.directory / CERTIFICATE}: is a shared certificate ({name}), which no service accepts; issue one certificate a service, "
            "or set SCHEDULER_TLS_SHARED_IDENTITY=1 for every service",
        )
