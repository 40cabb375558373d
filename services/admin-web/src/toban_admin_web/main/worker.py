"""The wiring of the worker process: connections, application, probe, admin port."""

from __future__ import annotations

import threading
from functools import partial

from toban_admin_web.adapters.api_client import ApiClient
from toban_admin_web.adapters.change_client import ChangeClient
from toban_admin_web.adapters.hook_client import HookClient
from toban_admin_web.adapters.join_client import JoinClient
from toban_admin_web.adapters.log_client import LogClient
from toban_admin_web.adapters.oidc_token import TokenEndpoint
from toban_admin_web.adapters.people_client import PeopleClient
from toban_admin_web.adapters.webhook_client import WebhookClient
from toban_admin_web.adapters.webhook_http import WebhookPoster
from toban_admin_web.config import AdminWebConfig
from toban_admin_web.loops.changes import ChangeWatcher
from toban_admin_web.loops.probe import Probe
from toban_admin_web.loops.webhooks import WebhookSender
from toban_admin_web.server.app import create_app
from toban_admin_web.server.health import Health
from toban_admin_web.views import api_docs, find, hooks, joining, live
from toban_admin_web.views.api import routes
from toban_admin_web.views.api.all_endpoints import ENDPOINTS
from toban_admin_web.views.api.request_rate import RequestRate
from toban_admin_web.views.cluster import (
    archive,
    audit,
    cluster,
    cluster_actions,
    dashboard,
    executors,
    incoming,
    invites,
    limits,
    settings,
    webhooks,
)
from toban_admin_web.views.definitions import definition_edit, events, job_actions, jobs, load, schedules, spread
from toban_admin_web.views.leader_pill import LeaderPill
from toban_admin_web.views.live_pages import LivePages
from toban_admin_web.views.part_cache import PartCache
from toban_admin_web.views.people import account, groups, oidc, rules, secrets, sign_in, users
from toban_admin_web.views.people.oidc_limits import OidcLimits
from toban_admin_web.views.people.session_gate import SessionGate
from toban_admin_web.views.runs import bulk_actions, log, log_view, run_actions, runs, timeline
from toban_admin_web.views.view_context import StreamSlots, ViewContext
from toban_domain.version import VERSION
from toban_observability import tracing
from toban_observability.admin_thread import AdminThread
from toban_observability.error_rate import ErrorRate
from toban_observability.metrics import build_info
from toban_runtime.clock import Clock, SystemClock
from toban_runtime.ids import IdSource
from toban_runtime.json_http import JsonHttp
from toban_runtime.lifecycle import write_ready_file
from toban_transport.replica_client import Fleet
from toban_transport.tls import TlsFiles
from toban_transport.tls_reload import CertificateWatch

SERVICE = "admin-web"
HINT = "See what runs with `toban dev status`, start it with `toban dev`"
# Applying many manifests takes longer than a page.
API_WRITE_SECONDS = 30.0
_PAGES = (
    account,
    api_docs,
    archive,
    audit,
    bulk_actions,
    cluster,
    cluster_actions,
    dashboard,
    definition_edit,
    events,
    executors,
    find,
    groups,
    incoming,
    invites,
    job_actions,
    jobs,
    limits,
    live,
    load,
    log,
    log_view,
)
VIEWS = tuple(
    module.views
    for module in (
        *(
            *_PAGES,
            hooks,
            joining,
            oidc,
            rules,
            run_actions,
            runs,
            schedules,
            secrets,
            settings,
            sign_in,
            spread,
            timeline,
        ),
        *(users, webhooks),
    )
)


