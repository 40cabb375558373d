"""Every service of a coordinator, added to its gRPC server."""

from __future__ import annotations

from dataclasses import dataclass

from toban_proto.v1 import coordinator_pb2_grpc as rpc
from toban_proto.v1 import hooks_pb2_grpc, joining_pb2_grpc, webhooks_pb2_grpc
from toban_transport.server import GrpcServer


@dataclass(frozen=True, slots=True, kw_only=True)
class Servicers:
    """The services of a coordinator."""

    gateway: rpc.ExecutorGatewayServicer
    peer: rpc.PeerServicer
    control: rpc.JobControlServicer
    reader: rpc.JobReaderServicer
    operations: rpc.OperationsServicer
    external: rpc.ExternalWorkServicer
    archive: rpc.ArchiveGatewayServicer
    changes: rpc.ChangeFeedServicer
    accounts: rpc.AccountsServicer
    webhooks: webhooks_pb2_grpc.WebhooksServicer
    webhook_outbox: webhooks_pb2_grpc.WebhookOutboxServicer
    hooks: hooks_pb2_grpc.HooksServicer
    hook_receiver: hooks_pb2_grpc.HookReceiverServicer
    invites: joining_pb2_grpc.InvitesServicer
    join_gateway: joining_pb2_grpc.JoinGatewayServicer
    renewal: joining_pb2_grpc.CertificateRenewalServicer


def add_all(server: GrpcServer, servicers: Servicers) -> None:
    """Add them. A method without an implementation answers UNIMPLEMENTED."""
    server.add(rpc.add_ExecutorGatewayServicer_to_server, servicers.gateway)
    server.add(rpc.add_PeerServicer_to_server, servicers.peer)
    server.add(rpc.add_JobControlServicer_to_server, servicers.control)
    server.add(rpc.add_JobReaderServicer_to_server, servicers.reader)
    server.add(rpc.add_OperationsServicer_to_server, servicers.operations)
    server.add(rpc.add_ArchiveGatewayServicer_to_server, servicers.archive)
    server.add(rpc.add_ChangeFeedServicer_to_server, servicers.changes)
    server.add(rpc.add_AccountsServicer_to_server, servicers.accounts)
    server.add(webhooks_pb2_grpc.add_WebhooksServicer_to_server, servicers.webhooks)
    server.add(webhooks_pb2_grpc.add_WebhookOutboxServicer_to_server, servicers.webhook_outbox)
    server.add(hooks_pb2_grpc.add_HooksServicer_to_server, servicers.hooks)
    server.add(hooks_pb2_grpc.add_HookReceiverServicer_to_server, servicers.hook_receiver)
    server.add(joining_pb2_grpc.add_InvitesServicer_to_server, servicers.invites)
    server.add(joining_pb2_grpc.add_JoinGatewayServicer_to_server, servicers.join_gateway)
    server.add(joining_pb2_grpc.add_CertificateRenewalServicer_to_server, servicers.renewal)
    server.add(rpc.add_ExternalWorkServicer_to_server, servicers.external)
