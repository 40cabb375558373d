"""mTLS gRPC: identity, authorisation, deadlines, errors; the only importer of grpc."""

import os

# Fork handlers of grpc crash children of a process that serves gRPC; this must be set before grpc is imported.
os.environ["GRPC_ENABLE_FORK_SUPPORT"] = "0"
