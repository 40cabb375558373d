"""Stacks whose executors record their leases, and the tests that take too long for every run."""

import contextlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from toban_stack import services
from toban_stack.stack import Stack
from toban_store import migrate
from toban_testing.lease_record import LeaseRecord
from toban_testing.stack_fixtures import running_stack

LONG = os.environ.get("TOBAN_LONG", "") == "1"
"""`make outage-long` sets it: everything; otherwise tests marked `hours` are skipped."""
LeasedStack = Callable[..., contextlib.AbstractContextManager[tuple[Stack, LeaseRecord]]]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skips what takes minutes."""
    for item in items:
        if not LONG and item.get_closest_marker("hours"):
            item.add_marker(pytest.mark.skip(reason="takes minutes: make outage-long"))


@pytest.fixture
def leased_stack(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LeasedStack:
    """Makes a stack of `leased_executor`s and the record of its jobs; `lease` is executor_lease_seconds from the first registration on."""

    @contextlib.contextmanager
    def make(*, lease: float = 10.0, **given: Any) -> Iterator[tuple[Stack, LeaseRecord]]:
        record = LeaseRecord(tmp_path / "record")
        monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent), prepend=os.pathsep)
        monkeypatch.setenv("LEASES", str(record.leases_folder))
        monkeypatch.setenv("LINKS", str(tmp_path / "links.json"))
        monkeypatch.setitem(services.MODULES, "executor", "leased_executor")
        monkeypatch.setattr(migrate, "SEEDED", ("executor_lease_seconds",))
        monkeypatch.setenv("SCHEDULER_EXECUTOR_LEASE_SECONDS", str(lease))
        with running_stack(tmp_path / "home", **given) as stack:
            yield stack, record

    return make
