"""New leaves, and another authority in three steps: what is trusted after each."""

from pathlib import Path

import pytest
from cryptography import x509
from cryptography.exceptions import InvalidSignature

from toban_runtime.clock import SystemClock
from toban_stack import certificate_rotation, certs
from toban_stack.__main__ import main
from toban_stack.errors import StackError
from toban_transport.tls import TlsFiles


def leaf(tls: Path, service: str = "executor") -> x509.Certificate:
    return TlsFiles(tls / service).current().certificate


def trusts(tls: Path, certificate: x509.Certificate) -> bool:
    """Whether every service trusts it."""
    found = set()
    for service in certs.SERVICES:
        trusted = False
        for authority in TlsFiles(tls / service).current().authorities:
            try:
                certificate.verify_directly_issued_by(authority)
                trusted = True
            except (ValueError, InvalidSignature):
                continue
        found.add(trusted)
    [same] = found
    return same


def test_a_renewal_changes_leaves_and_nothing_else(tmp_path: Path) -> None:
    tls = certs.make_all(tmp_path)
    before, ca = leaf(tls), (tls / "ca" / "ca.crt").read_bytes()
    assert certificate_rotation.renew(tls) == "7 certificates renewed"
    assert leaf(tls).serial_number != before.serial_number
    assert (tls / "ca" / "ca.crt").read_bytes() == ca == (tls / "executor" / "ca.crt").read_bytes()
    assert trusts(tls, before) and trusts(tls, leaf(tls))
    assert (tls / "executor" / "tls.key").stat().st_mode & 0o777 == 0o600
    assert not list(tls.rglob(".*")), "no drafts are left"


def test_another_authority_in_three_steps(tmp_path: Path) -> None:
    tls = certs.make_all(tmp_path)
    old = leaf(tls)
    for early in (certificate_rotation.use_new_ca, certificate_rotation.drop_old_ca):
        with pytest.raises(StackError, match="do trust-new-ca"):
            early(tls)
    certificate_rotation.trust_new_ca(tls)
    assert leaf(tls).serial_number == old.serial_number and trusts(tls, old)
    certificate_rotation.use_new_ca(tls)
    new = leaf(tls)
    assert new.serial_number != old.serial_number and trusts(tls, old) and trusts(tls, new)
    with pytest.raises(StackError, match="is not finished; do drop-old-ca first"):
        certificate_rotation.trust_new_ca(tls)
    certificate_rotation.drop_old_ca(tls)
    assert trusts(tls, new) and not trusts(tls, old)
    certs.make_all(tls)
    assert leaf(tls).serial_number == new.serial_number, "`make up` has nothing to do"


def test_a_revoked_certificate_is_on_every_list(tmp_path: Path) -> None:
    tls = certs.make_all(tmp_path)
    old = leaf(tls).serial_number
    assert "a new certificate for executor" in certificate_rotation.revoke(tls, "executor")
    assert leaf(tls).serial_number != old
    certificate_rotation.deny(tls, "0A:1b")
    assert "0A:1b".replace(":", "").lower().lstrip("0") in certificate_rotation.deny(tls, "0a1b")
    assert {TlsFiles(tls / service).current().denied for service in certs.SERVICES} == {frozenset({old, 0x0A1B})}
    assert (tls / "denied").read_text() == f"{old:x}  # executor\na1b\n"
    for wrong, words in (("web", "has no certificate"), ("..", "has no certificate")):
        with pytest.raises(StackError, match=words):
            certificate_rotation.revoke(tls, wrong)
    with pytest.raises(StackError, match="is no serial number"):
        certificate_rotation.deny(tls, "executor")
    # Written by hand; handed out with the next start, or by the supervisor.
    (tls / "denied").write_text("ff\n")
    certs.renew_due(tls)
    assert TlsFiles(tls / "coordinator").current().denied == {0xFF}


