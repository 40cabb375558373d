"""The gRPC server of a coordinator with every service that it has. What has no implementation yet answers UNIMPLEMENTED."""

from __future__ import annotations

from datetime import timedelta

from toban_coordinator.adapters.archivers import Archivers
from toban_coordinator.adapters.claim_logs import ClaimLogCalls
from toban_coordinator.adapters.signer import SignerClient
from toban_coordinator.adapters.ticket_renewal import TicketRenewal
from toban_coordinator.app.cluster.diagnose import Diagnose
from toban_coordinator.app.cluster.operations_archive import ArchiveOperations
from toban_coordinator.app.cluster.operations_leader import LeaderOperations
from toban_coordinator.app.cluster.operations_settings import SettingsOperations
from toban_coordinator.app.cluster.overview import Overviews
from toban_coordinator.app.definition_cache import DefinitionCache
from toban_coordinator.app.definitions.apply import Apply
from toban_coordinator.app.definitions.delete_job import DeleteJob
from toban_coordinator.app.definitions.disable_job import DisableJob
from toban_coordinator.app.executors.certificate_renewals import CertificateRenewals
from toban_coordinator.app.executors.executor_sessions import ExecutorSessions, Neighbours, SessionDeps
from toban_coordinator.app.executors.incarnation_keys import IncarnationKeys
from toban_coordinator.app.executors.invites import Invites
from toban_coordinator.app.executors.operations_executors import ExecutorOperations
from toban_coordinator.app.executors.operations_groups import GroupOperations
from toban_coordinator.app.external.claim_ends import ClaimEnds
from toban_coordinator.app.external.claim_heartbeats import ClaimHeartbeats
from toban_coordinator.app.external.claim_log import ClaimLog
from toban_coordinator.app.external.claim_names import ClaimTypes
from toban_coordinator.app.limits.breakers import BreakerOperations
from toban_coordinator.app.limits.operations_limits import LimitOperations
from toban_coordinator.app.notifications.events import Events
from toban_coordinator.app.notifications.hook_receiver import HookReceiver
from toban_coordinator.app.notifications.operations_hooks import HookOperations
from toban_coordinator.app.notifications.operations_webhooks import WebhookOperations
from toban_coordinator.app.notifications.webhook_outbox import WebhookOutbox
from toban_coordinator.app.payload_validator import PayloadValidator
from toban_coordinator.app.people.accounts import Accounts
from toban_coordinator.app.people.credentials import Credentials
from toban_coordinator.app.people.oidc_sign_in import OidcRules, OidcSignIn
from toban_coordinator.app.people.own_account import OwnAccount
from toban_coordinator.app.people.passwords import Passwords
from toban_coordinator.app.people.sign_in import SignIn
from toban_coordinator.app.runs.cancel import CancelRun
from toban_coordinator.app.runs.change_runs import ChangeRuns
from toban_coordinator.app.runs.continuations import Continuations
from toban_coordinator.app.runs.declare_lost import DeclareLost
from toban_coordinator.app.runs.job_reads import JobReads
from toban_coordinator.app.runs.report_queue import ReportQueue
from toban_coordinator.app.runs.rerun import RunRepeats
from toban_coordinator.app.runs.run_counts import CountRuns
from toban_coordinator.app.runs.run_usage import RunUsages
from toban_coordinator.app.runs.start_runs import StartRuns
from toban_coordinator.app.schedules.coming_load import ComingLoads
from toban_coordinator.app.schedules.schedules import Schedules
from toban_coordinator.app.secrets.operations_secrets import SecretOperations
from toban_coordinator.config import CoordinatorConfig
from toban_coordinator.main.health import Health
from toban_coordinator.main.wiring import Coordinator
from toban_coordinator.server.accounts import AccountsDeps, AccountsService
from toban_coordinator.server.archive_gateway import ArchiveGateway
from toban_coordinator.server.change_feed import ChangeFeedService
from toban_coordinator.server.executor_gateway import Gateway, GatewayDeps
from toban_coordinator.server.external_work import ExternalWork, ExternalWorkDeps
from toban_coordinator.server.hooks import HookReceiverService, HooksService
from toban_coordinator.server.job_control import JobControl, JobControlDeps
from toban_coordinator.server.job_reader import JobReader, JobReaderDeps
from toban_coordinator.server.joining import CertificateRenewalService, InvitesService, JoinGatewayService
from toban_coordinator.server.operations import Operations, OperationsDeps
from toban_coordinator.server.peer_service import PeerServer
from toban_coordinator.server.person_check import PeopleCheck
from toban_coordinator.server.registry import Servicers, add_all
from toban_coordinator.server.webhooks import WebhookOutboxService, WebhooksService
from toban_domain.version import VERSION
from toban_runtime.json_http import JsonHttp
from toban_transport.log_ticket import TicketSigner
from toban_transport.read_ticket import ReadTicketSigner
from toban_transport.server import GrpcServer, build_server
from toban_transport.signed_epoch import EpochSigner, EpochVerifier


