"""`toban executor drain|undrain|detach`, `cluster demote`, `settings` and `audit`: which words mean whom, and what is said."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest

from toban_cli.executor_lookup import find_executor
from toban_domain.errors import ErrorCode, TobanError
from toban_domain.settings import SETTINGS
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


def look(include_off: bool) -> Sequence[pb.Executor]:
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
    assert find_executor(look, word).worker_id == number


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
        find_executor(look, word)
    assert caught.value.code is code and words in caught.value.message


# ---------------------------------------------------------------- over the wire


def setting(name: str, value: float, version: int = 0) -> pb.Setting:
    spec = SETTINGS[name]
    return pb.Setting(
        name=name,
        value_json=json.dumps(value),
        default_json=json.dumps(spec.default),
        unit=spec.unit,
        description=spec.affects,
        version=version,
        minimum=spec.minimum,
        maximum=spec.maximum,
        takes_effect=spec.takes_effect,
    )


@pytest.fixture
def settings(cluster: Any) -> Any:
    """A cluster that knows two settings and takes every change."""
    known = [setting("assign_ahead_seconds", 45, version=2), setting("fire_batch_size", 500)]
    cluster.operations.answers["ListSettings"] = pb.ListSettingsResponse(settings=known)
    cluster.operations.answers["UpdateSetting"] = lambda request: setting(
        request.name, json.loads(request.value_json), version=3
    )
    return cluster.operations


def test_settings_are_listed_and_shown(settings: Any, toban: Any) -> None:
    code, out, _ = toban("settings", "list")
    assert code == 0
    row = next(line for line in out.splitlines() if line.startswith("assign_ahead_seconds"))
    assert row.split()[:6] == ["assign_ahead_seconds", "45", "30", "0", "to", "3600"]
    code, out, _ = toban("settings", "get", "fire_batch_size")
    assert (code, "500 schedules" in out, "never" in out) == (0, True, True)
    assert toban("settings", "list", "-o", "name")[1].split() == ["assign_ahead_seconds", "fire_batch_size"]


def test_a_setting_is_changed_and_can_be_put_back(settings: Any, toban: Any) -> None:
    code, out, _ = toban("settings", "set", "assign_ahead_seconds", "60", "--reason", "why", "--version", "2")
    assert (code, out) == (0, "assign_ahead_seconds: 45 -> 60 seconds; counts within 2 seconds, in every service\n")
    sent = settings.requests[-1]
    assert (sent.value_json, sent.reason, sent.version) == ("60", "why", 2)
    toban("settings", "set", "assign_ahead_seconds", "default")
    assert json.loads(settings.requests[-1].value_json) == 30
    assert not settings.requests[-1].HasField("version")


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["set", "assign_ahead_seconds", "soon"], 65, "'soon' is not a number"),
        (["set", "assign_ahead_seconds", "true"], 65, "'true' is not a number"),
        (["get", "assign_ahead"], 66, "the nearest is assign_ahead_seconds"),
        (["get", "subleader_check_seconds"], 66, "the cluster is of another version"),
    ],
)
def test_wrong_words_about_settings(settings: Any, toban: Any, words: list[str], code: int, said: str) -> None:
    found, out, err = toban("settings", *words)
    assert (found, out) == (code, "") and said in err
    assert not any(isinstance(one, pb.UpdateSettingRequest) for one in settings.requests)


@pytest.fixture
def fleet(cluster: Any) -> Any:
    """A cluster of two executors."""
    both = [executor(5, node="host-a", running=2, drained=True), executor(6, node="host-b")]
    cluster.reader.answers["ListExecutors"] = pb.ListExecutorsResponse(executors=both)
    for method in ("DrainExecutor", "UndrainExecutor", "DetachExecutor"):
        cluster.operations.answers[method] = lambda request: next(o for o in both if o.worker_id == request.worker_id)
    return cluster


def test_drain_undrain_and_detach_say_what_happens(fleet: Any, toban: Any) -> None:
    asked = fleet.operations.requests
    assert toban("executor", "drain", "host-a", "--reason", "disk")[1] == (
        "executor 5 on host-a gets no new runs; 2 runs go on\n"
    )
    assert (asked[-1].worker_id, asked[-1].reason) == (5, "disk")
    assert toban("executor", "drain", "host-b", "--wait")[1] == (
        "executor 6 on host-b gets no new runs; nothing runs on it\n"
    )
    assert toban("executor", "undrain", "5")[1] == "executor 5 on host-a gets runs again\n"
    assert toban("executor", "undrain", "6")[1] == "executor 6 on host-b was not drained\n"
    assert "2 runs go on to their ends" in toban("executor", "detach", "5")[1]
    assert asked[-1].mode == "let_finish"
    assert "its runs are ended" in toban("executor", "detach", "5", "--stop")[1]
    assert asked[-1].mode == "stop"


def test_waiting_for_a_drain_has_an_end(fleet: Any, toban: Any) -> None:
    code, out, err = toban("executor", "drain", "5", "--wait", "--timeout", "0.1")
    assert (code, out) == (75, "")
    assert "waits for 2 runs" in err and "still runs 2 after 0.1 s; it stays drained" in err


def test_demote_asks_first_and_names_the_epoch_that_was_seen(cluster: Any, toban: Any) -> None:
    cluster.reader.answers["GetCluster"] = pb.Cluster(epoch=40, leader_worker_id=1, leader_address="a:1")
    answer = pb.DemoteLeaderResponse(new_epoch=41, leader_worker_id=2, leader_address="b:1")
    cluster.operations.answers["DemoteLeader"] = answer
    code, _, err = toban("cluster", "demote")
    assert (code, cluster.operations.requests) == (65, []) and "add --yes" in err
    code, out, _ = toban("cluster", "demote", "--yes", "--reason", "patching")
    assert code == 0
    assert out.splitlines()[:2] == ["before: a:1 (worker 1, epoch 40)", "now:    b:1 (worker 2, epoch 41)"]
    assert out.splitlines()[2].startswith("took:")
    [sent] = cluster.operations.requests
    assert (sent.epoch, sent.reason) == (40, "patching")
    toban("cluster", "demote", "--yes", "--epoch", "39")
    assert cluster.operations.requests[-1].epoch == 39


def test_the_audit_log_is_read_by_pages(cluster: Any, toban: Any) -> None:
    entries = [
        pb.AuditEntry(id=number, actor="admin-cli", action="drain", target="executor 5 (host-a)", reason="disk")
        for number in range(900, 0, -1)
    ]

    def page(request: pb.ListAuditRequest) -> pb.ListAuditResponse:
        start = 900 - int(request.page.cursor or 901) + 1
        found = entries[start : start + request.page.limit]
        more = str(found[-1].id) if start + len(found) < len(entries) else ""
        return pb.ListAuditResponse(entries=found, next_cursor=more)

    cluster.operations.answers["ListAudit"] = page
    code, out, _ = toban("audit", "list", "--limit", "800", "-o", "name")
    assert (code, out.split()) == (0, [str(number) for number in range(900, 100, -1)])
    assert [one.page.limit for one in cluster.operations.requests] == [500, 300]
    cluster.operations.answers["ListAudit"] = pb.ListAuditResponse()
    assert toban("audit", "list")[1] == "Nobody has changed anything.\n"


def test_a_reason_that_is_cut_is_said_to_be(fleet: Any, toban: Any) -> None:
    assert "warning" not in toban("executor", "drain", "host-a", "--reason", "r" * 1000)[2]
    err = toban("executor", "drain", "host-a", "--reason", "r" * 1001)[2]
    assert err == "warning: --reason has 1001 characters, the first 1000 are kept\n"


def test_one_run_goes_on(fleet: Any, toban: Any) -> None:
    one = pb.Executor(worker_id=5, node_id="host-a", running=1)
    fleet.operations.answers |= {"DrainExecutor": one, "DetachExecutor": one}
    assert "; 1 run goes on\n" in toban("executor", "drain", "host-a")[1]
    assert "; 1 run goes on to its end\n" in toban("executor", "detach", "host-a")[1]


def test_ranges_have_all_their_digits() -> None:
    from toban_cli.commands.operations import _range, _words

    assert _range(pb.Setting(minimum=0, maximum=31_536_000)) == "0 to 31536000"
    assert _words("31536000.0") == "31536000"
