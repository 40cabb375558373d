"""Configuration: what is wrong is said in one line before anything starts."""

import os
from pathlib import Path
from typing import ClassVar

import pytest

from toban_runtime.config import ConfigError, ServiceConfig, load, read


class Needy(ServiceConfig):
    """A service that needs a database."""

    REQUIRED: ClassVar[tuple[str, ...]] = ("database_url", "coordinators")


@pytest.fixture(autouse=True)
def clean(monkeypatch: pytest.MonkeyPatch) -> None:
    """No SCHEDULER_* variable of the machine that runs the tests."""
    for name in os.environ:
        if name.startswith("SCHEDULER_"):
            monkeypatch.delenv(name)


@pytest.mark.seed(26, 122)
def test_defaults() -> None:
    config = read(ServiceConfig)
    assert config.tls_dir == Path("/etc/scheduler/tls")
    assert (config.trust_domain, config.grpc_host, config.grpc_port) == ("toban.internal", "127.0.0.1", 0)
    assert config.advertised == "127.0.0.1"
    assert config.node_id


def test_everything_that_the_brief_names_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    values = {
        "DATABASE_URL": "postgresql://u:x7Jq@h/d",
        "REDIS_URL": "redis+sentinel://:p9Zk@a:1,b:2/main",
        "GRPC_HOST": "0.0.0.0",
        "GRPC_PORT": "7000",
        "ADVERTISE_HOST": "node-1",
        "COORDINATORS": "a:1, [::1]:2,",
        "LOG_ARCHIVERS": "c:3",
        "LABELS": "zone=a, disk=",
        "SLOTS": "4",
        "LOG_FORMAT": "json",
        "S3_REGION": "",
    }
    for name, value in values.items():
        monkeypatch.setenv(f"SCHEDULER_{name}", value)
    config = read(Needy)
    assert config.database_url == "postgresql://u:x7Jq@h/d"
    assert config.coordinators == ("a:1", "[::1]:2")
    assert config.labels == {"zone": "a", "disk": ""}
    assert (config.advertised, config.slots, config.s3_region) == ("node-1", 4, "us-east-1")
    assert "x7Jq" not in repr(config) and "p9Zk" not in repr(config)


def test_a_bind_to_all_addresses_advertises_the_host_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SCHEDULER_GRPC_HOST", "0.0.0.0")
    assert read(ServiceConfig).advertised not in ("0.0.0.0", "127.0.0.1", "")


def test_a_secret_comes_from_a_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = tmp_path / "url"
    file.write_text("postgresql://u:fromfile@h/d\n")
    monkeypatch.setenv("SCHEDULER_DATABASE_URL_FILE", str(file))
    assert read(ServiceConfig).database_url == "postgresql://u:fromfile@h/d"
    monkeypatch.setenv("SCHEDULER_DATABASE_URL", "postgresql://u:other@h/d")
    with pytest.raises(ConfigError, match="set as well"):
        read(ServiceConfig)


@pytest.mark.seed(169)
@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        (
            "GRPC_PROT",
            "1",
            "SCHEDULER_GRPC_PROT: unknown variable in the environment; did you mean SCHEDULER_GRPC_PORT",
        ),
        ("TLS_DIR_FILE", "/x", "unknown variable"),
        ("GRPC_PORT", "70000", "SCHEDULER_GRPC_PORT: Input should be less than or equal to 65535"),
        ("GRPC_PORT", "x", "SCHEDULER_GRPC_PORT"),
        ("COORDINATORS", "a", "SCHEDULER_COORDINATORS: 'a' is not host:port"),
        ("COORDINATORS", "a:0", "is not host:port"),
        ("LABELS", "a", "SCHEDULER_LABELS: 'a' is not key=value"),
        ("LABELS", "a=1,a=2", "given twice"),
        ("LOG_LEVEL", "loud", "SCHEDULER_LOG_LEVEL"),
        ("S3_SECRET_KEY_FILE", "/nonexistent/key", "cannot read '/nonexistent/key'"),
        ("S3_SECRET_KEY", "ChangeMe123!", "SCHEDULER_S3_SECRET_KEY: holds a sample secret"),
        ("S3_SECRET_KEY", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY", "sample secret"),
        ("DATABASE_URL", "postgresql://u:password@h/d", "SCHEDULER_DATABASE_URL: holds a sample secret"),
        ("REDIS_URL", "redis://:s%65cret@h", "sample secret"),
    ],
)
def test_wrong_values_stop_the_start(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], name: str, value: str, says: str
) -> None:
    monkeypatch.setenv(f"SCHEDULER_{name}", value)
    with pytest.raises(SystemExit) as caught:
        load(ServiceConfig)
    assert caught.value.code == 78
    said = capsys.readouterr().err
    assert says in said
    assert said.count("\n") == 1


