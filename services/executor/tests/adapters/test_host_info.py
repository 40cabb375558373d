"""What heartbeats tell of the machine."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from toban_executor.adapters.convert import heartbeat_to_pb
from toban_executor.adapters.host_info import fingerprint, vitals
from toban_executor.ports.coordinator import HeartbeatRequest
from toban_transport.convert import timestamp_from_pb
from toban_transport.tls import TlsFiles

NOW = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)


def test_a_heartbeat_tells_clock_disk_and_certificate(tls: Path, tmp_path: Path) -> None:
    files = TlsFiles(tls / "executor")
    seen = vitals(state_dir=tmp_path, tls=files, wall=NOW)
    assert seen is not None
    message = heartbeat_to_pb(HeartbeatRequest(echo=1, epoch_max=0, free_slots=1, held=(), vitals=seen), "i")
    assert timestamp_from_pb(message.wall_clock) == NOW
    assert 0 < message.disk_free_bytes == seen.disk_free_bytes
    assert timestamp_from_pb(message.certificate_not_after) == files.current().certificate.not_valid_after_utc


def test_a_heartbeat_goes_without_them(tls: Path, tmp_path: Path) -> None:
    assert vitals(state_dir=tmp_path / "gone", tls=TlsFiles(tls / "executor"), wall=NOW) is None
    message = heartbeat_to_pb(HeartbeatRequest(echo=1, epoch_max=0, free_slots=1, held=()), "i")
    assert not message.HasField("wall_clock")
    assert not message.HasField("certificate_not_after")


def test_a_machine_is_known_by_its_id_or_by_the_name_that_it_was_given(tmp_path: Path) -> None:
    ids = [tmp_path / name for name in ("one", "other")]
    for file in ids:
        file.write_text(file.name)
    own = [fingerprint(machine_id=file) for file in ids]
    assert own[0] != own[1]
    # A container's host name and machine id do not last; what it was named does.
    assert fingerprint("a/1", machine_id=ids[0]) == fingerprint("a/1", machine_id=ids[1])
    assert len({*own, fingerprint("a/1"), fingerprint("a/2")}) == 4
