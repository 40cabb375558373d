"""Collects what `checks` judges: configuration and files here, every address, the diagnosis of every server."""

from __future__ import annotations

import json
import socket
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

from toban_cli.cluster_config import IDENTITY, Settings, read_settings
from toban_cli.doctor import checks
from toban_cli.doctor.checks import Visit
from toban_cli.doctor.merge import DIAGNOSE_SECONDS, from_message, merged
from toban_cli.formatting import count
from toban_domain.errors import ErrorCode, TobanError
from toban_domain.finding import Finding
from toban_domain.version import VERSION
from toban_runtime.clock import Clock
from toban_transport.certificate_inspection import inspect_files, served
from toban_transport.channel import open_sync_channel
from toban_transport.client_calls import unary_sync
from toban_transport.convert import timestamp_from_pb
from toban_transport.tls import TlsFiles

# Seconds for one step at one address.
STEP_SECONDS = 3.0
_AT_ONCE = 16
# Codes of a server that accepts our certificate.
_ANSWERS = frozenset({ErrorCode.NOT_FOUND, ErrorCode.RUN_NOT_FOUND, ErrorCode.UNIMPLEMENTED, ErrorCode.TICKET_MISSING})


@dataclass(frozen=True, slots=True)
class _Found:
    """A visit, and the server's diagnosis of the installation (None when it was not called)."""

    visit: Visit
    diagnosis: list[Finding] | None = None


def look(environ: Mapping[str, str], clock: Clock) -> list[Finding]:
    """What the configuration, the files and every address of it have. Raises nothing for what is wrong out there."""
    wrong: list[TobanError] = []
    try:
        settings = read_settings(environ, wrong)
    except TobanError as error:
        return [checks.unusable(error)]
    named = f"{count(len(settings.coordinators), 'coordinator')}, {count(len(settings.log_archivers), 'log-archiver')}"
    found = [checks.unusable(error) for error in wrong]
    found.append(Finding(name="configuration", subject="environment", value=named))
    if settings.tls_dir.is_dir():
        facts = inspect_files(settings.tls_dir)
        found += checks.files(facts, service=IDENTITY, trust_domain=settings.trust_domain, now=clock.wall())
    else:
        found.append(checks.no_files(settings.tls_dir))
    if not settings.log_archivers and not any("LOG_ARCHIVERS" in error.message for error in wrong):
        found.append(checks.no_address("log-archiver", "TOBAN_LOG_ARCHIVERS"))
    visits = _visit_all(settings, clock)
    for item in visits:
        found += checks.server(item.visit, trust_domain=settings.trust_domain, now=clock.wall())
        found += checks.versions(item.visit, VERSION)
    found += checks.clock([item.visit for item in visits])
    for service in ("coordinator", "log-archiver"):
        reporting = [item for item in visits if item.visit.service == service and item.diagnosis is not None]
        found += merged([(f"{service} {item.visit.address}", item.diagnosis or []) for item in reporting])
    return found


def _visit_all(settings: Settings, clock: Clock) -> list[_Found]:
    places = [("coordinator", address) for address in settings.coordinators]
    places += [("log-archiver", address) for address in settings.log_archivers]
    tls, why = _own_files(settings)
    visitor = _Visitor(settings=settings, tls=tls, refused=why, clock=clock)
    with ThreadPoolExecutor(max_workers=_AT_ONCE) as threads:
        return list(threads.map(lambda place: visitor.visit(*place), places))


def _own_files(settings: Settings) -> tuple[TlsFiles | None, str]:
    try:
        return TlsFiles(settings.tls_dir), ""
    except TobanError as error:
        return None, error.message


