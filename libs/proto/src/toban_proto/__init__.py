"""Generated messages and stubs of proto/, committed and verified by make proto-check."""

import os

# The stubs import grpc, whose fork handlers crash child processes of a gRPC server: disabled before the first import of grpc.
os.environ["GRPC_ENABLE_FORK_SUPPORT"] = "0"
