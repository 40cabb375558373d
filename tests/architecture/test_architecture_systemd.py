"""The unit for systemd of an executor has the rights that class isolated needs; apps/cli/tests/test_unit.py has the other checks of units."""

from configparser import RawConfigParser
from pathlib import Path

from toban_executor.decide.isolation import CAPABILITIES

UNIT = Path(__file__).resolve().parents[2] / "apps/cli/src/toban_cli/units/toban-executor.service"


def test_it_has_the_rights_of_class_isolated_and_of_namespaces() -> None:
    parser = RawConfigParser()
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read_string(UNIT.read_text(encoding="utf-8"))
    service = parser["Service"]
    rights = (*CAPABILITIES, "SYS_ADMIN", "SYS_RESOURCE")
    assert service["CapabilityBoundingSet"].split() == sorted(f"CAP_{name}" for name in rights)
    assert "User" not in service and service["Delegate"] == "yes"
    folder = service["StateDirectory"]
    assert f"SCHEDULER_STATE_DIR=%S/{folder}" in service["Environment"].split()
