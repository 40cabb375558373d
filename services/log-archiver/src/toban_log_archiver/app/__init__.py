"""Use cases: what a log-archiver does when a request or a loop asks for it. No protobuf and no gRPC."""
