"""What the launcher gives to services, without starting any."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from toban_stack.processes import ProcessRecord, Program
from toban_stack.servers.endpoints import Endpoints
from toban_stack.services import FOR_COORDINATORS, FOR_EXECUTORS, FOR_SITE, PASSED_ON, Counts, Services
from toban_stack.stack_paths import StackPaths
from toban_stack.state_file import StateFile


class NotStartedError(Exception):
    """In place of a process."""


def services(root: Path, launch: Callable[[Program], ProcessRecord] = pytest.fail, /, **settings: str) -> Services:
    home = StackPaths(root)
    home.create()
    return Services(
        home=home,
        records=StateFile(path=root / "stack.json"),
        endpoints=Endpoints(),
        counts=Counts(),
        environment={f"SCHEDULER_{name}": value for name, value in settings.items()},
        launch=launch,
    )


@pytest.mark.parametrize("name", sorted({*PASSED_ON, *FOR_COORDINATORS, *FOR_EXECUTORS, *FOR_SITE}))
def test_a_changed_setting_restarts_services(tmp_path: Path, name: str) -> None:
    assert services(tmp_path, **{name: "a"}).fingerprint() != services(tmp_path, **{name: "b"}).fingerprint()
    assert services(tmp_path, **{name: "a"}).fingerprint() == services(tmp_path, **{name: "a"}).fingerprint()


@pytest.mark.parametrize(
    ("given", "folders"),
    [
        ({}, {"HIDDEN_FOLDERS", "SHOWN_FOLDERS"}),
        ({"ISOLATION": "auto"}, {"HIDDEN_FOLDERS", "SHOWN_FOLDERS"}),
        ({"ISOLATION": "isolated"}, {"SHOWN_FOLDERS"}),
        ({"ISOLATION": "shared"}, set()),
    ],
)
def test_an_executor_gets_no_folders_that_its_class_does_not_use(
    tmp_path: Path, given: dict[str, str], folders: set[str]
) -> None:
    """It would refuse to start."""

    def launch(program: Program) -> ProcessRecord:
        raise NotStartedError({name for name in program.environment if name.endswith("_FOLDERS")})

    with pytest.raises(NotStartedError) as made:
        services(tmp_path, launch, **given).start(["executor-1"])
    assert made.value.args == ({f"SCHEDULER_{name}" for name in folders},)
