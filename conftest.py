"""Gives every test of the repository the fixtures of the testing kit."""

import os

from hypothesis import HealthCheck, settings

# Before gRPC is loaded: what its core says of connections that end is no output of the command that a test reads.
os.environ.setdefault("GRPC_VERBOSITY", "ERROR")

# A generated case may last longer than Hypothesis's 200 ms when the machine has other work.
settings.register_profile("toban", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("toban")

pytest_plugins = ["toban_testing.plugin"]
