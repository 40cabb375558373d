"""Machines that join, over gRPC. The site checks no token: coordinators have their hashes."""

from __future__ import annotations

from toban_admin_web.ports.joining import Applicant, Joined
from toban_proto.v1 import joining_pb2 as pb
from toban_proto.v1.joining_pb2_grpc import JoinGatewayStub
from toban_transport.convert import timestamp_from_pb
from toban_transport.replica_client import Fleet

# Longer than a coordinator waits for the signer. When the connection breaks, the next coordinator is asked: it refuses the token when the
# lost answer has used it up (docs/joining.md).
CALL_SECONDS = 10.0


class JoinClient:
    """Any coordinator answers."""

    def __init__(self, *, coordinators: Fleet) -> None:
        self._coordinators = coordinators

    def join(self, applicant: Applicant) -> Joined:
        """Join."""
        request = pb.JoinRequest(
            token=applicant.token,
            request_pem=applicant.request.encode(),
            machine=applicant.machine,
            address=applicant.address,
        )
        answer = self._coordinators.call(lambda channel: JoinGatewayStub(channel).Join, request, timeout=CALL_SECONDS)
        ends_at = timestamp_from_pb(answer.ends_at)
        assert ends_at is not None, "coordinators name the end"
        return Joined(
            certificate=answer.certificate_pem.decode(),
            authorities=answer.authorities_pem.decode(),
            group=answer.group,
            trust_domain=answer.trust_domain,
            coordinators=list(answer.coordinators),
            log_archivers=list(answer.log_archivers),
            ends_at=ends_at,
        )