class SiteWorker:
    """Built after the fork. `app` is the Flask application and `context` the dependencies of its views.

    `number` counts the workers of the process from 0 on. They share nothing, as replicas do.
    """

    def __init__(self, *, config: AdminWebConfig, http_port: int, stopping: threading.Event, number: int = 0) -> None:
        self._config = config
        self._number = number
        self._http_port = http_port
        clock, tls = SystemClock(), TlsFiles(config.tls_dir)
        replicas = partial(Fleet, tls=tls, trust_domain=config.trust_domain, hint=HINT)
        self._coordinators = replicas(service="coordinator", addresses=config.coordinators)
        self._archivers = replicas(service="log-archiver", addresses=config.log_archivers)
        self._changes = ChangeWatcher(source=ChangeClient(coordinators=self._coordinators), clock=clock)
        self.context = self._make_context(clock, stopping)
        self.app = create_app(web_dir=config.web_dir, clock=clock, ids=IdSource(), http_names=config.http_names)
        self.context.install(self.app, VIEWS)
        routes.install(self.app, ENDPOINTS)
        certificate = CertificateWatch(tls=tls, clock=clock)
        errors = ErrorRate({"toban_site_requests_total": lambda labels: labels["status"].startswith("5")})

        def on_tick() -> None:
            certificate.look()
            errors.sample(clock.monotonic())

        self._probe = Probe(upstreams=[self._coordinators, self._archivers], on_tick=on_tick)
        self._webhooks = WebhookSender(
            outbox=WebhookClient(coordinators=self._coordinators),
            poster=WebhookPoster(allow=config.webhook_allow, ca_file=config.webhook_ca_file),
            senders=config.webhook_senders_of(number),
        )
        health = Health(
            upstreams=self._probe.serving,
            streams=self.context.stream_slots.usage,
            errors=errors.check,
            tls=tls,
            clock=clock,
        )
        self._admin = AdminThread(
            config.admin_host, config.admin_port_of(number), health.document, token_file=config.admin_token_file
        )

    def _make_context(self, clock: Clock, stopping: threading.Event) -> ViewContext:
        config = self._config
        return ViewContext(
            open_caller=lambda credential: ApiClient(
                coordinators=self._coordinators,
                clock=clock,
                credential=credential,
                read_seconds=config.request_seconds,
                write_seconds=API_WRITE_SECONDS,
            ),
            rate=RequestRate(per_minute=config.api_rate, clock=clock),
            gate=SessionGate(
                people=PeopleClient(coordinators=self._coordinators, clock=clock), proxies=config.http_proxies
            ),
            id_tokens=TokenEndpoint(
                http=JsonHttp(ca_file=config.oidc_ca_file, at_once=config.max_oidc_steps),
                secret=config.oidc_client_secret,
            ),
            oidc_limits=OidcLimits(clock=clock, at_once=config.max_oidc_steps),
            logs=LogClient(archivers=self._archivers),
            hooks=HookClient(coordinators=self._coordinators),
            joining=JoinClient(coordinators=self._coordinators),
            leader_pill=LeaderPill(clock=clock),
            changes=self._changes,
            live_pages=LivePages(config.max_live_pages),
            parts=PartCache(clock=clock, number=lambda: self._changes.number),
            clock=clock,
            stream_slots=StreamSlots(config.max_streams),
            stopping=stopping,
        )

    def start(self, parent_pid: int) -> None:
        """Opens the admin port and reports the ports to the launcher; called when the worker serves."""
        build_info(SERVICE, VERSION)
        tracing.setup(SERVICE, VERSION)
        self._probe.start()
        self._webhooks.start()
        self._changes.start()
        admin_port = self._admin.start()
        if self._number == 0:
            write_ready_file(self._config.ready_file, http_port=self._http_port, admin_port=admin_port, pid=parent_pid)

    def stop(self) -> None:
        """Ends connections and threads; called when the worker has finished its requests."""
        self._webhooks.stop()
        self.close()
        self._admin.stop()
        self._probe.stop()

    def close(self) -> None:
        """Ends live logs and connections."""
        self.context.stopping.set()
        self._changes.stop()
        self._coordinators.close()
        self._archivers.close()
