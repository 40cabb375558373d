"""The gRPC server of a service: mTLS only, every method behind a rule, health included, reflection off."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import grpc
import grpc.aio
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_health.v1._async import HealthServicer

from toban_domain.errors import ErrorCode, TobanError
from toban_observability.logs import get_logger
from toban_runtime.clock import Clock
from toban_runtime.ids import IdSource
from toban_transport.authz import METHOD_RULES, Rules, check_rules
from toban_transport.call_context import actor_of, metadata, peer_group, peer_service
from toban_transport.person_rules import check_person_rules
from toban_transport.server_middleware import PersonCheck, Policy, wrap
from toban_transport.shared_identity import accept
from toban_transport.tls import TlsFiles, Triple
from toban_transport.tls_reload import CertificateWatch
from toban_transport.tls_reload import stop as stop_watch

add_to_server = health_pb2_grpc.add_HealthServicer_to_server


def new_servicer() -> HealthServicer:
    """A servicer whose overall status ("") is SERVING."""
    return HealthServicer()


def status(serving: bool) -> int:
    """SERVING or NOT_SERVING as the protocol's number."""
    kinds = health_pb2.HealthCheckResponse
    return int(kinds.SERVING if serving else kinds.NOT_SERVING)


MAX_MESSAGE_BYTES = 4 * 1024 * 1024
MAX_CONNECTION_AGE_SECONDS = 600
"""Connections end by age, so that certificates of a CA that was removed go; calls under way get the grace to finish."""
MAX_CONNECTION_AGE_GRACE_SECONDS = 60
HANDSHAKE_SECONDS = 5.0
"""A connection that has not finished its TLS handshake by then is closed; the default of gRPC is 120 s."""

_OPTIONS: Sequence[tuple[str, Any]] = (
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
    ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
    ("grpc.max_connection_age_ms", MAX_CONNECTION_AGE_SECONDS * 1000),
    ("grpc.max_connection_age_grace_ms", MAX_CONNECTION_AGE_GRACE_SECONDS * 1000),
    ("grpc.max_concurrent_streams", 1000),
    ("grpc.keepalive_time_ms", 30_000),
    ("grpc.keepalive_timeout_ms", 5_000),
    # Clients ping every 10 s also without calls; less than half of that counts as abuse.
    ("grpc.http2.min_ping_interval_without_data_ms", 4_000),
    ("grpc.keepalive_permit_without_calls", 1),
    # Two servers on one port would each get half of the calls.
    ("grpc.so_reuseport", 0),
)

_log = get_logger(__name__)
Handlers = Mapping[str, "grpc.RpcMethodHandler[Any, Any]"]


class GrpcServer:
    """Add servicers, start, stop. `start` refuses a method without a rule (CONFIG_INVALID)."""

    def __init__(self, *, tls: TlsFiles, policy: Policy, handshake_seconds: float = HANDSHAKE_SECONDS) -> None:
        self._tls = tls
        self._options = [*_OPTIONS, ("grpc.server_handshake_timeout_ms", int(handshake_seconds * 1000))]
        self._policy = policy
        self._served: Triple | None = None
        self._methods: dict[str, Handlers] = {}
        self._server: grpc.aio.Server | None = None
        self._watch: asyncio.Task[None] | None = None
        self._health = new_servicer()
        self.add(add_to_server, self._health)

    def add(self, adder: Callable[[Any, Any], None], servicer: object) -> None:
        """Add a servicer by its generated function, such as `add_PeerServicer_to_server`."""
        adder(servicer, _Recorder(self._methods))

    async def start(self, host: str, port: int) -> int:
        """Bind (port 0 = any free one) and serve; the port that it got. Raises TobanError CONFIG_INVALID."""
        registered = [f"/{service}/{name}" for service, handlers in self._methods.items() for name in handlers]
        check_rules(registered, self._policy.rules)
        check_person_rules(registered, self._policy.rules)
        accept(self._tls, trust_domain=self._policy.trust_domain, shared=self._policy.shared)
        # Made here and not in __init__: it belongs to the running event loop.
        server = grpc.aio.server(options=self._options)
        for service, handlers in self._methods.items():
            wrapped = {name: wrap(f"/{service}/{name}", item, self._policy) for name, item in handlers.items()}
            server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, wrapped),))
        bound = self._bind(server, host, port)
        await server.start()
        self._server = server
        self._watch = asyncio.create_task(
            CertificateWatch(tls=self._tls, clock=self._policy.clock).run(), name="certificates"
        )
        _log.info("grpc serves", host=host, port=bound, services=sorted(self._methods))
        return bound

    async def set_serving(self, serving: bool) -> None:
        """What grpc.health.v1 answers for the whole server."""
        await self._health.set("", status(serving))

    async def stop(self, grace: float) -> None:
        """Refuse new calls at once; calls under way get `grace` seconds, then are cancelled."""
        if self._server is None:
            return
        await self._health.enter_graceful_shutdown()
        await self._server.stop(grace)
        self._server = None
        if self._watch is not None:
            await stop_watch(self._watch)

    def _bind(self, server: grpc.aio.Server, host: str, port: int) -> int:
        self._served = self._tls.current()
        credentials = grpc.dynamic_ssl_server_credentials(
            _configuration(self._served), self._newer_configuration, require_client_authentication=True
        )
        try:
            bound: int = server.add_secure_port(_address(host, port), credentials)
        except RuntimeError as error:
            raise TobanError(
                ErrorCode.CONFIG_INVALID,
                f"cannot bind {_address(host, port)} ({error}); choose a free SCHEDULER_GRPC_PORT",
            ) from None
        return bound

    def _newer_configuration(self) -> Any:
        """Asked by gRPC before each handshake, in a thread of its own: None means that nothing changed. Never raises."""
        triple = self._tls.current()
        if triple is self._served:
            return None
        self._served = triple
        return _configuration(triple)


def build_server(
    *,
    tls: TlsFiles,
    trust_domain: str,
    clock: Clock,
    rules: Rules = METHOD_RULES,
    ids: IdSource | None = None,
    shared_identity: bool = False,
    handshake_seconds: float = HANDSHAKE_SECONDS,
    people: PersonCheck | None = None,
) -> GrpcServer:
    """A server of this process, without servicers yet. `shared_identity`: it takes certificates that services have in common."""
    policy = Policy(
        trust_domain=trust_domain,
        rules=rules,
        clock=clock,
        ids=ids or IdSource(),
        shared=shared_identity,
        people=people,
        denied=lambda: tls.current().denied,
    )
    return GrpcServer(tls=tls, policy=policy, handshake_seconds=handshake_seconds)


class _Recorder:
    """Stands in for the server in a generated add function, and notes the handlers."""

    def __init__(self, methods: dict[str, Handlers]) -> None:
        self._methods = methods

    def add_generic_rpc_handlers(self, handlers: object) -> None:
        """The same handlers in opaque form; the call below brings them by name."""

    def add_registered_method_handlers(self, service: str, handlers: Handlers) -> None:
        """Note the handlers of one service."""
        if service in self._methods:
            raise TobanError(ErrorCode.CONFIG_INVALID, f"service {service} is added twice")
        self._methods[service] = dict(handlers)


def _configuration(triple: Triple) -> Any:
    return grpc.ssl_server_certificate_configuration(
        [(triple.key_pem, triple.certificate_pem)], root_certificates=triple.ca_pem
    )


def _address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host and not host.startswith("[") else f"{host}:{port}"


__all__ = ["GrpcServer", "actor_of", "build_server", "metadata", "peer_group", "peer_service"]
