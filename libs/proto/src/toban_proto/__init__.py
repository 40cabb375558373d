"""Generated messages and stubs of proto/, committed and verified by make proto-check."""

import os

# The stubs import grpc, whose fork handlers crash children of a process that serves gRPC: off before that import, whoever is first.
os.environ["GRPC_ENABLE_FORK_SUPPORT"] = "0"
