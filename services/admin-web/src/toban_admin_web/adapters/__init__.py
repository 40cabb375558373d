"""gRPC clients of coordinators and log-archivers."""
