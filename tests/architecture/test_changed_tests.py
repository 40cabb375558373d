"""`make quick` selects the tests that a change can touch."""

import runpy
from pathlib import Path

import pytest

pytestmark = pytest.mark.long
SCRIPT = runpy.run_path(str(Path(__file__).resolve().parents[2] / "scripts" / "changed-tests"))
CLI = "apps/cli/tests/test_times.py"
STORE = "libs/store/tests/test_store_tx.py"
EXECUTOR = "services/executor"
ASSIGN = "services/coordinator/tests/decide/test_assign.py"


@pytest.mark.parametrize(
    ("changed", "selected", "left_out"),
    [
        ("libs/store/src/toban_store/tx.py", STORE, CLI),
        ("libs/store/src/toban_store/sessions.py", STORE, CLI),
        ("services/coordinator/src/toban_coordinator/decide/placement/assign.py", ASSIGN, STORE),
        ("services/coordinator/src/toban_coordinator/store/cluster/leader.sql", ASSIGN, STORE),
        ("libs/store/tests/conftest.py", STORE, ASSIGN),
        (ASSIGN, ASSIGN, STORE),
        (f"{EXECUTOR}/src/toban_executor/loops/incarnation.py", f"{EXECUTOR}/tests/loops/test_incarnation.py", STORE),
        (
            f"{EXECUTOR}/src/toban_executor/guard/slot_supervisor.py",
            f"{EXECUTOR}/tests/guard/test_guard_freeze.py",
            STORE,
        ),
        (f"{EXECUTOR}/src/toban_executor/guard/zygotes.py", f"{EXECUTOR}/tests/guard/test_zygotes.py", STORE),
    ],
)
def test_a_change_selects_what_imports_it(changed: str, selected: str, left_out: str) -> None:
    modules = SCRIPT["affected_modules"]({changed})
    assert SCRIPT["touched"](selected, {changed}, modules, set())
    assert not SCRIPT["touched"](left_out, {changed}, modules, set())


@pytest.mark.parametrize(
    ("changed", "selected"),
    [
        ("Makefile", "tests/architecture/test_architecture_gates.py"),
        ("examples/shop/shop/settings.py", f"{EXECUTOR}/tests/adapters/test_django_step_runner.py"),
    ],
)
def test_a_file_outside_the_packages_selects_the_tests_that_name_it(changed: str, selected: str) -> None:
    others = SCRIPT["other_names"]({changed})
    assert SCRIPT["touched"](selected, {changed}, set(), others)
    assert not SCRIPT["touched"](ASSIGN, {changed}, set(), others)


@pytest.mark.parametrize(
    ("module", "all_tests"), [("postgres", True), ("plugin", True), ("fake_kubernetes", False), ("cron_oracle", False)]
)
def test_a_part_of_the_kit_that_every_test_uses_selects_all(module: str, all_tests: bool) -> None:
    modules = SCRIPT["affected_modules"]({f"tests/kit/src/toban_testing/{module}.py"})
    assert (SCRIPT["PLUGIN"] in modules) is all_tests
