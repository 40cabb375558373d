"""Every listing and getting command answers in five formats."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from toban_cli.yaml_dump import to_yaml
from toban_proto.v1 import coordinator_pb2 as pb

Toban = Callable[..., tuple[int, str, str]]


@pytest.fixture
def filled(cluster: Any) -> Any:
    """A cluster with one of everything."""
    run = pb.Run(id=12, job="hello", state="RUNNING", attempt=1, max_attempts=2, origin="event", trigger="on-paid")
    run.event_id = 77
    run.progress_json = '{"percentage":40,"summary":"half way"}'
    run.attempts.add(attempt=1, state="RUNNING", token=9)
    schedule = pb.Schedule(
        name="often", job="hello", enabled=True, status="paused", status_reason="holidays", timezone="UTC"
    )
    executor = pb.Executor(worker_id=5, node_id="node-1", state="on", slots=4, version="0.1.0", clock_skew_seconds=0.25)
    executor.disk_free_bytes = 3 << 30
    job = pb.Job(
        name="hello", version=3, enabled=True, spec_json='{"name":"hello","timeout_seconds":30,"labels":{"a":"b"}}'
    )
    answer = pb.Cluster(leader_address="h:1", epoch=7, executors=[executor])
    answer.coordinators.add(worker_id=1, node_id="n", address="h:1", role="leader", version="0.1.0")
    cluster.reader.runs = [run]
    cluster.reader.answers |= {
        "ListRuns": pb.ListRunsResponse(runs=[run]),
        "ListJobs": pb.ListJobsResponse(jobs=[job]),
        "GetJob": job,
        "ListSchedules": pb.ListSchedulesResponse(schedules=[schedule]),
        "ListExecutors": pb.ListExecutorsResponse(executors=[executor]),
        "GetCluster": answer,
        "GetOverview": pb.Overview(failures=[pb.FailedRuns(job="hello", scope="system", error_summary="exit code 3")]),
    }
    return cluster


COMMANDS = [
    (("job", "list"), "hello", "TIMEOUT"),
    (("job", "get", "hello"), "hello", "Version"),
    (("schedule", "list"), "often", "holidays"),
    (("run", "list"), "12", "40 % half way"),
    (("run", "get", "12"), "12", "FENCE"),
    (("executor", "list"), "5", "3.0 GiB"),
    (("executor", "get", "5"), "5", "3.0 GiB"),
    (("cluster", "status"), "h:1", "+0.250s"),
    (("cluster", "overview"), "hello", "exit code 3"),
]


@pytest.mark.parametrize(("argv", "name", "wide"), COMMANDS, ids=[" ".join(argv[:2]) for argv, _, _ in COMMANDS])
def test_formats(filled: Any, toban: Toban, argv: tuple[str, ...], name: str, wide: str) -> None:
    answers = {form: toban(*argv, "-o", form) for form in ("table", "wide", "json", "yaml", "name")}
    assert all((code, err) == (0, "") for code, _, err in answers.values())
    assert answers["name"][1] == f"{name}\n"
    assert yaml.safe_load(answers["yaml"][1]) == json.loads(answers["json"][1])
    assert wide in answers["wide"][1]
    assert len(answers["wide"][1]) >= len(answers["table"][1])
    assert toban(*argv)[1] == answers["table"][1]


def test_a_run_of_an_event_says_so(filled: Any, toban: Toban) -> None:
    out = " ".join(toban("run", "get", "12")[1].split())
    assert "Origin: event on-paid (event 77)" in out
    assert "Progress: [########............] 40 % half way" in out


def test_no_result_is_null_and_an_empty_one_is_an_object(cluster: Any, toban: Toban) -> None:
    for text, result in (("", None), ("{}", {})):
        cluster.reader.runs = [pb.Run(id=1, state="SUCCEEDED", result_json=text)]
        code, out, err = toban("run", "get", "1", "-o", "json")
        assert (code, err) == (0, "")
        printed = json.loads(out)
        assert (printed["result"], printed["payload"]) == (result, {})


@pytest.mark.parametrize(
    ("said", "words"),
    [("", ""), ('{"summary":"soon"}', "soon"), ('{"percentage":12.5}', "12.5 %"), ("{broken", "{broken"), ("[]", "")],
)
def test_progress_words(said: str, words: str) -> None:
    from toban_cli.run_details import format_progress

    assert format_progress(pb.Run(progress_json=said)) == words


def test_lists_of_names_are_empty_when_there_is_nothing(cluster: Any, toban: Toban) -> None:
    cluster.reader.answers["ListRuns"] = pb.ListRunsResponse()
    assert toban("run", "list", "-o", "name") == (0, "", "")
    assert toban("run", "list", "-o", "json") == (0, "[]\n", "")
    assert toban("run", "list", "-o", "yaml") == (0, "[]\n", "")


TEXT = st.text(max_size=30) | st.sampled_from(
    ["1e3", "0o17", "0x1F", "yes", "null", "12:30:00", "2026-11-21", "- a", "a: b", ""]
)
DATA = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda below: st.lists(below, max_size=4) | st.dictionaries(TEXT, below, max_size=4),
    max_leaves=20,
)


@given(DATA)
def test_yaml_says_the_same_as_json(value: Any) -> None:
    assert yaml.safe_load(to_yaml(value)) == value


def test_yaml_reads_well() -> None:
    text = to_yaml({"name": "x", "steps": [{"argv": ["a"]}], "note": "one\ntwo\n", "code": "1e3"})
    assert text == 'name: x\nsteps:\n  - argv:\n      - a\nnote: |\n  one\n  two\ncode: "1e3"\n'
