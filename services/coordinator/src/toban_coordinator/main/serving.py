"""The gRPC server of a coordinator with every service that it has. What no servicer implements yet answers UNIMPLEMENTED."""

from __future__ import annotations

from toban_coordinator.config import CoordinatorConfig
from toban_coordinator.main.health import Health
from toban_coordinator.main.parts import Connections, Parts
from toban_coordinator.server import registry
from toban_coordinator.server.gateway import Gateway, GatewayDeps, Neighbours
from toban_coordinator.server.jobs import JobControl
from toban_coordinator.server.peer import PeerServer
from toban_coordinator.server.reader import JobReader
from toban_coordinator.server.report import Reports
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
        neighbours=Neighbours(coordinators=parts.presence.addresses, log_archivers=config.log_archivers),
        clock=clock,
    )
    peer = PeerServer(
        incarnation=parts.leadership.me.incarnation, leader=parts.leadership, now=parts.server_time, clock=clock
    )
    # The type stubs call the generated bases abstract; at run time methods that nobody wrote answer UNIMPLEMENTED.
    servicers = registry.Servicers(
        gateway=Gateway(deps=gateway, ids=IdSource()),  # type: ignore[abstract]
        peer=peer,
        control=JobControl(pool=connections.pool),  # type: ignore[abstract]
        reader=JobReader(pool=connections.pool, clock=clock, health=health.document),  # type: ignore[abstract]
    )
    server = build_server(tls=connections.tls, trust_domain=config.trust_domain, clock=clock)
    registry.add_all(server, servicers)
    return server
