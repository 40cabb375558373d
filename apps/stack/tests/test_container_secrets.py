"""Certificates and secrets of a Toban in containers: the share of each container, a second start, a start a year later."""

import shutil
import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path

import psycopg
import pytest
from cryptography import x509
from cryptography.x509.verification import PolicyBuilder, Store, VerificationError

from toban_domain.deny_list import parse_denied
from toban_stack import certs, container_secrets
from toban_store import migrate

NOW = datetime(2030, 1, 1, tzinfo=UTC)
YEAR = timedelta(days=365)


@pytest.fixture
def folders(tmp_path: Path) -> tuple[Path, Path]:
    """The folder of everything, and one with a folder for each container, as volumes are."""
    for name in container_secrets.SHARES:
        (tmp_path / "hand-out" / name).mkdir(parents=True)
    return tmp_path / "keys", tmp_path / "hand-out"


def content(folder: Path) -> dict[str, bytes]:
    """Each file below a folder."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def accepted(share: Path, service: str, at: datetime) -> bool:
    """Whether a client that trusts this share's authority takes its certificate for `service` at that time."""
    authorities = Store(x509.load_pem_x509_certificates((share / "ca.crt").read_bytes()))
    leaf = x509.load_pem_x509_certificate((share / "tls.crt").read_bytes())
    verifier = (
        PolicyBuilder().store(authorities).time(at).build_server_verifier(x509.DNSName(f"{service}.toban.internal"))
    )
    try:
        verifier.verify(leaf, [])
    except VerificationError:
        return False
    return True


def test_each_container_gets_its_own_share_and_no_more(folders: tuple[Path, Path]) -> None:
    all_keys, hand_out = folders
    container_secrets.make(all_keys, hand_out, now=NOW)
    for name, share in container_secrets.SHARES.items():
        files = set(container_secrets.TLS_FILES if share.identity else ()) | set(share.secrets)
        assert {path.name for path in (hand_out / name).iterdir()} == files
        assert {path.stat().st_mode & 0o777 for path in (hand_out / name).iterdir()} == {share.mode}
        if share.identity:
            certificate = x509.load_pem_x509_certificate((hand_out / name / "tls.crt").read_bytes())
            names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
            assert names.get_values_for_type(x509.UniformResourceIdentifier) == [
                certs.spiffe_id(share.identity, certs.TRUST_DOMAIN)
            ]
            ssl.create_default_context(cafile=str(hand_out / name / "ca.crt")).load_cert_chain(
                hand_out / name / "tls.crt", hand_out / name / "tls.key"
            )
    assert not [path for path in content(hand_out) if "ca.key" in path]
    password = (hand_out / "postgres" / "postgres_password").read_text()
    assert len(password) >= 48
    holders = {path.split("/")[0] for path, data in content(hand_out).items() if password.encode() in data}
    assert holders == {"postgres", "migrate"}, "no service is the administrator of the database"
    for service in ("coordinator", "log-archiver"):
        role = f"toban_{service.replace('-', '_')}"
        own = (hand_out / "migrate" / f"{role}_password").read_text()
        url = (hand_out / service / "database_url").read_text()
        assert url == f"postgresql://{role}:{own}@postgres:5432/toban"
        holders = {path.split("/")[0] for path, data in content(hand_out).items() if own.encode() in data}
        assert holders == {service, "migrate"}


def test_jobs_have_no_token_that_opens_another_service(folders: tuple[Path, Path]) -> None:
    """A job can read what its executor can."""
    container_secrets.make(*folders, now=NOW)
    token = (folders[1] / "coordinator" / "admin_token").read_bytes()
    assert len(token) >= 48
    holders = {path.split("/")[0] for path, data in content(folders[1]).items() if token in data}
    assert holders == {"coordinator", "log-archiver", "admin-web", "prometheus"}
    given = folders[1] / "prometheus" / "executor_admin_token"
    assert (folders[1] / "executor" / "admin_token").read_bytes() == given.read_bytes() != token


