"""Lists that are longer than a page, that are empty, and what changed between two states."""

from __future__ import annotations

import json
from typing import Any

import pytest

from toban_cli.audit_diff import changes
from toban_domain.errors import ErrorCode, TobanError
from toban_proto.v1 import coordinator_pb2 as pb

FIELDS = {"jobs": pb.Job, "schedules": pb.Schedule, "triggers": pb.Trigger}


def in_pages(answer: Any, field: str, things: list[Any]) -> Any:
    """What a server does: no more than 500 at once, and a cursor when there are more."""

    def page(request: Any) -> Any:
        if request.page.limit > 500:
            raise TobanError(ErrorCode.INVALID_ARGUMENT, f"page.limit is {request.page.limit}; use 1 to 500")
        first = int(request.page.cursor or 0)
        end = first + request.page.limit
        return answer(**{field: things[first:end], "next_cursor": str(end) if end < len(things) else ""})

    return page


def test_a_limit_above_a_page_takes_several(cluster: Any, toban: Any) -> None:
    runs = [pb.Run(id=number) for number in range(1200, 0, -1)]
    cluster.reader.answers["ListRuns"] = in_pages(pb.ListRunsResponse, "runs", runs)
    code, out, err = toban("run", "list", "--limit", "1000", "-o", "name")
    assert (code, err) == (0, "") and out.split() == [str(number) for number in range(1200, 200, -1)]
    assert [request.page.limit for request in cluster.reader.requests] == [500, 500]


@pytest.mark.parametrize("things", FIELDS)
def test_a_list_by_name_says_that_it_is_not_whole(cluster: Any, toban: Any, things: str) -> None:
    every = [FIELDS[things](name=f"n{number:03d}") for number in range(101)]
    method = f"List{things.capitalize()}"
    cluster.reader.answers[method] = in_pages(getattr(pb, f"{method}Response"), things, every)
    noun = things.removesuffix("s")
    code, out, err = toban(noun, "list", "-o", "name")
    assert (code, len(out.split()), err) == (
        0,
        100,
        f"there are more than 100 {things}; --limit shows more of them\n",
    )
    code, out, err = toban(noun, "list", "-o", "name", "--limit", "101")
    assert (code, len(out.split()), err) == (0, 101, "")


@pytest.mark.parametrize("noun", ["run", "schedule"])
def test_a_list_of_a_job_that_is_not_there_says_so(cluster: Any, toban: Any, noun: str) -> None:
    cluster.reader.answers |= {
        "ListRuns": pb.ListRunsResponse(),
        "ListSchedules": pb.ListSchedulesResponse(),
        "GetJob": TobanError(ErrorCode.JOB_NOT_FOUND, "there is no job 'helo'; did you mean 'hello'?"),
    }
    code, out, err = toban(noun, "list", "--job", "helo")
    assert (code, out, err) == (66, "", "error: there is no job 'helo'; did you mean 'hello'?\n")
    cluster.reader.answers["GetJob"] = pb.Job(name="hello")
    code, out, err = toban(noun, "list", "--job", "hello")
    assert (code, err) == (0, "") and out.startswith("No ")


def test_an_empty_list_of_a_state_does_not_say_that_nothing_ran(cluster: Any, toban: Any) -> None:
    cluster.reader.answers["ListRuns"] = pb.ListRunsResponse()
    assert toban("run", "list", "--state", "FAILED")[1] == "No such runs.\n"


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        ({}, {}, ""),
        (
            {},
            {"spec": {"job": "a", "cron": "0 3 * * *"}, "version": 1},
            "spec.job: a, spec.cron: 0 3 * * *, version: 1",
        ),
        ({"drained": False}, {"reason": "", "drained": True}, "drained: false → true"),
        ({"epoch": 7, "address": "h:1"}, {}, "epoch: 7, address: h:1"),
        (
            {"spec": {"job": "a"}, "status": "active", "version": 1},
            {"status": "paused", "version": 2, "after": "12:00"},
            "after: 12:00, status: active → paused, version: 1 → 2",
        ),
        (
            {"spec": {"job": "a", "retry": {"max_retries": 2}, "timeout_seconds": 5}},
            {"spec": {"job": "a", "retry": {"max_retries": 3}, "argv": ["x"]}},
            'spec.retry.max_retries: 2 → 3, spec.timeout_seconds: 5 → none, spec.argv: none → ["x"]',
        ),
    ],
)
def test_what_an_operator_changed(before: dict[str, Any], after: dict[str, Any], words: str) -> None:
    assert changes(json.dumps(before), json.dumps(after)) == words


def test_what_is_no_json_object_is_no_change() -> None:
    assert changes("", "no json") == "" and changes("[1]", '{"a": {}}') == ""


def test_the_audit_log_shows_the_change(cluster: Any, toban: Any) -> None:
    entry = pb.AuditEntry(
        id=1,
        action="setting.update",
        target="assign_ahead_seconds",
        before_json='{"value": 30}',
        after_json='{"value": 60}',
    )
    cluster.operations.answers["ListAudit"] = pb.ListAuditResponse(entries=[entry])
    code, out, _ = toban("audit", "list", "-o", "wide")
    assert code == 0 and "value: 30 → 60" in out
