"""Invites for people, machines that join by the site, and renewals of executors, over gRPC."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from toban_coordinator.app.executors.certificate_renewals import CertificateRenewals
from toban_coordinator.app.executors.invites import Invites
from toban_coordinator.server.from_proto import arguments_of
from toban_proto.v1 import joining_pb2 as pb
from toban_proto.v1.joining_pb2_grpc import CertificateRenewalServicer, InvitesServicer, JoinGatewayServicer
from toban_transport.call_context import peer_serial
from toban_transport.convert import fill, timestamp_to_pb
from toban_transport.server import actor_of, peer_group

Context = Any


class InvitesService(InvitesServicer):
    """Any coordinator answers."""

    def __init__(self, *, invites: Invites) -> None:
        self._invites = invites

    async def AddInvite(self, request: pb.AddInviteRequest, context: Context) -> pb.AddInviteResponse:
        """A new invite."""
        made, token = await self._invites.add(**arguments_of(request, context))
        return pb.AddInviteResponse(invite=fill(pb.Invite, made), token=token)

    async def ListInvites(self, _request: pb.ListInvitesRequest, _context: Context) -> pb.ListInvitesResponse:
        """All, the newest first."""
        return pb.ListInvitesResponse(invites=[fill(pb.Invite, one) for one in await self._invites.list()])

    async def RemoveInvite(self, request: pb.RemoveInviteRequest, context: Context) -> pb.RemoveInviteResponse:
        """Ends one."""
        given = arguments_of(request, context)
        await self._invites.remove(given.pop("id"), **given)
        return pb.RemoveInviteResponse()


class JoinGatewayService(JoinGatewayServicer):
    """The site has no person here."""

    def __init__(self, *, invites: Invites, trust_domain: str, authorities: Callable[[], bytes]) -> None:
        self._invites = invites
        self._trust_domain = trust_domain
        self._authorities = authorities

    async def Join(self, request: pb.JoinRequest, _context: Context) -> pb.JoinResponse:
        """What the machine needs."""
        joined = await self._invites.join(
            request.token, request.request_pem, machine=request.machine, address=request.address
        )
        return pb.JoinResponse(
            certificate_pem=joined.signed.certificate,
            authorities_pem=self._authorities(),
            group=joined.group,
            trust_domain=self._trust_domain,
            coordinators=joined.coordinators,
            log_archivers=joined.log_archivers,
            ends_at=timestamp_to_pb(joined.signed.ends_at),
        )


class CertificateRenewalService(CertificateRenewalServicer):
    """The identity is that of the caller's certificate."""

    def __init__(self, *, renewals: CertificateRenewals, authorities: Callable[[], bytes]) -> None:
        self._renewals = renewals
        self._authorities = authorities

    async def Renew(self, request: pb.RenewCertificateRequest, context: Context) -> pb.SignedCertificate:
        """A certificate for a new key, and the authorities to trust, which may be others than when the machine joined."""
        signed = await self._renewals.renew(
            request.request_pem, serial=peer_serial(context), group=peer_group(context), actor=actor_of(context)
        )
        return pb.SignedCertificate(
            certificate_pem=signed.certificate,
            ends_at=timestamp_to_pb(signed.ends_at),
            authorities_pem=self._authorities(),
        )
