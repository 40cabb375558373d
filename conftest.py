"""Gives every test of the repository the fixtures of the testing kit."""

import os

# Before gRPC is loaded: what its core says of connections that end is no output of the command that a test reads.
os.environ.setdefault("GRPC_VERBOSITY", "ERROR")

pytest_plugins = ["toban_testing.plugin"]
