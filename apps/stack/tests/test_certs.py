"""Development certificates: names, modes, renewal."""

import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509

from toban_domain.errors import TobanError
from toban_stack import certs
from toban_testing.clock import FakeClock
from toban_transport.tls import TlsFiles

NOW = datetime(2030, 1, 1, tzinfo=UTC)


def names(folder: Path) -> x509.SubjectAlternativeName:
    certificate = x509.load_pem_x509_certificate((folder / "tls.crt").read_bytes())
    return certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value


def test_each_service_has_one_uri_and_one_dns_name(tls: Path) -> None:
    for service in certs.SERVICES:
        found = names(tls / service)
        assert found.get_values_for_type(x509.UniformResourceIdentifier) == [f"spiffe://toban.internal/{service}"]
        assert found.get_values_for_type(x509.DNSName) == [f"{service}.toban.internal"]
        assert len(list(found)) == 2


def test_keys_are_private_and_fit_their_certificates(tls: Path) -> None:
    assert (tls / "ca" / "ca.key").stat().st_mode & 0o777 == 0o600
    for service in certs.SERVICES:
        folder = tls / service
        assert (folder / "tls.key").stat().st_mode & 0o777 == 0o600
        context = ssl.create_default_context(cafile=str(folder / "ca.crt"))
        context.load_cert_chain(folder / "tls.crt", folder / "tls.key")


def test_a_second_call_changes_nothing(tmp_path: Path) -> None:
    def content() -> dict[Path, bytes]:
        return {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}

    certs.make_all(tmp_path, now=NOW)
    before = content()
    certs.make_all(tmp_path, now=NOW + timedelta(days=19))
    assert content() == before


def test_leaves_last_thirty_days_and_are_renewed_in_their_last_third(tmp_path: Path) -> None:
    certs.make_all(tmp_path, now=NOW)

    def ends() -> set[datetime]:
        files = [tmp_path / service / "tls.crt" for service in certs.SERVICES]
        return {x509.load_pem_x509_certificate(file.read_bytes()).not_valid_after_utc for file in files}

    assert ends() == {NOW + timedelta(days=30)}
    assert certs.renew_due(tmp_path, now=NOW + timedelta(days=19)) == []
    assert certs.renew_due(tmp_path, now=NOW + timedelta(days=21)) == list(certs.SERVICES)
    assert ends() == {NOW + timedelta(days=51)}
    # Nothing ran for more than the whole life of a certificate.
    late = NOW + timedelta(days=21 + 31)
    with pytest.raises(TobanError, match="expired at"):
        TlsFiles(tmp_path / "executor", clock=FakeClock(start=late))
    certs.make_all(tmp_path, now=late)
    assert TlsFiles(tmp_path / "executor", clock=FakeClock(start=late)).problem == ""
    assert ends() == {late + timedelta(days=30)}


def test_ten_year_leaves_of_an_earlier_release_are_replaced(tmp_path: Path) -> None:
    certs.make_all(tmp_path, now=NOW)
    certs.reissue(tmp_path / "ca", "executor", tmp_path / "executor", now=NOW, validity=timedelta(days=3650))
    authority = (tmp_path / "ca" / "ca.crt").read_bytes()
    assert certs.renew_due(tmp_path, now=NOW) == ["executor"]
    assert (tmp_path / "ca" / "ca.crt").read_bytes() == authority


@pytest.mark.parametrize("change", ["age", "authority", "domain"])
def test_a_certificate_is_renewed_when_it_is_no_longer_valid(tmp_path: Path, change: str) -> None:
    certs.make_all(tmp_path, now=NOW)
    before = (tmp_path / "executor" / "tls.crt").read_bytes()
    if change == "age":
        certs.make_all(tmp_path, now=NOW + timedelta(days=3630))
    elif change == "authority":
        (tmp_path / "ca" / "ca.key").unlink()
        certs.make_all(tmp_path, now=NOW)
    else:
        certs.make_all(tmp_path, trust_domain="example.org", now=NOW)
        assert names(tmp_path / "executor").get_values_for_type(x509.DNSName) == ["executor.example.org"]
    assert (tmp_path / "executor" / "tls.crt").read_bytes() != before
    certificate = x509.load_pem_x509_certificate((tmp_path / "executor" / "tls.crt").read_bytes())
    certificate.verify_directly_issued_by(
        x509.load_pem_x509_certificate((tmp_path / "executor" / "ca.crt").read_bytes())
    )


def test_a_group_of_executors_has_names_and_a_folder_of_its_own(tmp_path: Path) -> None:
    certs.make_all(tmp_path, groups=("pci", "default"), now=NOW)
    found = names(tmp_path / "executor-pci")
    assert found.get_values_for_type(x509.UniformResourceIdentifier) == ["spiffe://toban.internal/executor/pci"]
    assert found.get_values_for_type(x509.DNSName) == ["pci.executor.toban.internal"]
    assert certs.identities(tmp_path) == [*certs.SERVICES, "executor/pci"]
    before = (tmp_path / "executor-pci" / "tls.crt").read_bytes()
    certs.make_all(tmp_path, now=NOW)
    assert (tmp_path / "executor-pci" / "tls.crt").read_bytes() == before
    # Its end comes near: it is issued again without being named.
    certs.make_all(tmp_path, now=NOW + timedelta(days=3630))
    assert (tmp_path / "executor-pci" / "tls.crt").read_bytes() != before
    with pytest.raises(TobanError):
        certs.make_all(tmp_path, groups=("../x",), now=NOW)
