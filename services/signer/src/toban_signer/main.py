"""Wires the signer, serves until asked to stop."""

from __future__ import annotations

from datetime import timedelta
from functools import partial

from toban_domain.version import VERSION
from toban_observability import tracing
from toban_observability.admin_port import AdminPort
from toban_observability.health import report
from toban_observability.logs import get_logger, setup_logging
from toban_observability.metrics import build_info
from toban_runtime.clock import SystemClock
from toban_runtime.config import load
from toban_runtime.lifecycle import Stop, run_service, write_ready_file
from toban_signer.config import SignerConfig
from toban_signer.server import SignerService, add_to_server, read_authority
from toban_transport.server import build_server
from toban_transport.tls import TlsFiles
from toban_transport.tls_reload import certificate_check

SERVICE = "signer"
GRACE_SECONDS = 5.0
_log = get_logger(__name__)


def run() -> int:
    """The process: its exit code."""
    config = load(SignerConfig)
    setup_logging(SERVICE, config.log_format, config.log_level)
    build_info(SERVICE, VERSION)
    tracing.setup(SERVICE, VERSION)
    return run_service(partial(serve, config))


async def serve(config: SignerConfig, stop: Stop) -> None:
    """Serves until `stop`. Raises TobanError CONFIG_INVALID for a bad authority, bad certificates or a taken port."""
    assert config.ca_dir is not None
    authority = partial(read_authority, config.ca_dir)
    authority()
    clock, tls = SystemClock(), TlsFiles(config.tls_dir)
    grpc = build_server(tls=tls, trust_domain=config.trust_domain, clock=clock)
    validity = timedelta(days=config.certificate_days)
    service = SignerService(authority=authority, trust_domain=config.trust_domain, validity=validity, clock=clock)
    grpc.add(add_to_server, service)
    admin = AdminPort(
        config.admin_host,
        config.admin_port,
        lambda: report({"certificate": certificate_check(tls, clock.wall())}),
        token_file=config.admin_token_file,
    )
    try:
        grpc_port = await grpc.start(config.grpc_host, config.grpc_port)
        admin_port = await admin.start()
        write_ready_file(config.ready_file, grpc_port=grpc_port, admin_port=admin_port)
        _log.info("signer serves", grpc_port=grpc_port, admin_port=admin_port)
        await stop.wait()
        _log.info("signer stops", reason=stop.reason)
        await grpc.stop(GRACE_SECONDS)
    finally:
        await grpc.stop(0)
        await admin.stop()
