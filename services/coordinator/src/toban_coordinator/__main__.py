"""`python -m toban_coordinator` runs a coordinator; with `reset-epochs` it begins the epochs again, while all coordinators are stopped."""

from __future__ import annotations

import os
import sys

# Before anything imports grpc: its fork handlers crash children, and nothing here forks.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")

if __name__ == "__main__":
    from toban_coordinator.main import main

    sys.exit(main(sys.argv[1:]))
