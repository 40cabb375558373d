"""`toban doctor` as people and programs see it."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.timestamp_pb2 import Timestamp

from toban_domain.errors import ErrorCode, TobanError
from toban_proto.v1 import coordinator_pb2 as pb
from toban_runtime.clock import SystemClock

Toban = Callable[..., tuple[int, str, str]]


@pytest.fixture
def old_cluster(cluster: Any, monkeypatch: pytest.MonkeyPatch, tls: Path) -> Any:
    """A cluster that answers GetCluster; it has no Operations, as an older release."""
    now = Timestamp()
    now.FromDatetime(SystemClock().wall())
    cluster.reader.answers["GetCluster"] = pb.Cluster(
        server_time=now, health_json='{"checks": {"redis": {"status": "ok"}}}'
    )
    monkeypatch.setenv("TOBAN_TLS_DIR", str(tls / "admin-cli"))
    return cluster


def test_warnings_alone_have_their_own_exit_code(old_cluster: Any, toban: Toban) -> None:
    code, out, err = toban("doctor")
    assert (code, err) == (2, "")
    lines = out.splitlines()
    assert lines[0].startswith(f"warning: version: coordinator {old_cluster.coordinator} (older)")
    assert lines[2].startswith("  remedy: ")
    assert ": 1 warning, " in lines[-1]


def test_every_format(old_cluster: Any, toban: Toban) -> None:
    answer = json.loads(toban("doctor", "-o", "json")[1])
    assert answer["status"] == "warning"
    assert {"name", "subject", "value", "status", "message", "remedy"} == set(answer["checks"][0])
    assert toban("doctor", "-o", "name")[1] == "version\n"
    wide = toban("doctor", "-o", "wide")[1].splitlines()
    assert wide[0].split() == ["STATUS", "CHECK", "SUBJECT", "VALUE"]
    assert any(line.split()[:2] == ["ok", "server"] for line in wide)


def test_what_a_log_archiver_says_of_the_logs(old_cluster: Any, toban: Toban) -> None:
    old_cluster.archive.diagnosis.checks.add(
        name="log-migrations", subject="schema logs", value="3 applied", status="ok"
    )
    old_cluster.archive.diagnosis.checks.add(
        name="log-budget",
        subject="schema logs",
        value="101 %",
        status="error",
        message="it is full",
        remedy="more disk",
    )
    code, out, _ = toban("doctor")
    assert code == 1
    assert "error: log-budget: schema logs (101 %)\n  it is full\n  remedy: more disk\n" in out
    checks = json.loads(toban("doctor", "-o", "json")[1])["checks"]
    assert [one["status"] for one in checks if one["name"].startswith("log-")] == ["ok", "error"]


def test_a_clock_that_is_off(old_cluster: Any, toban: Toban) -> None:
    old_cluster.reader.answers["GetCluster"].server_time.FromDatetime(SystemClock().wall() + timedelta(seconds=5))
    code, out, _ = toban("doctor")
    assert code == 2
    assert "warning: clock: this machine (-" in out
    assert "behind PostgreSQL's clock" in out


def test_a_coordinator_without_its_database(old_cluster: Any, toban: Toban) -> None:
    def refuse(_request: Any) -> Any:
        raise TobanError(ErrorCode.UNAVAILABLE, "PostgreSQL is not there")

    old_cluster.reader.answer = lambda _method, request: refuse(request)
    code, out, _ = toban("doctor", "-o", "json")
    assert code == 1
    [found] = [check for check in json.loads(out)["checks"] if check["name"] == "server" and check["status"] == "error"]
    assert "PostgreSQL is not there" in found["message"]


def test_nothing_is_configured(toban: Toban, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TOBAN_COORDINATORS", raising=False)
    code, out, _ = toban("doctor")
    assert code == 1
    assert out.startswith("error: configuration: environment (unusable)\n")
    assert "TOBAN_COORDINATORS=host:port" in out


def test_no_server_runs(toban: Toban, monkeypatch: pytest.MonkeyPatch, tls: Path, free_port: int) -> None:
    monkeypatch.setenv("TOBAN_TLS_DIR", str(tls))
    monkeypatch.setenv("TOBAN_COORDINATORS", f"127.0.0.1:{free_port}")
    monkeypatch.delenv("TOBAN_LOG_ARCHIVERS", raising=False)
    code, out, _ = toban("doctor")
    assert code == 1
    assert f"error: server: coordinator 127.0.0.1:{free_port} (connect)" in out
    assert "warning: configuration: TOBAN_LOG_ARCHIVERS (empty)" in out


def test_not_a_tls_port(toban: Toban, monkeypatch: pytest.MonkeyPatch, tls: Path, redis_url: str) -> None:
    address = redis_url.split("//")[1].partition("/")[0].rpartition("@")[2]
    monkeypatch.setenv("TOBAN_TLS_DIR", str(tls))
    monkeypatch.setenv("TOBAN_COORDINATORS", address)
    code, out, _ = toban("doctor")
    assert code == 1
    assert f"error: server: coordinator {address} (tls)" in out


def test_one_malformed_address_does_not_stop_the_others(
    old_cluster: Any, toban: Toban, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOBAN_COORDINATORS", f"nonsense,{old_cluster.coordinator},h:99999")
    code, out, _ = toban("doctor", "-o", "json")
    checks = json.loads(out)["checks"]
    assert code == 1
    wrong = [check["message"] for check in checks if check["status"] == "error"]
    assert ["nonsense" in wrong[0], "h:99999" in wrong[1], len(wrong)] == [True, True, 2]
    assert {"subject": f"coordinator {old_cluster.coordinator}", "value": "answers"}.items() <= next(
        check for check in checks if check["name"] == "server"
    ).items()
    assert "1 coordinator, 1 log-archiver" in out


def test_a_missing_folder_of_certificates_is_one_finding(
    old_cluster: Any, toban: Toban, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOBAN_TLS_DIR", "/nowhere/tls")
    code, out, _ = toban("doctor")
    assert code == 1
    assert out.count("/nowhere/tls") == 1
    assert "error: tls-files: /nowhere/tls (missing)" in out
    assert "1 error, " in out.splitlines()[-1]


@pytest.mark.parametrize("cluster", ["rest"], indirect=True)
def test_a_site_is_examined_through_its_own_answers(
    cluster: Any, toban: Toban, monkeypatch: pytest.MonkeyPatch
) -> None:
    check = pb.DiagnosisCheck(name="redis", status="error", subject="redis", value="none", message="no", remedy="start")
    cluster.operations.answers["Diagnose"] = pb.Diagnosis(checks=[check])
    code, out, _ = toban("doctor", "-o", "json")
    first, second = json.loads(out)["checks"]
    assert code == 1 and (first["name"], first["value"], second["remedy"]) == ("site", "ada, role admin", "start")
    cluster.operations.answers["Diagnose"] = TobanError(ErrorCode.PERMISSION_DENIED, "ada may not; ask for role admin")
    code, out, _ = toban("doctor")
    assert code == 1 and "error: site: http://" in out and "remedy: ask for role admin" in out
    monkeypatch.setenv("TOBAN_URL", "http://toban.example.com")
    code, out, _ = toban("doctor")
    assert code == 1 and "plain HTTP" in out
