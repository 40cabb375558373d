"""What the launcher gives to services, without starting any."""

from __future__ import annotations

from pathlib import Path

import pytest

from toban_stack.servers.endpoints import Endpoints
from toban_stack.services import FOR_COORDINATORS, FOR_EXECUTORS, FOR_SITE, PASSED_ON, Counts, Services
from toban_stack.stack_paths import StackPaths
from toban_stack.state_file import StateFile


def services(root: Path, **settings: str) -> Services:
    home = StackPaths(root)
    home.create()
    return Services(
        home=home,
        records=StateFile(path=root / "stack.json"),
        endpoints=Endpoints(),
        counts=Counts(),
        environment={f"SCHEDULER_{name}": value for name, value in settings.items()},
        launch=lambda _: pytest.fail("nothing is started"),
    )


@pytest.mark.parametrize("name", sorted({*PASSED_ON, *FOR_COORDINATORS, *FOR_EXECUTORS, *FOR_SITE}))
def test_a_changed_setting_restarts_services(tmp_path: Path, name: str) -> None:
    assert services(tmp_path, **{name: "a"}).fingerprint() != services(tmp_path, **{name: "b"}).fingerprint()
    assert services(tmp_path, **{name: "a"}).fingerprint() == services(tmp_path, **{name: "a"}).fingerprint()
