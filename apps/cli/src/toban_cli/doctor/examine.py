"""Where the doctor looks: at a site and what is behind it, or at each address itself."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from toban_cli.client import missing_grpc
from toban_cli.cluster_config import CHOSEN, COORDINATORS, given
from toban_cli.doctor import checks
from toban_cli.doctor.merge import DIAGNOSE_SECONDS, from_message
from toban_cli.rest.site import CONTEXT, HOME, URL, Site, read_site
from toban_domain.errors import TobanError
from toban_domain.finding import Finding

if TYPE_CHECKING:
    from toban_runtime.clock import Clock


def examine(environ: Mapping[str, str], clock: Clock) -> list[Finding]:
    """Every finding, in the order in which things depend on each other. Raises nothing for what is wrong out there."""
    named = any(environ.get(name) for name in (CHOSEN, URL, CONTEXT))
    at_site = named or not (given(environ, COORDINATORS)[1] or environ.get(HOME))
    missing = missing_grpc()
    if at_site or missing:
        try:
            site = read_site(environ)
        except TobanError as error:
            return [checks.unusable(error)]
        if site is not None:
            return _through(site)
        if missing:
            return [checks.unusable(missing)]
    from toban_cli.doctor.probe import look

    return look(environ, clock)


def _through(site: Site) -> list[Finding]:
    """What a site says: whose token it is, and what the coordinators behind it find. Certificates and addresses behind it are out of sight."""
    from toban_cli.rest.client import RestClient
    from toban_proto.v1.coordinator_pb2 import AuthenticateRequest, DiagnoseRequest

    found: list[Finding] = []
    try:
        client = RestClient(site)
        try:
            who = client.call("Accounts.Authenticate", AuthenticateRequest())
            found.append(Finding(name="site", subject=site.url, value=f"{who.user}, role {who.role or 'none'}"))
            diagnosis = client.call("Operations.Diagnose", DiagnoseRequest(), timeout=DIAGNOSE_SECONDS)
        finally:
            client.close()
    except TobanError as error:
        message, _, remedy = error.message.partition("; ")
        facts = {"value": str(error.code), "message": message, "remedy": remedy or site.hint}
        return [*found, Finding(name="site", subject=site.url, status="error", **facts)]
    return found + [from_message(check) for check in diagnosis.checks]