def build(config: CoordinatorConfig, parts: Coordinator, health: Health) -> GrpcServer:
    """The server, not started yet."""
    accounts = _accounts(config, parts)
    archivers = Archivers(channels=parts.connections.channels, addresses=config.log_archivers, clock=parts.clock)
    server = build_server(
        tls=parts.connections.tls,
        trust_domain=config.trust_domain,
        clock=parts.clock,
        shared_identity=config.tls_shared_identity,
        people=PeopleCheck(pool=parts.connections.pool, credentials=accounts.credentials),
    )
    tls = parts.connections.tls
    signer = SignerClient(channels=parts.connections.channels, addresses=config.signer, clock=parts.clock)
    invites = _invites(config, parts, signer)
    servicers = Servicers(
        gateway=_gateway(config, parts),
        peer=PeerServer(
            incarnation=parts.leadership.me.incarnation,
            leader=parts.leadership,
            now=parts.server_time,
            settings=parts.settings,
        ),
        control=_job_control(parts),
        reader=_job_reader(parts, health, archivers),
        operations=_operations(parts, archivers),
        external=ExternalWork(deps=_external_work(config, parts)),
        changes=ChangeFeedService(feed=parts.changes),
        archive=ArchiveGateway(pool=parts.connections.pool, settings=parts.settings_streams),
        accounts=AccountsService(deps=accounts),
        webhooks=WebhooksService(
            operations=WebhookOperations(pool=parts.connections.pool, keys=parts.secret_keys), now=parts.server_time.now
        ),
        webhook_outbox=WebhookOutboxService(outbox=_webhook_outbox(parts)),
        hooks=HooksService(
            operations=HookOperations(pool=parts.connections.pool, keys=parts.secret_keys, now=parts.server_time.now)
        ),
        invites=InvitesService(invites=invites),
        join_gateway=JoinGatewayService(
            invites=invites, trust_domain=config.trust_domain, authorities=lambda: tls.current().ca_pem
        ),
        renewal=CertificateRenewalService(
            renewals=CertificateRenewals(
                pool=parts.connections.pool, signer=signer, denied=lambda: tls.current().denied
            ),
            authorities=lambda: tls.current().ca_pem,
        ),
        hook_receiver=HookReceiverService(
            receiver=HookReceiver(pool=parts.connections.pool, keys=parts.secret_keys, now=parts.server_time.now)
        ),
    )
    add_all(server, servicers)
    return server


# The type stubs call the generated bases abstract; at run time methods without an implementation answer UNIMPLEMENTED.


def _gateway(config: CoordinatorConfig, parts: Coordinator) -> Gateway:
    reports = ReportQueue(pool=parts.connections.pool, wakes=parts.wakes)
    sessions = SessionDeps(
        pool=parts.connections.grant_pool,
        leader=parts.leadership,
        reports=reports,
        mirror=parts.mirror,
        on_progress=parts.progress.put,
        on_steps=parts.progress.put_steps,
        neighbours=Neighbours(
            coordinators=parts.presence.addresses,
            subleader=parts.presence.subleader_of,
            log_archivers=config.log_archivers,
        ),
        settings=parts.settings,
        server_time=parts.server_time,
        clock=parts.clock,
        ids=parts.ids,
    )
    signer = EpochSigner(parts.connections.tls)
    deps = GatewayDeps(
        keys=IncarnationKeys(
            pool=parts.connections.grant_pool,
            coordinator=parts.leadership.me.incarnation,
            sign=lambda proof: signer.sign(proof).SerializeToString(),
        ),
        sessions=ExecutorSessions(deps=sessions),
        continuations=Continuations(pool=parts.connections.grant_pool, settings=parts.settings, clock=parts.clock),
        reports=reports,
        settings=parts.settings_streams,
        signer=signer,
        verifier=EpochVerifier(parts.connections.tls, config.trust_domain, shared_identity=config.tls_shared_identity),
        tickets=TicketRenewal(
            parts.connections.tls,
            config.trust_domain,
            shared_identity=config.tls_shared_identity,
            clock=parts.clock,
        ),
    )
    return Gateway(deps=deps)


def _job_control(parts: Coordinator) -> JobControl:
    pool, definitions = parts.connections.pool, DefinitionCache()
    start = StartRuns(pool=pool, definitions=definitions, payloads=PayloadValidator(), fast_path=parts.fast_path)
    cancel = CancelRun(pool=pool, definitions=definitions)
    repeats = RunRepeats(pool=pool, start=start)
    deps = JobControlDeps(
        apply=Apply(pool=pool),
        start=start,
        cancel=cancel,
        repeats=repeats,
        changes=ChangeRuns(pool=pool, cancel_run=cancel, repeats=repeats, clock=parts.clock),
        jobs=DeleteJob(pool=pool, cancel=cancel),
        switches=DisableJob(pool=pool),
        lost=DeclareLost(pool=pool),
        events=Events(pool=pool),
        schedules=Schedules(pool=pool),
        reads=JobReads(pool=pool, clock=parts.clock),
    )
    return JobControl(deps=deps)


