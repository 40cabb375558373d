"""`python -m toban_signer`."""

import os

# Before gRPC is imported: its fork handlers crash children (docs/architecture.md).
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")

from toban_signer.main import run

if __name__ == "__main__":
    raise SystemExit(run())
