"""Gives every test of the repository the fixtures of the testing kit."""

import os

from hypothesis import HealthCheck, settings

# Before gRPC is loaded: what its core says of connections that end is no output of the command that a test reads.
os.environ.setdefault("GRPC_VERBOSITY", "ERROR")

# A generated case may last longer than Hypothesis's 200 ms when the machine has other work. The gate draws the same cases each time, so that an
# old defect does not fail an unrelated change, and few; `make all` draws others, and many (--hypothesis-profile=long). So no test says how many.
settings.register_profile(
    "gate", deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True, max_examples=40
)
settings.register_profile("long", deadline=None, suppress_health_check=[HealthCheck.too_slow], max_examples=500)
settings.load_profile("gate")

pytest_plugins = ["toban_testing.plugin"]
