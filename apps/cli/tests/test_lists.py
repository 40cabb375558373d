"""Lists that are longer than a page, and lists that are empty."""

from __future__ import annotations

from typing import Any

import pytest

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
