"""grpc.health.v1 on the mTLS port, for gRPC clients of ours; probes of Kubernetes use the plain admin port."""

from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_health.v1._async import HealthServicer

SERVICE = "grpc.health.v1.Health"
METHODS = tuple(
    f"/{SERVICE}/{name}" for name in sorted(health_pb2.DESCRIPTOR.services_by_name["Health"].methods_by_name)
)
add_to_server = health_pb2_grpc.add_HealthServicer_to_server


def new_servicer() -> HealthServicer:
    """A servicer whose overall status ("") is SERVING."""
    return HealthServicer()


def status(serving: bool) -> int:
    """SERVING or NOT_SERVING as the protocol's number."""
    kinds = health_pb2.HealthCheckResponse
    return int(kinds.SERVING if serving else kinds.NOT_SERVING)
