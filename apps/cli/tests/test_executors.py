"""`toban executor drain|undrain|detach`: which executor a name means, and the results."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from toban_cli.commands.executors import find_executor
from toban_domain.errors import ErrorCode, TobanError
from toban_proto.v1 import coordinator_pb2 as pb


def executor(number: int, node: str = "", instance: str = "", state: str = "on", **fields: Any) -> pb.Executor:
    return pb.Executor(
        worker_id=number,
        node_id=node or f"host-{number}",
        instance=instance or f"i-{number}",
        address=f"{node or f'host-{number}'}:1",
        state=state,
        **fields,
    )


FLEET = [
    executor(3, node="host-a", instance="one", state="off"),
    executor(5, node="host-a", instance="one"),
    executor(6, node="host-b", instance="two"),
    executor(7, node="host-b", instance="three"),
    executor(8, node="9", instance="five"),
    executor(9, node="host-c", instance="old", state="off"),
    executor(11, node="host-c", instance="old", state="off"),
]


def listed(include_off: bool) -> Sequence[pb.Executor]:
    return [one for one in FLEET if include_off or one.state != "off"]


@pytest.mark.parametrize(
    ("word", "number"),
    [
        ("5", 5),
        ("host-a", 5),
        ("one", 5),
        ("host-a:1", 5),
        ("two", 6),
        ("9", 8),
        ("3", 3),
        ("old", 11),
        ("host-c", 11),
    ],
)
def test_a_word_names_the_executor_that_is_there_else_the_newest_that_is_gone(word: str, number: int) -> None:
    assert find_executor(listed, word).worker_id == number


@pytest.mark.parametrize(
    ("word", "code", "words"),
    [
        ("host-b", ErrorCode.INVALID_ARGUMENT, "host-b has 2 executors: name one by its number (6, 7)"),
        ("host-aa", ErrorCode.EXECUTOR_NOT_FOUND, "did you mean host-a"),
        ("77", ErrorCode.EXECUTOR_NOT_FOUND, "there is no executor '77'"),
        ("zzz", ErrorCode.EXECUTOR_NOT_FOUND, "`toban executor list` shows them"),
    ],
)
def test_a_word_that_names_none_or_several(word: str, code: ErrorCode, words: str) -> None:
    with pytest.raises(TobanError) as caught:
        find_executor(listed, word)
    assert caught.value.code is code and words in caught.value.message


@pytest.fixture
def fleet(cluster: Any) -> Any:
    """A cluster of two executors."""
    both = [executor(5, node="host-a", running=2, drained=True), executor(6, node="host-b")]
    cluster.reader.answers["ListExecutors"] = pb.ListExecutorsResponse(executors=both)
    cluster.reader.answers["GetCluster"] = pb.Cluster(epoch=2**51 + 7)
    for method in ("DrainExecutor", "UndrainExecutor", "DetachExecutor"):
        cluster.operations.answers[method] = lambda request: next(o for o in both if o.worker_id == request.worker_id)
    return cluster


def test_the_class_of_an_executor_and_what_isolates_its_jobs(cluster: Any, toban: Any) -> None:
    details = ["uids 61000-61003", "pid namespace"]
    both = [executor(5, isolation="isolated", isolation_details=details), executor(6)]
    cluster.reader.answers["ListExecutors"] = pb.ListExecutorsResponse(executors=both)
    header, *rows = (line.split() for line in toban("executor", "list")[1].splitlines())
    assert [row[header.index("CLASS")] for row in rows] == ["isolated", "shared"]
    pages = [dict(line.split(":", 1) for line in toban("executor", "get", word)[1].splitlines()) for word in "56"]
    assert [page["Class"].strip() for page in pages] == ["isolated", "shared"]
    assert pages[0]["Isolation"].strip() == "uids 61000-61003, pid namespace" and "Isolation" not in pages[1]


def test_drain_undrain_and_detach_say_what_happens(fleet: Any, toban: Any) -> None:
    asked = fleet.operations.requests
    assert toban("executor", "drain", "host-a", "--reason", "disk")[1] == (
        "executor 5 on host-a gets no new runs; 2 runs continue\n"
    )
    assert (asked[-1].worker_id, asked[-1].reason) == (5, "disk")
    assert toban("executor", "drain", "host-b", "--wait")[1] == (
        "executor 6 on host-b gets no new runs; it has no runs\n"
    )
    assert toban("executor", "undrain", "5")[1] == "executor 5 on host-a gets runs again\n"
    assert toban("executor", "undrain", "6")[1] == "executor 6 on host-b was not drained\n"
    assert "2 runs continue to completion" in toban("executor", "detach", "5")[1]
    assert asked[-1].mode == "let_finish"
    assert "its runs are stopped" in toban("executor", "detach", "5", "--stop")[1]
    assert asked[-1].mode == "stop"
    assert {one.epoch for one in asked} == {2**51 + 7}, "another leader than the one that was seen refuses"


def test_waiting_for_a_drain_has_an_end(fleet: Any, toban: Any) -> None:
    code, out, err = toban("executor", "drain", "5", "--wait", "--timeout", "0.1")
    assert (code, out) == (75, "")
    assert "waiting for 2 runs" in err and "still has 2 runs after 0.1 s and stays drained; raise --timeout" in err


def test_a_reason_that_is_cut_is_said_to_be(fleet: Any, toban: Any) -> None:
    assert "warning" not in toban("executor", "drain", "host-a", "--reason", "r" * 1000)[2]
    err = toban("executor", "drain", "host-a", "--reason", "r" * 1001)[2]
    assert err == "warning: --reason has 1001 characters, the first 1000 are kept\n"


def test_one_run_goes_on(fleet: Any, toban: Any) -> None:
    one = pb.Executor(worker_id=5, node_id="host-a", running=1)
    fleet.operations.answers |= {"DrainExecutor": one, "DetachExecutor": one}
    assert "; 1 run continues\n" in toban("executor", "drain", "host-a")[1]
    assert "; 1 run continues to completion\n" in toban("executor", "detach", "host-a")[1]
