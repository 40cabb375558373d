"""Options of `toban run list` as a request, and `toban run counts`, which takes them too."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
import typer

from toban_cli.run_filter import run_filter
from toban_proto.v1 import coordinator_pb2 as pb
from toban_proto.v1.coordinator_pb2 import ListRunsRequest

NOW = datetime(2031, 3, 1, 12, 0, tzinfo=UTC)
NONE: dict[str, Any] = {"states": [], "scope": "", "labels": [], "since": "", "until": "", "now": NOW}


def test_no_option_is_an_empty_request() -> None:
    assert run_filter(ListRunsRequest(), **NONE) == ListRunsRequest()


def test_every_option() -> None:
    given = NONE | {
        "states": ["failed"],
        "scope": "account:17",
        "labels": ["team=ops", "x=a=b"],
        "since": "2h",
        "until": "1h",
    }
    request = run_filter(ListRunsRequest(executor="host-a"), **given)
    assert list(request.states) == ["FAILED"] and request.executor == "host-a"
    assert (request.scope, request.scope_id) == ("account", "17")
    assert dict(request.labels) == {"team": "ops", "x": "a=b"}
    assert request.active_from.ToDatetime(UTC).hour == 10 and request.active_until.ToDatetime(UTC).hour == 11


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        ({"states": ["faild"]}, "did you mean FAILED"),
        ({"labels": ["team"]}, "write team=ops"),
        ({"labels": ["a=1", "a=2"]}, "given twice"),
        ({"scope": ":17"}, "write account:17"),
    ],
)
def test_a_wrong_value_names_its_remedy(wrong: dict[str, Any], text: str) -> None:
    with pytest.raises(typer.BadParameter, match=text):
        run_filter(ListRunsRequest(), **(NONE | wrong))


def test_counts_of_runs(cluster: Any, toban: Any) -> None:
    since = datetime(2026, 11, 20, tzinfo=UTC)
    groups = [
        pb.RunGroup(name="backup", runs={"FAILED": 2, "SUCCEEDED": 40}),
        pb.RunGroup(others=3, runs={"SUCCEEDED": 9}),
    ]
    cluster.reader.answers["CountRuns"] = pb.RunCounts(since=since, until=since, groups=groups)
    code, out, error = toban("run", "counts", "--by", "job", "--since", "2026-11-20T00:00:00Z", "--label", "team=ops")
    assert (
        code == 0
        and not error
        and [line.split() for line in out.splitlines()]
        == [
            ["JOB", "RUNS", "SUCCEEDED", "FAILED"],
            ["backup", "42", "40", "2"],
            ["(3", "others)", "9", "9", "-"],
        ]
    )
    request = cluster.reader.requests[-1]
    assert (request.by, dict(request.filter.labels)) == ("job", {"team": "ops"})
    assert request.filter.active_from.ToDatetime(UTC) == since
    assert "are not counted" in toban("run", "counts", "--since", "2026-11-01T00:00:00Z")[2]
    cluster.reader.answers["CountRuns"] = pb.RunCounts(since=since, until=since)
    assert "No such run ran" in toban("run", "counts", "--by", "executor")[1]
