"""What doctor concludes from what it found here and at each address."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toban_cli.doctor import checks
from toban_cli.doctor.checks import Visit
from toban_cli.doctor.merge import merged, worst
from toban_domain.finding import Finding
from toban_transport.certificate_inspection import FileFacts, Identity

NOW = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
OURS = Identity(
    not_before=NOW - timedelta(1),
    not_after=NOW + timedelta(400),
    uris=("spiffe://d/admin-cli",),
    dns=("admin-cli.d",),
    trusted=True,
)
FACTS = FileFacts(
    directory=Path("/tls"),
    certificate=OURS,
    key_matches=True,
    key_mode=0o600,
    authorities_begin=NOW - timedelta(1),
    authorities_end=NOW + timedelta(400),
)
THEIRS = replace(OURS, uris=("spiffe://d/coordinator",), dns=("coordinator.d",))
VISIT = Visit(
    service="coordinator",
    address="a:1",
    identity=THEIRS,
    version="1.0",
    health={"status": "ok", "checks": {"redis": {"status": "ok", "value": True}}},
    clock=(0.0, 0.01),
)


def unwell(findings: list[Finding]) -> list[tuple[str, str]]:
    for finding in findings:
        assert finding.ok == (finding.message == "") == (finding.remedy == "")
    return [(finding.name, finding.status) for finding in findings if not finding.ok]


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({}, []),
        (
            {"problems": (("tls.key", "cannot be read"),), "key_matches": None, "key_mode": None},
            [("tls-files", "error")],
        ),
        ({"key_matches": False}, [("tls-files", "error")]),
        ({"key_mode": 0o644}, [("key-mode", "error")]),
        ({"key_mode": 0o620}, [("key-mode", "error")]),
        ({"certificate": replace(OURS, not_after=NOW)}, [("certificate", "error")]),
        (
            {"certificate": replace(OURS, not_before=NOW - timedelta(9), not_after=NOW + timedelta(hours=5))},
            [("certificate", "warning")],
        ),
        ({"certificate": replace(OURS, not_before=NOW + timedelta(1))}, [("certificate", "error")]),
        ({"certificate": replace(OURS, uris=("spiffe://d/executor",))}, [("identity", "error")]),
        ({"certificate": replace(OURS, uris=())}, [("identity", "error")]),
        ({"certificate": replace(OURS, uris=(*OURS.uris, "spiffe://d/executor"))}, [("identity", "error")]),
        ({"certificate": replace(OURS, trusted=False)}, [("trust", "error")]),
        ({"certificate": replace(OURS, trusted=None), "authorities_end": None}, []),
        (
            {"authorities_begin": NOW - timedelta(3640), "authorities_end": NOW + timedelta(10)},
            [("certificate", "warning")],
        ),
        # One of a chart: thirty days, renewed ten days before its end.
        ({"certificate": replace(OURS, not_before=NOW - timedelta(19), not_after=NOW + timedelta(11))}, []),
        (
            {"certificate": replace(OURS, not_before=NOW - timedelta(28), not_after=NOW + timedelta(2))},
            [("certificate", "warning")],
        ),
    ],
)
def test_own_files(change: dict[str, Any], expected: list[tuple[str, str]]) -> None:
    assert unwell(checks.files(replace(FACTS, **change), service="admin-cli", trust_domain="d", now=NOW)) == expected


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({}, []),
        ({"health": None}, []),
        ({"health": {"checks": "?"}}, []),
        ({"health": {"checks": {"redis": {"status": "warning", "value": False}}}}, [("health", "warning")]),
        (
            {"health": {"checks": {"a": {"status": "error"}, "b": {"status": "warning"}}}},
            [("health", "error"), ("health", "warning")],
        ),
        ({"identity": replace(THEIRS, dns=("executor.d",))}, [("identity", "error")]),
        ({"identity": replace(THEIRS, trusted=False)}, [("trust", "error")]),
        ({"identity": replace(THEIRS, not_after=NOW)}, [("certificate", "error")]),
        *[({"step": step, "failed": "why"}, [("server", "error")]) for step in checks._FAILURES],
    ],
)
def test_a_server(change: dict[str, Any], expected: list[tuple[str, str]]) -> None:
    assert unwell(checks.server(replace(VISIT, **change), trust_domain="d", now=NOW)) == expected


def test_versions() -> None:
    assert unwell(checks.versions(VISIT, "1.0")) == []
    assert unwell(checks.versions(VISIT, "1.1")) == [("version", "warning")]
    assert checks.versions(replace(VISIT, version=""), "1.0") == []


@given(offset=st.floats(-1e5, 1e5), doubt=st.floats(0, 30))
def test_the_clock_is_only_blamed_for_what_is_sure(offset: float, doubt: float) -> None:
    [finding] = checks.clock(
        [replace(VISIT, clock=(offset, doubt)), replace(VISIT, clock=(9e9, 100.0)), replace(VISIT, clock=None)]
    )
    sure = abs(offset) - doubt
    assert finding.status == ("error" if sure > 60 else "warning" if sure > 2 else "ok")
    if finding.message:
        assert ("behind" in finding.message) == (offset > 0)


def test_no_server_has_a_clock() -> None:
    assert checks.clock([replace(VISIT, clock=None)]) == []


def test_others_add_what_they_alone_find_wrong() -> None:
    well = Finding(name="redis", subject="Redis", value="7")
    bad = replace(well, status="warning", message="m", remedy="x")
    assert merged([]) == []
    assert merged([("coordinator a:1", [well]), ("coordinator b:2", [well])]) == [well]
    assert merged([("coordinator a:1", [bad]), ("coordinator b:2", [bad])]) == [bad]
    both = merged([("coordinator a:1", [well]), ("coordinator b:2", [bad])])
    assert (both[0], both[1].status, "b:2" in both[1].subject) == (well, "warning", True)


def test_the_worst_counts() -> None:
    ok = Finding(name="a", subject="b", value="c")
    assert worst([]) == "ok"
    assert worst([ok, replace(ok, status="warning")]) == "warning"
    assert worst([replace(ok, status="error"), replace(ok, status="warning")]) == "error"
