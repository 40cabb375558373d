"""The gRPC server of a coordinator with every service that it has. What no servicer implements yet answers UNIMPLEMENTED."""

from __future__ import annotations

from toban_coordinator.config import CoordinatorConfig
from toban_coordinator.main.health import Health
from toban_coordinator.main.wiring import Connections, Parts
from toban_coordinator.server import registry
from toban_coordinator.server.archive_gateway import ArchiveGateway
from toban_coordinator.server.diagnose import Doctor
from toban_coordinator.server.executor_gateway import Gateway, GatewayDeps, Neighbours
from toban_coordinator.server.job_control import JobControl
from toban_coordinator.server.job_reader import JobReader
from toban_coordinator.server.operations import Operations, OperationsDeps
from toban_coordinator.server.operations_executors import ExecutorDesk
from toban_coordinator.server.operations_leader import LeaderDesk
from toban_coordinator.server.operations_settings import SettingsDesk
from toban_coordinator.server.peer_service import PeerServer
from toban_coordinator.server.report_queue import Reports
from toban_domain.version import VERSION
from toban_runtime.clock import Clock
from toban_runtime.ids import IdSource
from toban_transport.server import GrpcServer, build_server


def build(
    config: CoordinatorConfig, connections: Connections, parts: Parts, health: Health, clock: Clock
) -> GrpcServer:
    """The server, not started yet."""
    gateway = GatewayDeps(
        pool=connections.grant_pool,
        leader=parts.leadership,
        reports=Reports(pool=connections.pool),
        mirror=parts.mirror,
        on_progress=parts.progress.put,
        neighbours=Neighbours(coordinators=parts.presence.addresses, log_archivers=config.log_archivers),
        settings=parts.settings,
        settings_streams=parts.settings_streams,
        server_time=parts.server_time,
        clock=clock,
    )
    peer = PeerServer(
        incarnation=parts.leadership.me.incarnation,
        leader=parts.leadership,
        now=parts.server_time,
        settings=parts.settings,
    )
    operations = OperationsDeps(
        pool=connections.pool,
        settings=SettingsDesk(pool=connections.pool),
        executors=ExecutorDesk(pool=connections.pool),
        leader=LeaderDesk(pool=connections.pool, leader=parts.leadership, clock=clock),
        doctor=Doctor(pool=connections.pool, redis=connections.redis, clock=clock, release=VERSION),
    )
    # The type stubs call the generated bases abstract; at run time methods that nobody wrote answer UNIMPLEMENTED.
    servicers = registry.Servicers(
        gateway=Gateway(deps=gateway, ids=IdSource()),  # type: ignore[abstract]
        peer=peer,
        control=JobControl(pool=connections.pool, desk=parts.desk),  # type: ignore[abstract]
        reader=JobReader(pool=connections.pool, clock=clock, health=health.document),  # type: ignore[abstract]
        operations=Operations(deps=operations),  # type: ignore[abstract]
        archive=ArchiveGateway(pool=connections.pool, settings=parts.settings_streams),
    )
    server = build_server(
        tls=connections.tls,
        trust_domain=config.trust_domain,
        clock=clock,
        shared_identity=config.tls_shared_identity,
    )
    registry.add_all(server, servicers)
    return server