@dataclass(frozen=True, slots=True, kw_only=True)
class _Visitor:
    """Goes to one address after the other. `refused` is why our own files cannot be used (`tls` is None then)."""

    settings: Settings
    tls: TlsFiles | None
    refused: str
    clock: Clock

    def visit(self, service: str, address: str) -> _Found:
        """Name, connection, certificate, call: as far as it goes."""
        visit = Visit(service=service, address=address)
        host, _, port = address.rpartition(":")
        try:
            socket.getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_STREAM)
        except (OSError, UnicodeError, ValueError) as error:
            return _Found(replace(visit, step="resolve", failed=str(getattr(error, "strerror", None) or error)))
        try:
            socket.create_connection((host.strip("[]"), int(port)), timeout=STEP_SECONDS).close()
        except OSError as error:
            return _Found(replace(visit, step="connect", failed=error.strerror or str(error)))
        settings = self.settings
        if not settings.tls_dir.is_dir():
            return _Found(replace(visit, unchecked=True))
        try:
            identity = served(
                address,
                service,
                directory=settings.tls_dir,
                trust_domain=settings.trust_domain,
                timeout=STEP_SECONDS,
            )
        except TobanError as error:
            return _Found(replace(visit, step="tls", failed=error.message))
        return self._call(replace(visit, identity=identity))

    def _call(self, visit: Visit) -> _Found:
        if self.tls is None:
            return _Found(replace(visit, step="own certificate", failed=self.refused))
        channel = open_sync_channel(visit.address, visit.service, self.tls, self.settings.trust_domain)
        try:
            if visit.service == "coordinator":
                return self._coordinator(visit, channel)
            return self._log_archiver(visit, channel)
        except TobanError as error:
            return _Found(replace(visit, step="call", failed=f"{error.code}: {error.message}"))
        finally:
            channel.close()

    def _log_archiver(self, visit: Visit, channel: Any) -> _Found:
        from toban_proto.v1 import logs_pb2, logs_pb2_grpc

        _describe(channel)
        stub = logs_pb2_grpc.LogArchiveStub(channel)
        try:
            diagnosis = unary_sync(stub.Diagnose, logs_pb2.DiagnoseLogsRequest(), timeout=DIAGNOSE_SECONDS)
        except TobanError as error:
            if error.code is not ErrorCode.UNIMPLEMENTED:
                raise
            return _Found(replace(visit, version="older"))
        return _Found(replace(visit, version=diagnosis.version), [from_message(check) for check in diagnosis.checks])

    def _coordinator(self, visit: Visit, channel: Any) -> _Found:
        from toban_proto.v1 import coordinator_pb2 as pb
        from toban_proto.v1 import coordinator_pb2_grpc as rpc

        health, offset = None, None
        try:
            sent = self.clock.monotonic()
            wall = self.clock.wall()
            cluster = unary_sync(rpc.JobReaderStub(channel).GetCluster, pb.GetClusterRequest(), timeout=STEP_SECONDS)
            took = self.clock.monotonic() - sent
            theirs = timestamp_from_pb(cluster.server_time)
            # The server read its clock at some point within the call.
            offset = None if theirs is None else ((theirs - wall).total_seconds() - took / 2, took / 2)
            health = _health(cluster.health_json)
        except TobanError as error:
            # Without its database a coordinator does not know the leader, but still reports what is missing.
            visit = replace(visit, step="call", failed=f"{error.code}: {error.message}")
        try:
            diagnosis = unary_sync(rpc.OperationsStub(channel).Diagnose, pb.DiagnoseRequest(), timeout=DIAGNOSE_SECONDS)
        except TobanError as error:
            if error.code is not ErrorCode.UNIMPLEMENTED:
                raise
            return _Found(replace(visit, health=health, clock=offset, version="older"))
        visit = replace(visit, health=health, clock=offset, version=diagnosis.version)
        return _Found(visit, [from_message(check) for check in diagnosis.checks])


def _describe(channel: Any) -> None:
    """Any response will do, also that there is no read ticket: it shows that the log-archiver accepts us."""
    from toban_proto.v1 import logs_pb2, logs_pb2_grpc

    try:
        unary_sync(
            logs_pb2_grpc.LogReaderStub(channel).Describe,
            logs_pb2.DescribeLogRequest(run_id=1),
            timeout=STEP_SECONDS,
        )
    except TobanError as error:
        if error.code not in _ANSWERS:
            raise


def _health(text: str) -> dict[str, Any] | None:
    try:
        document = json.loads(text or "null")
    except ValueError:
        return None
    return document if isinstance(document, dict) else None
