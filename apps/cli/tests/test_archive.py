"""`toban archive status|run|verify`: what is said, and the exit codes."""

from __future__ import annotations

import json
from typing import Any

import pytest

from toban_proto.v1 import logs_pb2 as pb

DAY = "2026-11-01"


def test_status_for_people_and_programs(cluster: Any, toban: Any) -> None:
    day = pb.ArchiveDay(
        log_day=DAY, tokens=3, chunks=5, bytes=2048, open_chunks=2, archived_objects=1, archived_chunks=3, due=True
    )
    cluster.archive.status = pb.ArchiveStatusResponse(
        days=[day],
        retention_days=7,
        oldest_not_archived=DAY,
        database_bytes=900,
        bookkeeping_bytes=3072,
        budget_bytes=1000,
        last_error="the object store does not answer",
        bucket="s3://logs",
    )
    code, out, _ = toban("archive", "status")
    assert code == 0
    for words in (
        "s3://logs",
        "7 days",
        "90% of",
        "3.0 KiB, not counted in the budget",
        DAY,
        "never",
        "the object store does not answer",
        "3 in 1",
        "2.0 KiB",
    ):
        assert words in out
    code, out, _ = toban("archive", "status", "-o", "json")
    assert json.loads(out)["days"][0]["open_chunks"] == 2


def test_what_expires(cluster: Any, toban: Any) -> None:
    cluster.archive.status = pb.ArchiveStatusResponse(retention_days=7, archive_retention_days=1, expired_waiting=2)
    assert "Kept in the archive:  7 days; 2 expired objects still to be deleted" in toban("archive", "status")[1]
    cluster.archive.status.archive_retention_days = 0
    assert "for ever" in toban("archive", "status")[1]
    actions = ("would_expire", "expired", "forgotten")
    cluster.archive.did = [
        pb.RunArchiveResponse(action=action, log_day=DAY, key="k", tokens=2, chunks=3, bytes=1024) for action in actions
    ]
    code, out, _ = toban("archive", "run")
    assert (code, out.splitlines()) == (
        0,
        [
            f"{DAY}  would expire: 2 attempts, 3 chunks, 1.0 KiB",
            f"{DAY}  expired, deleted k (1.0 KiB)",
            f"{DAY}  removed from the records: no object of it is left",
        ],
    )


def test_a_dry_run_asks_for_one(cluster: Any, toban: Any) -> None:
    cluster.archive.did = [pb.RunArchiveResponse(action="would_archive", log_day=DAY, tokens=2, chunks=3, bytes=1024)]
    code, out, _ = toban("archive", "run", "--dry-run")
    assert (code, out) == (0, f"{DAY}  would archive 2 attempts, 3 chunks, 1.0 KiB\n")
    assert cluster.archive.requests[0].dry_run


@pytest.mark.parametrize("output", [(), ("-o", "json"), ("-o", "name")])
def test_a_run_that_failed_in_part_ends_with_1(cluster: Any, toban: Any, output: tuple[str, ...]) -> None:
    cluster.archive.did = [
        pb.RunArchiveResponse(
            action="archived", log_day=DAY, key="logs/v1/x.tlog", tokens=2, chunks=3, lines=9, bytes=1024
        ),
        pb.RunArchiveResponse(action="failed", log_day=DAY, message="it is not what was archived"),
    ]
    code, out, _ = toban("archive", "run", *output)
    assert code == 1
    assert "logs/v1/x.tlog" in out


def test_a_run_with_nothing_to_do(cluster: Any, toban: Any) -> None:
    assert toban("archive", "run")[:2] == (0, "Nothing to archive or delete.\n")


def test_verify_ends_with_1_on_a_mismatch(cluster: Any, toban: Any) -> None:
    good = pb.VerifyArchiveResponse(log_day=DAY, key="a", chunks=3, bytes=10, ok=True)
    cluster.archive.verified = [good]
    code, out, err = toban("archive", "verify", "--day", DAY)
    assert (code, out, err) == (0, "a  3 chunks, 10 B  ok\n", "1 objects are good (3 chunks)\n")
    assert cluster.archive.requests[0].log_day == DAY
    cluster.archive.verified = [
        good,
        pb.VerifyArchiveResponse(key="b", chunks=1, bytes=2, problem="the object is not there"),
    ]
    code, out, err = toban("archive", "verify")
    assert code == 1
    assert "BROKEN: the object is not there" in out
    assert err == "1 of 2 objects are broken (4 chunks)\n"
    code, out, _ = toban("archive", "verify", "-o", "json")
    assert code == 1
    assert [one.get("ok", False) for one in json.loads(out)] == [True, False]