def test_what_a_service_needs_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match=r"SCHEDULER_DATABASE_URL: not set.*SCHEDULER_DATABASE_URL_FILE"):
        read(Needy)
    monkeypatch.setenv("SCHEDULER_DATABASE_URL", "postgresql://h/d")
    with pytest.raises(ConfigError, match="SCHEDULER_COORDINATORS: not set"):
        read(Needy)


def test_an_invalid_secret_is_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SCHEDULER_DATABASE_URL", "postgresql://u:hunter2hunter2@[h/d")
    monkeypatch.setenv("SCHEDULER_GRPC_PORT", "-1")
    with pytest.raises(ConfigError) as caught:
        read(ServiceConfig)
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    "url",
    [
        "postgres//u:SECRETPW@h/x",
        "postgresql:/u:SECRETPW@h/x",
        "mysql://u:SECRETPW@h/x",
        "u:SECRETPW@h/x",
        "host=h password=SECRETPW",
        "postgresql://u:pa@SECRETPW:5432@h/x",
        "postgresql://u:SECRETPW/more@h/x",
        "postgresql://u:pa@ss:SECRETPW@h/x",
        "postgresql://u:p@h:SECRETPW/x",
    ],
)
def test_a_wrong_database_url_is_named_and_not_shown(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], url: str
) -> None:
    monkeypatch.setenv("SCHEDULER_DATABASE_URL", url)
    with pytest.raises(SystemExit) as caught:
        load(ServiceConfig)
    said = capsys.readouterr().err
    assert caught.value.code == 78 and said.startswith("SCHEDULER_DATABASE_URL: is not a PostgreSQL URL")
    assert "SECRETPW" not in said and said.count("\n") == 1


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://u:p%40%2Fx?y@h:5432/d?sslmode=verify-full&application_name=a:b",
        "postgres://h/d",
        "postgresql:///d?host=/run/postgresql",
        "postgresql://u@%2Frun%2Fpg/d",
        "postgresql://u:p#x@[::1]:5432,h2:5433/d?target_session_attrs=read-write",
    ],
)
def test_every_shape_of_a_database_url_is_taken(monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    monkeypatch.setenv("SCHEDULER_DATABASE_URL", url)
    assert read(ServiceConfig).database_url == url


@pytest.mark.parametrize(
    ("content", "mode", "problem"),
    [
        ("", 0o600, "is empty; write a random token into it"),
        ("x7JqWk", 0o644, "has mode 0644, which gives rights to every account; chmod 600 it"),
        ("changeme", 0o600, "holds a sample secret; replace it by a generated one"),
    ],
)
def test_a_token_file_that_protects_nothing_stops_the_start(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, content: str, mode: int, problem: str
) -> None:
    file = tmp_path / "token"
    file.write_text(content)
    file.chmod(mode)
    monkeypatch.setenv("SCHEDULER_ADMIN_TOKEN_FILE", str(file))
    with pytest.raises(ConfigError, match=f"^SCHEDULER_ADMIN_TOKEN_FILE: {file} {problem}"):
        read(ServiceConfig)
    file.write_text("x7JqWk\n")
    file.chmod(0o600)
    assert read(ServiceConfig).admin_token_file == file
