"""Wrong input meets a running cluster: one line that says what, where and the remedy, an exit code of its own, nothing half done."""

import os
import re
import socket
import ssl
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from toban_stack.certs import make_all
from toban_stack.stack import Stack
from toban_testing.stack_fixtures import running_stack, sql

pytestmark = pytest.mark.e2e

JOB = "apiVersion: toban/v1\nkind: Job\nmetadata: {name: NAME}\nspec:\n  steps: [{argv: [PROGRAM]}]\n"
SCHEDULE = "---\napiVersion: toban/v1\nkind: Schedule\nmetadata: {name: bad}\nspec: {job: fine, RULE}\n"
FINE = JOB.replace("NAME", "fine").replace("PROGRAM", "/bin/true")
# A document that is sound comes first each time: it must not be applied either.
BEFORE = JOB.replace("NAME", "before").replace("PROGRAM", "/bin/true") + "---\n"
LARGE = "x" * (32 * 1024 + 1)
EMPTY_SETTINGS = b"\0\0\0\4\0\0\0\0\0"
TABLES = (
    "job_definitions",
    "job_definition_versions",
    "schedules",
    "job_runs",
    "job_attempts",
    "job_events",
    "fire_ledger",
)


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """A cluster that knows one job, `fine`, and a schedule of it."""
    home = tmp_path_factory.mktemp("wrong-input") / "home"
    with running_stack(home, coordinators=1, executors=1) as running:
        yield running


