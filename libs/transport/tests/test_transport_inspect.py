"""Certificates looked at without being used: chains, files that are missing or wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from toban_domain.errors import TobanError
from toban_stack import certs
from toban_transport.certificate_inspection import inspect_files, served


def test_a_whole_folder(tls: Path) -> None:
    facts = inspect_files(tls / "executor")
    assert facts.problems == ()
    assert (facts.key_matches, facts.key_mode) == (True, 0o600)
    assert facts.certificate is not None
    assert facts.certificate.uris == ("spiffe://toban.internal/executor",)
    assert facts.certificate.dns == ("executor.toban.internal",)
    assert facts.certificate.trusted is True
    assert facts.authorities_end is not None


def test_an_empty_folder_and_a_wrong_one(tmp_path: Path) -> None:
    assert [name for name, _ in inspect_files(tmp_path).problems] == ["tls.crt", "ca.crt", "tls.key"]
    for name in ("tls.crt", "ca.crt", "tls.key"):
        (tmp_path / name).write_text("not PEM")
    facts = inspect_files(tmp_path)
    assert all("PEM" in why for _, why in facts.problems)
    assert (facts.certificate, facts.key_matches, facts.authorities_end) == (None, None, None)


def test_another_authority_and_another_key(tls: Path, tmp_path: Path) -> None:
    other = certs.make_all(tmp_path / "other")
    mixed = tmp_path / "mixed"
    mixed.mkdir()
    for name, source in (("tls.crt", other), ("tls.key", tls), ("ca.crt", tls)):
        (mixed / name).write_bytes((source / "executor" / name).read_bytes())
    facts = inspect_files(mixed)
    assert facts.certificate is not None
    assert (facts.certificate.trusted, facts.key_matches) == (False, False)


def test_a_certificate_issued_by_itself_is_never_trusted(tls: Path, tmp_path: Path) -> None:
    for name, source in (("tls.crt", "ca/ca.crt"), ("tls.key", "ca/ca.key"), ("ca.crt", "executor/ca.crt")):
        (tmp_path / name).write_bytes((tls / source).read_bytes())
    other = certs.make_ca(tmp_path / "other")
    (tmp_path / "ca.crt").write_bytes((other / "ca.crt").read_bytes())
    facts = inspect_files(tmp_path)
    assert facts.certificate is not None
    assert facts.certificate.trusted is False


def test_no_server_listens(tls: Path, free_port: int) -> None:
    with pytest.raises(TobanError, match="refused"):
        served(
            f"127.0.0.1:{free_port}",
            "coordinator",
            directory=tls / "admin-cli",
            trust_domain="toban.internal",
            timeout=2.0,
        )