def test_two_deployments_have_nothing_in_common(folders: tuple[Path, Path], tmp_path: Path) -> None:
    all_keys, hand_out = folders
    container_secrets.make(all_keys, hand_out, now=NOW)
    before = {path: data for path, data in content(hand_out).items() if not path.endswith("/machine")}
    for path in [*all_keys.rglob("*"), *hand_out.rglob("*")]:
        if path.is_file():
            path.unlink()
    container_secrets.make(all_keys, hand_out, now=NOW)
    assert not [path for path, data in before.items() if content(hand_out)[path] == data]


def test_services_log_in_with_what_the_migration_was_given(
    folders: tuple[Path, Path], pg_empty_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the containers `certs`, `migrate` and `coordinator` do one after the other."""
    container_secrets.make(*folders, now=NOW)
    monkeypatch.setenv("SCHEDULER_DATABASE_URL", pg_empty_url)
    assert migrate.main(["up", "--passwords", str(folders[1] / "migrate")]) == 0
    server = pg_empty_url.rpartition("@")[2]
    for service, table in (("coordinator", "scheduler.leader"), ("log-archiver", "logs.archive_lease")):
        url = (folders[1] / service / "database_url").read_text().rpartition("@")[0] + "@" + server
        with psycopg.connect(url) as connection:
            assert connection.execute(f"SELECT count(*) FROM {table}").fetchone() == (1,)
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                connection.execute("CREATE TABLE scheduler.mine (x int)")


def test_an_upgrade_takes_the_administrators_url_from_services(folders: tuple[Path, Path]) -> None:
    """Earlier releases gave every service the URL of the administrator, in the same file."""
    for service in ("coordinator", "log-archiver"):
        (folders[1] / service / "database_url").write_text(
            "postgresql://toban:of-the-administrator@postgres:5432/toban"
        )
    container_secrets.make(*folders, now=NOW)
    for service in ("coordinator", "log-archiver"):
        assert "of-the-administrator" not in (folders[1] / service / "database_url").read_text()


@pytest.mark.seed(121)
def test_a_start_a_year_later_renews_certificates_only_and_all_is_valid(folders: tuple[Path, Path]) -> None:
    """The authority is valid for years; certificates of services for a month."""
    container_secrets.make(*folders, now=NOW)
    before = content(folders[1])
    assert container_secrets.make(*folders, now=NOW + timedelta(days=10)) == []
    assert content(folders[1]) == before
    assert container_secrets.make(*folders, now=NOW + YEAR)
    after = content(folders[1])
    assert {path.split("/")[1] for path in after if after[path] != before[path]} == {"tls.key", "tls.crt"}
    for name, share in container_secrets.SHARES.items():
        if share.identity:
            assert accepted(folders[1] / name, share.identity, NOW + YEAR)
            assert not accepted(folders[1] / name, "another-service", NOW + YEAR)


def test_what_runs_for_months_has_valid_certificates(folders: tuple[Path, Path]) -> None:
    """The container certs-renewal, each day of three months; nothing before the first start."""
    assert container_secrets.renew(*folders, now=NOW) == []
    container_secrets.make(*folders, now=NOW)
    authority = content(folders[1])["executor/ca.crt"]
    renewals = 0
    for day in range(90):
        now = NOW + timedelta(days=day)
        renewals += bool(container_secrets.renew(*folders, now=now))
        assert accepted(folders[1] / "executor", "executor", now + timedelta(days=9))
    assert renewals == 4
    assert content(folders[1])["executor/ca.crt"] == authority


def test_a_month_off_ends_with_the_first_renewal(folders: tuple[Path, Path]) -> None:
    container_secrets.make(*folders, now=NOW)
    late = NOW + timedelta(days=31)
    assert not accepted(folders[1] / "executor", "executor", late)
    assert container_secrets.renew(*folders, now=late)
    assert accepted(folders[1] / "executor", "executor", late)


def test_the_watch_goes_on_after_a_failure(capsys: pytest.CaptureFixture[str]) -> None:
    turns: list[list[str] | Exception] = [["executor: tls.crt"], OSError("disk full"), []]

    def due() -> list[str]:
        turn = turns.pop(0)
        if isinstance(turn, Exception):
            raise turn
        return turn

    waits: list[float] = []
    container_secrets.watch(due, lambda seconds: waits.append(seconds) or len(waits) == 3)
    printed = capsys.readouterr()
    assert printed.out == "executor: tls.crt\n" and "cannot be renewed: disk full" in printed.err
    assert waits == [container_secrets.WATCH_SECONDS] * 3


def test_a_revoked_certificate_is_refused_by_every_container(folders: tuple[Path, Path]) -> None:
    container_secrets.make(*folders)
    before = content(folders[1])["executor/tls.crt"]
    assert "a new certificate for executor" in container_secrets.make(*folders, step=["revoke", "executor"])[0]
    assert content(folders[1])["executor/tls.crt"] != before
    serial = x509.load_pem_x509_certificate(before).serial_number
    for name, share in container_secrets.SHARES.items():
        denied = folders[1] / name / "denied"
        assert denied.exists() == bool(share.identity)
        if share.identity:
            assert parse_denied(denied.read_text()) == {serial}


def test_a_start_near_the_end_renews_certificates_and_keeps_secrets(folders: tuple[Path, Path]) -> None:
    container_secrets.make(*folders, now=NOW)
    before, late = content(folders[1]), NOW + certs.VALIDITY - timedelta(days=50)
    assert container_secrets.make(*folders, now=late)
    after = content(folders[1])
    changed = {path.split("/")[1] for path in after if after[path] != before[path]}
    assert changed == set(container_secrets.TLS_FILES)
    for name, share in container_secrets.SHARES.items():
        if share.identity:
            assert accepted(folders[1] / name, share.identity, late + timedelta(days=19))


def test_another_authority_goes_out_in_steps(folders: tuple[Path, Path]) -> None:
    container_secrets.make(*folders, now=None)
    share = folders[1] / "executor"
    first = content(share)
    assert container_secrets.make(*folders, step=["trust-new-ca"])[0] == "every service trusts both authorities"
    both = (share / "ca.crt").read_bytes()
    assert both.startswith(first["ca.crt"]) and both.count(b"BEGIN CERTIFICATE") == 2
    container_secrets.make(*folders, step=["use-new-ca"])
    assert (share / "tls.crt").read_bytes() != first["tls.crt"]
    # A start in between leaves it as it is.
    assert container_secrets.make(*folders) == []
    container_secrets.make(*folders, step=["drop-old-ca"])
    assert (share / "ca.crt").read_bytes() == both[len(first["ca.crt"]) :]


def test_a_wrong_call_and_a_folder_that_is_not_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert container_secrets.main(["renwe"]) == container_secrets.USAGE
    monkeypatch.setenv("TOBAN_KEYS", str(tmp_path / "keys"))
    monkeypatch.setenv("TOBAN_HAND_OUT", str(tmp_path / "nowhere"))
    assert container_secrets.main([]) == 1
    assert "certificates and secrets cannot be made" in capsys.readouterr().err
    monkeypatch.setenv("TOBAN_KEYS", str(tmp_path / "unused"))
    assert container_secrets.main(["renew"]) == 1
    assert "start once without a step, which makes everything" in capsys.readouterr().err


def test_a_folder_of_a_group_gets_the_certificate_of_the_group(folders: tuple[Path, Path]) -> None:
    all_keys, hand_out = folders
    (hand_out / "executor-pci").mkdir(parents=True)
    container_secrets.make(all_keys, hand_out, now=NOW)
    files = {path.name for path in (hand_out / "executor-pci").iterdir()}
    assert files == {path.name for path in (hand_out / "executor").iterdir()}
    certificate = x509.load_pem_x509_certificate((hand_out / "executor-pci" / "tls.crt").read_bytes())
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.UniformResourceIdentifier) == ["spiffe://toban.internal/executor/pci"]
    assert (hand_out / "executor" / "tls.key").read_bytes() != (hand_out / "executor-pci" / "tls.key").read_bytes()
    assert container_secrets.make(all_keys, hand_out, now=NOW) == []


def test_a_group_whose_folder_is_not_mounted_is_named(folders: tuple[Path, Path]) -> None:
    keys, hand_out = folders
    (hand_out / "executor-pci").mkdir(parents=True)
    container_secrets.make(keys, hand_out)
    assert container_secrets.renew(keys, hand_out) == []
    shutil.rmtree(hand_out / "executor-pci")
    [line] = container_secrets.renew(keys, hand_out)
    assert line.startswith("executor-pci: its certificate cannot be handed out; mount its volume at ")