@pytest.fixture(scope="module", autouse=True)
def known(stack: Stack, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file of what the cluster knows."""
    file = tmp_path_factory.mktemp("known") / "fine.yaml"
    file.write_text(FINE + SCHEDULE.replace("name: bad", "name: hourly").replace("RULE", "every_n_minutes: 60"))
    done = toban(stack, "apply", "-f", str(file))
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("job fine created\nschedule hourly created\n")
    return file


def toban(stack: Stack, *argv: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """The command as a process, with nothing set but where the stack is."""
    base = {name: value for name, value in os.environ.items() if not name.startswith(("SCHEDULER_", "TOBAN_"))}
    return subprocess.run(
        [sys.executable, "-m", "toban_cli", *argv],
        env={**base, "TOBAN_HOME": str(stack.home.root), **environment},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def counts(stack: Stack) -> dict[str, int]:
    """How many rows there are of everything that input makes."""
    columns = ", ".join(f"(SELECT count(*) FROM scheduler.{table}) AS {table}" for table in TABLES)
    [row] = sql(stack, f"SELECT {columns}")
    return row


def refused(stack: Stack, code: int, *argv: str, **environment: str) -> str:
    """The one line that a command is refused with; what is stored is as before."""
    before = counts(stack)
    done = toban(stack, *argv, **environment)
    assert (done.returncode, done.stdout) == (code, ""), done.stderr
    assert len(done.stderr.splitlines()) == 1 and done.stderr.startswith("error: "), done.stderr
    assert counts(stack) == before
    return done.stderr.removeprefix("error: ").rstrip("\n")


@pytest.mark.parametrize(
    ("text", "code", "line"),
    [
        (
            FINE + "  timeout: 5\n",
            65,
            r"FILE, document 2: spec.timeout: is not a known key; did you mean 'timeout_seconds'\?",
        ),
        (
            FINE + "  retry: {attempts: [\n",
            65,
            r"FILE:\d+:1: expected the node content, but found '<stream end>'; check indentation, colons and quotes there",
        ),
        (
            FINE + SCHEDULE.replace("RULE", 'cron: "0 0 30 2 *"'),
            67,
            r"FILE, document 3: spec.cron: '0 0 30 2 \*' never fires; look at day of month, .*",
        ),
        (
            FINE + SCHEDULE.replace("RULE", 'daily_at: "03:00", timezone: Europe/Berln'),
            67,
            "FILE, document 3: spec.timezone: there is no zone 'Europe/Berln'; did you mean Europe/Berlin.*",
        ),
        (
            FINE + f"  default_payload: {{blob: {LARGE}}}\n",
            71,
            r"FILE, document 2: spec.default_payload: the payload has \d+ bytes, the limit is 32768; put the data into a file .*",
        ),
        (
            FINE + SCHEDULE.replace("RULE", f"every_n_minutes: 60, payload: {{blob: {LARGE}}}"),
            71,
            r"FILE, document 3: spec.payload: the payload has \d+ bytes, the limit is 32768; put the data into a file .*",
        ),
        (
            FINE + SCHEDULE.replace("RULE", "every_n_minutes: 60").replace("job: fine", "job: fin"),
            66,
            r"FILE, document 3: spec.job: there is no job 'fin'; did you mean 'fine'\?",
        ),
    ],
    ids=["field", "yaml", "cron", "zone", "default-payload", "schedule-payload", "job-of-schedule"],
)
def test_a_wrong_file_changes_nothing(stack: Stack, tmp_path: Path, text: str, code: int, line: str) -> None:
    file = tmp_path / "wrong.yaml"
    file.write_text(BEFORE + text)
    said = refused(stack, code, "apply", "-f", str(file))
    assert re.fullmatch(line.replace("FILE", re.escape(str(file))), said), said


def test_the_payload_of_a_start_is_too_large(stack: Stack, tmp_path: Path) -> None:
    said = refused(stack, 71, "run", "start", "fine", "--param", f"blob={LARGE}")
    assert re.fullmatch(r"the payload has \d+ bytes, the limit is 32768; put the data into a file or a bucket .*", said)
    (tmp_path / "payload.json").write_text(f'{{"blob": "{LARGE}"}}')
    assert refused(stack, 71, "run", "start", "fine", "--payload", f"@{tmp_path / 'payload.json'}") == said


def test_a_start_of_an_unknown_job(stack: Stack) -> None:
    assert refused(stack, 66, "run", "start", "fin") == "there is no job 'fin'; did you mean 'fine'?"


@pytest.mark.parametrize("program", ["no-such-program", "/opt/nowhere/no-such-program"])
def test_a_program_that_does_not_exist(stack: Stack, tmp_path: Path, program: str) -> None:
    name = f"missing-{len(program)}"
    (tmp_path / "job.yaml").write_text(JOB.replace("NAME", name).replace("PROGRAM", program))
    assert toban(stack, "apply", "-f", str(tmp_path / "job.yaml")).returncode == 0
    done = toban(stack, "run", "start", name, "--wait", "--follow")
    assert (done.returncode, done.stdout) == (127, "")
    begun, ended = done.stderr.splitlines()
    assert re.fullmatch(rf"run \d+ of {name} started", begun)
    # Without a duration: nothing ever ran.
    told = rf"run \d+ FAILED: program '{program}' not found.*; .*on this executor.*"
    assert re.fullmatch(told, ended), ended
    [run] = sql(stack, "SELECT state::text, reason FROM scheduler.job_runs WHERE job_name = %(name)s", name=name)
    assert run == {"state": "FAILED", "reason": "spawn_failed"}


def test_the_same_file_again(stack: Stack, known: Path) -> None:
    versions = "SELECT (SELECT array_agg(version) FROM scheduler.job_definitions) AS jobs, array_agg(version) AS schedules FROM scheduler.schedules"
    before = counts(stack), sql(stack, versions)
    done = toban(stack, "apply", "-f", str(known))
    assert (done.returncode, done.stdout, done.stderr) == (0, "job fine unchanged\nschedule hourly unchanged\n", "")
    assert (counts(stack), sql(stack, versions)) == before


@pytest.mark.parametrize("argv", [("run", "list"), ("run", "start", "fine"), ("job", "get", "fine")])
def test_the_certificate_of_another_service(stack: Stack, argv: tuple[str, ...]) -> None:
    said = refused(stack, 77, *argv, SCHEDULER_TLS_DIR=str(stack.home.tls / "executor"))
    assert re.fullmatch(r"service 'executor' may not call /toban_proto\.v1\.\w+/\w+; use the certificate of .*", said)


def test_the_certificate_of_another_authority(stack: Stack, tmp_path: Path) -> None:
    said = refused(stack, 69, "run", "start", "fine", SCHEDULER_TLS_DIR=str(make_all(tmp_path) / "admin-cli"))
    assert "certificate" in said and stack.coordinators[0] in said


def test_a_folder_without_a_certificate(stack: Stack, tmp_path: Path) -> None:
    said = refused(stack, 78, "run", "start", "fine", SCHEDULER_TLS_DIR=str(tmp_path))
    assert said.startswith(f"{tmp_path}/tls.crt: cannot be read") and "SCHEDULER_TLS_DIR" in said


def service_addresses(stack: Stack) -> list[tuple[str, int]]:
    """Every port that speaks gRPC."""
    running = stack.processes()
    found = [running[name].address for name in ("coordinator-1", "log-archiver-1", "executor-1")]
    return [(host, int(port)) for host, _, port in (address.rpartition(":") for address in found)]


def first_answer(connection: socket.socket) -> bytes:
    """What a server says to the beginning of HTTP/2: b"" when it hangs up instead."""
    try:
        connection.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + EMPTY_SETTINGS)
        return connection.recv(1024)
    except (ssl.SSLError, ConnectionError):
        return b""


def over_tls(stack: Stack, address: tuple[str, int], certificate: Path | None) -> bytes:
    """The same over TLS, with or without a client certificate. The server's own certificate has to be good."""
    context = ssl.create_default_context(cafile=str(stack.home.tls / "admin-cli" / "ca.crt"))
    context.check_hostname = False
    context.set_alpn_protocols(["h2"])
    if certificate is not None:
        context.load_cert_chain(certificate / "tls.crt", certificate / "tls.key")
    with socket.create_connection(address, timeout=10) as plain, context.wrap_socket(plain) as connection:
        return first_answer(connection)


def test_plaintext_is_refused_at_the_transport(stack: Stack) -> None:
    for address in service_addresses(stack):
        with socket.create_connection(address, timeout=10) as connection:
            answer = first_answer(connection)
        # Nothing, or an alert of TLS (type 21): never a frame of HTTP/2.
        assert answer == b"" or answer[0] == 21, answer


def test_tls_without_a_client_certificate_is_refused_at_the_transport(stack: Stack) -> None:
    for address in service_addresses(stack):
        assert over_tls(stack, address, None) == b""
        assert over_tls(stack, address, stack.home.tls / "admin-cli")[3:4] == EMPTY_SETTINGS[3:4]


def test_a_run_that_no_executor_fits_names_the_labels(stack: Stack, tmp_path: Path) -> None:
    file = tmp_path / "picky.yaml"
    file.write_text(
        JOB.replace("NAME", "picky").replace("PROGRAM", "/bin/true") + "  selector: {labels: {gpu: a100}}\n"
    )
    assert toban(stack, "apply", "-f", str(file)).returncode == 0
    run = toban(stack, "run", "start", "picky", "-o", "name").stdout.strip()
    assert "no executor has the labels of its selector (gpu=a100)" in toban(stack, "run", "get", run).stdout
    assert toban(stack, "run", "cancel", run).returncode == 0
    assert "Waits" not in toban(stack, "run", "get", run).stdout


def test_a_variable_that_is_misspelt_does_not_lead_to_the_local_stack(stack: Stack) -> None:
    done = toban(stack, "run", "list", SCHEDULER_COORDINATERS="elsewhere:1")
    assert (done.returncode, done.stdout) == (78, "") and "did you mean SCHEDULER_COORDINATORS?" in done.stderr
