"""What one worker process consists of: connections, site, probe, admin port."""

from __future__ import annotations

import threading

from toban_admin_web.adapters.cluster_client import ClusterClient
from toban_admin_web.adapters.log_client import LogClient
from toban_admin_web.config import AdminWebConfig
from toban_admin_web.decide.messages import Messages
from toban_admin_web.loops.probe import Probe
from toban_admin_web.ports.cluster import ClusterReader
from toban_admin_web.server.app import create_app
from toban_admin_web.server.health import Health
from toban_admin_web.views.site import Places, Site
from toban_domain.version import VERSION
from toban_observability import tracing
from toban_observability.admin_thread import AdminThread
from toban_observability.error_rate import ErrorRate
from toban_observability.metrics import build_info
from toban_runtime.clock import SystemClock
from toban_runtime.ids import IdSource
from toban_runtime.lifecycle import write_ready_file
from toban_transport.replica_client import Fleet
from toban_transport.tls import TlsFiles
from toban_transport.tls_reload import CertificateWatch


class Running:
    """Built after the fork. `start` opens the admin port and tells the launcher; `stop` ends connections and threads."""

    def __init__(
        self, *, config: AdminWebConfig, messages: Messages, http_port: int, hint: str, stopping: threading.Event
    ) -> None:
        self._config = config
        self._http_port = http_port
        self._clock = SystemClock()
        self._tls = TlsFiles(config.tls_dir)
        self._coordinators = self._fleet("coordinator", config.coordinators, hint)
        self._archivers = self._fleet("log-archiver", config.log_archivers, hint)
        self.site = self._site(messages, stopping)
        self.app = create_app(self.site, config.web_dir)
        watch = CertificateWatch(tls=self._tls, clock=self._clock)
        self._errors = ErrorRate({"toban_site_requests_total": lambda labels: labels["status"].startswith("5")})

        def beside() -> None:
            watch.look()
            self._errors.sample(self._clock.monotonic())

        self._probe = Probe(upstreams=[self._coordinators, self._archivers], beside=beside)
        health = Health(
            seen=self._probe.seen,
            places=self.site.places,
            tls=self._tls,
            clock=self._clock,
            errors=self._errors.check,
        )
        self._admin = AdminThread(config.admin_host, config.admin_port, health.document)

    def start(self, parent_pid: int) -> None:
        """Called when the worker serves."""
        build_info("admin-web", VERSION)
        tracing.setup("admin-web", VERSION)
        self._probe.start()
        admin_port = self._admin.start()
        write_ready_file(self._config.ready_file, http_port=self._http_port, admin_port=admin_port, pid=parent_pid)

    def stop(self) -> None:
        """Called when the worker has ended its requests."""
        self.close()
        self._admin.stop()
        self._probe.stop()

    def close(self) -> None:
        """Ends live logs and connections."""
        self.site.stopping.set()
        self._coordinators.close()
        self._archivers.close()

    def _fleet(self, service: str, addresses: tuple[str, ...], hint: str) -> Fleet:
        return Fleet(
            service=service, addresses=addresses, tls=self._tls, trust_domain=self._config.trust_domain, hint=hint
        )

    def _site(self, messages: Messages, stopping: threading.Event) -> Site:
        return Site(
            open_reader=self._reader,
            logs=LogClient(fleet=self._archivers),
            clock=self._clock,
            ids=IdSource(),
            messages=messages,
            places=Places(self._config.max_streams),
            stopping=stopping,
            request_seconds=self._config.request_seconds,
            names=self._config.http_names,
        )

    def _reader(self, seconds: float) -> ClusterReader:
        return ClusterClient(fleet=self._coordinators, clock=self._clock, seconds=seconds)
