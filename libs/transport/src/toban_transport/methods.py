"""Every method of every service in proto/, by full name: what the table of rules must match exactly."""

from toban_proto.v1 import coordinator_pb2, executor_pb2, logs_pb2
from toban_transport import health

_FILES = (coordinator_pb2.DESCRIPTOR, executor_pb2.DESCRIPTOR, logs_pb2.DESCRIPTOR)

PROTO_METHODS = frozenset(
    f"/{service.full_name}/{method.name}"
    for file in _FILES
    for service in file.services_by_name.values()
    for method in service.methods
)
KNOWN_METHODS = PROTO_METHODS | frozenset(health.METHODS)
