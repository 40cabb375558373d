"""`executor list`, `cluster status` and `cluster demote` against a cluster over mTLS."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from google.protobuf.timestamp_pb2 import Timestamp

from toban_domain.errors import ErrorCode, TobanError
from toban_domain.version import VERSION
from toban_proto.v1 import coordinator_pb2 as pb
from toban_runtime.clock import SystemClock

EPOCH = (1 << 51) | (3 << 27)


def ago(seconds: float) -> Timestamp:
    stamp = Timestamp()
    stamp.FromDatetime(SystemClock().wall() - timedelta(seconds=seconds))
    return stamp


def test_executors_and_cluster(cluster: Any, toban: Callable[..., tuple[int, str, str]]) -> None:
    executor = pb.Executor(
        worker_id=5,
        node_id="node-1",
        address="127.0.0.1:7001",
        state="on",
        slots=16,
        running=2,
        last_heartbeat_at=ago(7300),
        labels={"zone": "a"},
    )
    cluster.reader.answers["ListExecutors"] = pb.ListExecutorsResponse(executors=[executor])
    code, out, _ = toban("executor", "list")
    assert code == 0
    assert out.splitlines() == [
        "ID  NODE    ADDRESS         STATE  CLASS   RUNNING  SEEN    LABELS",
        "5   node-1  127.0.0.1:7001  on     shared  2/16     2h ago  zone=a",
    ]
    answer = pb.Cluster(
        epoch=EPOCH,
        leader_worker_id=1,
        leader_address="127.0.0.1:6001",
        leader_since=ago(3700),
        last_beat_at=ago(0.1),
        settled=True,
        executors=[executor],
        running=2,
        pending=1,
        server_time=ago(0),
        health_json='{"status":"warning","checks":{"redis":{"status":"warning","value":"down"},"postgresql":{"status":"ok"}}}',
    )
    answer.coordinators.add(
        worker_id=1, node_id="node-1", address="127.0.0.1:6001", role="leader", status="ok", last_heartbeat_at=ago(0.3)
    )
    cluster.reader.answers["GetCluster"] = answer
    assert "Sub-leader: none " in " ".join(toban("cluster", "status")[1].split())
    for worker_id, status in ((2, "lost"), (3, "ok")):
        answer.coordinators.add(
            worker_id=worker_id, node_id="node-2", address=f"127.0.0.1:600{worker_id}", role="subleader", status=status
        )
    code, out, _ = toban("cluster", "status")
    assert code == 0
    assert "Sub-leader: 127.0.0.1:6003 on node-2 " in " ".join(out.split())
    assert f"Leader: 127.0.0.1:6001 (worker 1, epoch {EPOCH}, since 1h ago)" in " ".join(out.split())
    assert "Health: warning: redis warning (down)" in " ".join(out.split())
    assert "Runs: 2 running, 1 waiting" in " ".join(out.split())
    code, out, _ = toban("cluster", "status", "--output=json")
    assert (json.loads(out)["epoch"], json.loads(out)["health"]["status"]) == (str(EPOCH), "warning")


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


def test_adopt_epoch_asks_first_and_says_what_it_used(cluster: Any, toban: Any) -> None:
    answer = pb.AdoptEpochResponse(epoch_before=40, epoch_after=90, generations_consumed=2, generations_left=4000)
    cluster.operations.answers["AdoptEpoch"] = answer
    code, _, err = toban("cluster", "adopt-epoch", "77")
    assert (code, cluster.operations.requests) == (65, []) and "add --yes" in err
    code, out, _ = toban("cluster", "adopt-epoch", "77", "--yes", "--reason", "restored")
    assert code == 0
    assert out.splitlines() == ["before: epoch 40", "now:    epoch 90", "used:   2 generations, 4000 left"]
    [sent] = cluster.operations.requests
    assert (sent.epoch, sent.reason) == (77, "restored")


def test_what_needs_attention(cluster: Any, toban: Callable[..., tuple[int, str, str]]) -> None:
    failed = {"job": "mail", "scope": "account", "scope_id": "17", "runs": 3, "last_run_id": 9, "last_state": "FAILED"}
    cluster.reader.answers["GetOverview"] = pb.Overview(
        server_time=ago(0),
        alerts=[
            pb.ActiveAlert(name="TobanQueueOld", severity="warning", value=412.0, unit="s"),
            pb.ActiveAlert(name="TobanBreakerOpen", severity="warning", value=2.0),
        ],
        failures=[pb.FailedRuns(**failed, last_finished_at=ago(7300), reason="exit_code", recovered=True)],
        more_failures=True,
        waiting=[pb.WaitingRuns(kind="limit", runs=5, oldest_seconds=61.0)],
        missed=[pb.MissedSlots(schedule="often", outcome="catch_up", slots=4, last_slot=ago(10900))],
        coming=[pb.ComingFire(schedule="often", job="hello", at=ago(-3700))],
        coming_schedules=12,
    )
    code, out, _ = toban("cluster", "overview")
    assert code == 0
    lines = [" ".join(line.split()) for line in out.splitlines()]
    for seen in (
        "TobanQueueOld warning 6m 52s",
        "TobanBreakerOpen warning 2",
        "Failures of the last 24 hours (more are not listed)",
        "mail (account 17) 3 9 FAILED 2h ago succeeded exit_code",
        "limit 5 1m 01s",
        "often catch_up 4 3h ago -",
        "Next of 12 schedules that fire within 24 hours",
    ):
        assert seen in lines, seen
    cluster.reader.answers["GetOverview"] = pb.Overview()
    assert toban("cluster", "overview")[1].split("\n")[:2] == ["Alerts", "none"]


def test_versions_are_of_the_command_and_of_the_servers_that_are_there(
    cluster: Any, toban: Callable[..., tuple[int, str, str]], subtests: pytest.Subtests
) -> None:
    members = [pb.Member(status=status, version=version) for status, version in (("ok", "0.9"), ("lost", "0.1"))]
    executors = [pb.Executor(state=state, version=version) for state, version in (("on", "0.8"), ("off", "0.2"))]
    executors.append(pb.Executor(state="draining", version="0.7"))
    cluster.reader.answers["GetCluster"] = pb.Cluster(coordinators=members, executors=executors)
    code, out, err = toban("version", "-o", "json")
    assert (code, err) == (0, "")
    assert json.loads(out) == {"client": VERSION, "coordinators": ["0.9"], "executors": ["0.7", "0.8"]}
    assert toban("version")[1].split() == ["Client:", VERSION, "Coordinators:", "0.9", "Executors:", "0.7,", "0.8"]
    for error in (TobanError(ErrorCode.UNAVAILABLE, "away"), TobanError(ErrorCode.PERMISSION_DENIED, "not for you")):
        with subtests.test(str(error.code)):
            cluster.reader.answers["GetCluster"] = error
            code, out, err = toban("version")
            assert (code, out.split()) == (0, ["Client:", VERSION])
            assert err.startswith("the versions of the servers are not known: ") and len(err.splitlines()) == 1
