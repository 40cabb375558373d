"""`make test-budget` names the folders whose tests take more of the time than they may."""

import runpy
from pathlib import Path

import pytest

pytestmark = pytest.mark.long
SCRIPT = runpy.run_path(str(Path(__file__).resolve().parents[2] / "scripts" / "test-budget"))


def test_times_are_summed_by_folder(tmp_path: Path) -> None:
    cases = (("tests.e2e.test_a", 6), ("tests.e2e.test_b.TestClass", 1), ("services.log-archiver.tests.test_c", 3))
    lines = [f'<testcase classname="{name}" name="test_x[a.b]" time="{seconds}"/>' for name, seconds in cases]
    (tmp_path / "test.xml").write_text(f"<testsuites><testsuite>{''.join(lines)}</testsuite></testsuites>")
    assert SCRIPT["shares"](tmp_path / "test.xml") == {"tests/e2e": 70, "services/log-archiver/tests": 30}


def test_only_growth_that_matters_is_named() -> None:
    budgets = {"grown": 10.0, "a little grown": 10.0, "small": 0.1, "large": 50.0}
    spent = {"grown": 15.1, "a little grown": 14.9, "small": 3.0, "large": 74.0, "new": 3.1}
    assert [line.partition(":")[0] for line in SCRIPT["over_budget"](spent, budgets)] == ["grown", "new"]