def test_a_worker_of_one_type_has_a_certificate_that_is_replaced_with_the_others(tmp_path: Path) -> None:
    tls = certs.make_all(tmp_path)
    assert certificate_rotation.make_worker(tls, "transcode.4k").endswith("of worker_type transcode.4k")
    folder = "external-worker.transcode.4k"
    old = leaf(tls, folder)
    names = old.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.UniformResourceIdentifier) == [
        "spiffe://toban.internal/external-worker/transcode.4k"
    ]
    assert names.get_values_for_type(x509.DNSName) == ["external-worker.toban.internal"]
    certificate_rotation.make_worker(tls, "transcode.4k")
    assert leaf(tls, folder) == old, "one that is good stays"
    assert certificate_rotation.renew(tls) == "8 certificates renewed" and leaf(tls, folder) != old
    certificate_rotation.trust_new_ca(tls)
    certificate_rotation.make_worker(tls, "other")
    for name in (folder, "external-worker.other"):
        assert len(TlsFiles(tls / name).current().authorities) == 2
    certificate_rotation.use_new_ca(tls)
    certificate_rotation.drop_old_ca(tls)
    assert trusts(tls, leaf(tls, folder)) and len(TlsFiles(tls / folder).current().authorities) == 1


@pytest.mark.parametrize("name", ["", "A", "a/b", "../executor", "a b"])
def test_no_certificate_for_what_is_no_type(tmp_path: Path, name: str) -> None:
    tls = certs.make_all(tmp_path)
    with pytest.raises(StackError, match="is no worker_type"):
        certificate_rotation.make_worker(tls, name)
    assert not list(tls.glob("external-worker.*"))


def test_at_the_prompt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("TOBAN_HOME", str(tmp_path))
    assert main(["certs", "renew"]) == 1
    assert "`make up` makes the certificates" in capsys.readouterr().err
    certs.make_all(tmp_path / "tls")
    assert main(["certs", "renew"]) == 0
    assert main(["certs"]) == 2
    assert (
        "certs drop-old-ca|certs revoke SERVICE|certs deny SERIAL|certs group NAME|certs worker TYPE"
        in capsys.readouterr().err
    )
    assert main(["certs", "revoke", "executor"]) == main(["certs", "deny", "1f"]) == 0
    assert main(["certs", "deny", "x"]) == 1
    assert main(["certs", "revoke"]) == main(["certs", "deny", "1f", "2f"]) == 2


def test_groups_of_executors_change_with_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TOBAN_HOME", str(tmp_path))
    tls = certs.make_all(tmp_path / "tls")
    assert main(["certs", "group", "pci"]) == 0
    group = tls / "executor-pci"
    assert f"certificate of group pci: {group}" in capsys.readouterr().out
    before = (group / "tls.crt").read_bytes()
    assert certificate_rotation.renew(tls) == "8 certificates renewed"
    assert (group / "tls.crt").read_bytes() != before
    certificate_rotation.trust_new_ca(tls)
    assert (group / "ca.crt").read_bytes() == (tls / "executor" / "ca.crt").read_bytes()
    assert main(["certs", "group", "web"]) == 1
    assert "a change of the authority is not finished" in capsys.readouterr().err
    certificate_rotation.use_new_ca(tls)
    certificate_rotation.drop_old_ca(tls)
    issued = x509.load_pem_x509_certificate((group / "tls.crt").read_bytes())
    issued.verify_directly_issued_by(x509.load_pem_x509_certificate((tls / "ca" / "ca.crt").read_bytes()))
    for wrong in ("default", "A b", "../x"):
        assert main(["certs", "group", wrong]) == 1
    assert sorted(path.name for path in tls.glob("executor*")) == ["executor", "executor-pci"]


def test_leaves_that_are_renewed_between_two_steps_leave_the_trust_alone(tmp_path: Path) -> None:
    tls = certs.make_all(tmp_path)
    certificate_rotation.trust_new_ca(tls)
    later = SystemClock().wall() + certs.LEAF_VALIDITY
    assert "executor" in certs.renew_due(tls, now=later)
    assert len(TlsFiles(tls / "executor").current().authorities) == 2
    certs.make_all(tls)
    assert len(TlsFiles(tls / "executor").current().authorities) == 2


def test_the_longest_name_of_a_group_has_a_certificate(tmp_path: Path) -> None:
    tls = certs.make_all(tmp_path)
    assert certificate_rotation.add_group(tls, "g" * 63).endswith("g" * 63)