def _external_work(config: CoordinatorConfig, parts: Coordinator) -> ExternalWorkDeps:
    pool, connections = parts.connections.pool, parts.connections
    logs = ClaimLogCalls(
        channels=connections.channels,
        addresses=config.log_archivers,
        clock=parts.clock,
        signer=TicketSigner(connections.tls),
    )
    return ExternalWorkDeps(
        claims=parts.claims,
        heartbeats=ClaimHeartbeats(pool=parts.connections.grant_pool),
        log=ClaimLog(pool=pool, logs=logs),
        ends=ClaimEnds(pool=pool, logs=logs, now=parts.server_time.now),
        types=ClaimTypes(pool=pool),
    )


def _job_reader(parts: Coordinator, health: Health, archivers: Archivers) -> JobReader:
    pool = parts.connections.pool
    deps = JobReaderDeps(
        reads=JobReads(pool=pool, clock=parts.clock),
        counts=CountRuns(pool=pool),
        events=Events(pool=pool),
        schedules=Schedules(pool=pool),
        loads=ComingLoads(pool=pool, clock=parts.clock),
        overviews=Overviews(pool=pool, clock=parts.clock, health=health.document),
        usages=RunUsages(pool=pool, probe=parts.orders),
        health=health.document,
        archive=archivers.status,
        signer=ReadTicketSigner(parts.connections.tls),
        clock=parts.clock,
    )
    return JobReader(deps=deps)


def _accounts(config: CoordinatorConfig, parts: Coordinator) -> AccountsDeps:
    pool, passwords, ids = parts.connections.pool, Passwords(), parts.ids
    sign_in = SignIn(pool=pool, passwords=passwords, ids=ids)
    return AccountsDeps(
        accounts=Accounts(pool=pool, passwords=passwords, ids=ids),
        sign_in=sign_in,
        oidc=_oidc(config, parts),
        own=OwnAccount(pool=pool, passwords=passwords, sign_in=sign_in),
        credentials=Credentials(sign_in=sign_in, clock=parts.clock),
    )


def _oidc(config: CoordinatorConfig, parts: Coordinator) -> OidcSignIn:
    if not config.oidc_issuer:
        return OidcSignIn(pool=parts.connections.pool, ids=parts.ids)
    # Its library takes a tenth of a second to load.
    from toban_coordinator.adapters.oidc_provider import HttpsOidcProvider

    rules = OidcRules(
        issuer=config.oidc_issuer,
        client_id=config.oidc_client_id,
        name=config.oidc_shown,
        scope=config.oidc_scope,
        groups_claim=config.oidc_groups_claim,
        grants=config.oidc_groups,
        creates_accounts=config.oidc_create_accounts,
        session_lasts=timedelta(minutes=config.oidc_session_minutes),
        passwords=config.password_sign_in,
    )
    http = JsonHttp(ca_file=config.oidc_ca_file)
    provider = HttpsOidcProvider(issuer=config.oidc_issuer, http=http, clock=parts.clock)
    return OidcSignIn(pool=parts.connections.pool, ids=parts.ids, rules=rules, provider=provider)


def _invites(config: CoordinatorConfig, parts: Coordinator, signer: SignerClient) -> Invites:
    return Invites(
        pool=parts.connections.pool,
        ids=parts.ids,
        signer=signer,
        coordinators=parts.presence.addresses,
        log_archivers=config.log_archivers,
    )


def _webhook_outbox(parts: Coordinator) -> WebhookOutbox:
    return WebhookOutbox(pool=parts.connections.pool, keys=parts.secret_keys, ids=parts.ids, now=parts.server_time.now)


def _operations(parts: Coordinator, archivers: Archivers) -> Operations:
    pool, clock = parts.connections.pool, parts.clock
    deps = OperationsDeps(
        pool=pool,
        settings=SettingsOperations(pool=pool),
        limits=LimitOperations(pool=pool),
        secrets=SecretOperations(pool=pool, keys=parts.secret_keys),
        breakers=BreakerOperations(pool=pool),
        executors=ExecutorOperations(pool=pool),
        groups=GroupOperations(pool=pool),
        leader=LeaderOperations(pool=pool, leader=parts.leadership, clock=clock),
        archive=ArchiveOperations(pool=pool, archivers=archivers),
        diagnose=Diagnose(
            pool=pool, redis=parts.connections.redis, secret_keys=parts.secret_keys, clock=clock, release=VERSION
        ),
    )
    return Operations(deps=deps)
