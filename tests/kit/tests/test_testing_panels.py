from typing import Any

from toban_testing.monitoring import panels

RECORDED = {
    "toban:runs_submitted:rate5m": "rate(toban_runs_submitted_total[5m])",
    "toban:runs_finished:rate5m": "rate(toban_runs_finished_total[5m])",
    "toban:leader_epoch:max": "max(toban_leader_epoch)",
    "toban:rpc_errors:ratio5m": "rate(toban_rpc_total[5m])",
}
LABELS = (
    "state reason kind origin refusal result status outcome instance loop method job pool mode service version call"
)


def complete(expression: str) -> list[dict[str, Any]]:
    assert "$__" not in expression
    return [{"metric": dict.fromkeys(LABELS.split(), "x")}]


def test_full_panels_are_well() -> None:
    assert panels.faults(complete, ["toban_runs_live"], RECORDED) == []


def test_an_empty_panel_is_reported_when_its_series_are_exposed() -> None:
    exposed = ["toban_runs_live", "toban_runs_submitted_total"]
    found = panels.faults(lambda _: [], exposed, RECORDED)
    assert [fault.partition(": nothing")[0] for fault in found] == [
        "Runs created per second",
        "Live runs",
    ]


def test_a_legend_of_a_label_that_is_not_there_is_told() -> None:
    def without_states(expression: str) -> list[dict[str, Any]]:
        return [{"metric": {name: "x" for name in LABELS.split() if name != "state"}}]

    found = panels.faults(without_states, [], RECORDED)
    assert "Live runs: no label state for {{state}}" in found
    assert all("no label state" in fault for fault in found)
