"""Wrong input meets a running cluster: one line that says what, where and the remedy, an exit code of its own, nothing half done."""

import re
import socket
import ssl
from collections.abc import Callable, Iterator
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from toban_stack.certs import make_all
from toban_stack.stack import Stack
from toban_testing.stack_fixtures import sql, toban_process

pytestmark = pytest.mark.e2e

Toban = Callable[..., CompletedProcess[str]]
Refused = Callable[..., str]
JOB = "apiVersion: toban/v1\nkind: Job\nmetadata: {name: NAME}\nspec:\n  steps: [{argv: [PROGRAM]}]\n"
SCHEDULE = "---\napiVersion: toban/v1\nkind: Schedule\nmetadata: {name: wrong-bad}\nspec: {job: wrong-fine, RULE}\n"
FINE = JOB.replace("NAME", "wrong-fine").replace("PROGRAM", "/bin/true")
# A document that is sound comes first: it must not be applied either.
BEFORE = JOB.replace("NAME", "wrong-before").replace("PROGRAM", "/bin/true") + "---\n"
EMPTY_SETTINGS = b"\0\0\0\4\0\0\0\0\0"
# Jobs and schedules of these tests are called wrong-...; other tests' are not counted, since their runs may still be ending.
RUNS = "(SELECT id FROM scheduler.job_runs WHERE job_name LIKE 'wrong-%%')"
ROWS = (
    "job_definitions WHERE name LIKE 'wrong-%%'",
    "job_definition_versions WHERE definition_id IN (SELECT id FROM scheduler.job_definitions WHERE name LIKE 'wrong-%%')",
    "schedules WHERE name LIKE 'wrong-%%'",
    "job_runs WHERE job_name LIKE 'wrong-%%'",
    f"job_attempts WHERE run_id IN {RUNS}",
    f"job_events WHERE run_id IN {RUNS}",
    "fire_ledger WHERE schedule_id IN (SELECT id FROM scheduler.schedules WHERE name LIKE 'wrong-%%')",
)


@pytest.fixture(scope="module", autouse=True)
def known(stack: Stack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The file of what the cluster knows: one job, `wrong-fine`, and a schedule of it."""
    file = tmp_path_factory.mktemp("known") / "fine.yaml"
    file.write_text(FINE + SCHEDULE.replace("wrong-bad", "wrong-yearly").replace("RULE", "cron: 0 0 1 1 *"))
    done = toban_process(stack, "apply", "-f", str(file))
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("job wrong-fine created\nschedule wrong-yearly created\n")
    yield file
    toban_process(stack, "schedule", "delete", "wrong-yearly")


def counts(stack: Stack) -> dict[str, int]:
    """How many rows there are of everything that input makes, by the names of this module."""
    columns = ", ".join(f"(SELECT count(*) FROM scheduler.{rows}) AS of_{n}" for n, rows in enumerate(ROWS))
    [row] = sql(stack, f"SELECT {columns}")
    return row


@pytest.fixture
def refused(stack: Stack, toban_here: Toban) -> Refused:
    """The one line that a command is refused with; what is stored is as before."""

    def call(code: int, *argv: str, **environment: str) -> str:
        before = counts(stack)
        done = toban_here(*argv, **environment)
        assert (done.returncode, done.stdout) == (code, ""), done.stderr
        assert len(done.stderr.splitlines()) == 1 and done.stderr.startswith("error: "), done.stderr
        assert counts(stack) == before
        return done.stderr.removeprefix("error: ").rstrip("\n")

    return call


def test_a_wrong_file_changes_nothing(refused: Refused, tmp_path: Path) -> None:
    """A mistake that only a coordinator can see. What the command sees itself is in apps/cli/tests/test_wrong_input.py."""
    wrong = SCHEDULE.replace("RULE", "every_n_minutes: 60").replace("job: wrong-fine", "job: wrong-fin")
    file = tmp_path / "wrong.yaml"
    file.write_text(BEFORE + FINE + wrong)
    said = refused(66, "apply", "-f", str(file))
    assert said == f"{file}, document 3: spec.job: there is no job 'wrong-fin'; did you mean 'wrong-fine'?"


def test_a_start_of_an_unknown_job(refused: Refused) -> None:
    assert refused(66, "run", "start", "wrong-fin") == "there is no job 'wrong-fin'; did you mean 'wrong-fine'?"


def test_a_program_that_does_not_exist(stack: Stack, toban_here: Toban, tmp_path: Path) -> None:
    name, program = "wrong-program", "no-such-program"
    (tmp_path / "job.yaml").write_text(JOB.replace("NAME", name).replace("PROGRAM", program))
    assert toban_here("apply", "-f", str(tmp_path / "job.yaml")).returncode == 0
    done = toban_process(stack, "run", "start", name, "--wait", "--follow")
    assert (done.returncode, done.stdout) == (127, "")
    begun, ended = done.stderr.splitlines()
    assert re.fullmatch(rf"run \d+ of {name} started", begun)
    # Without a duration: nothing ever ran.
    told = rf"run \d+ FAILED: program '{program}' not found.*; .*on this executor.*"
    assert re.fullmatch(told, ended), ended
    [run] = sql(stack, "SELECT state::text, reason FROM scheduler.job_runs WHERE job_name = %(name)s", name=name)
    assert run == {"state": "FAILED", "reason": "spawn_failed"}


def test_the_same_file_again(stack: Stack, toban_here: Toban, known: Path) -> None:
    versions = (
        "SELECT (SELECT version FROM scheduler.job_definitions WHERE name = 'wrong-fine') AS job, version"
        " FROM scheduler.schedules WHERE name = 'wrong-yearly'"
    )
    before = counts(stack), sql(stack, versions)
    done = toban_here("apply", "-f", str(known))
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "job wrong-fine unchanged\nschedule wrong-yearly unchanged\n"
    assert (counts(stack), sql(stack, versions)) == before


@pytest.mark.parametrize("argv", [("run", "list"), ("run", "start", "wrong-fine"), ("job", "get", "wrong-fine")])
def test_the_certificate_of_another_service(stack: Stack, refused: Refused, argv: tuple[str, ...]) -> None:
    said = refused(77, *argv, TOBAN_TLS_DIR=str(stack.home.tls / "executor"))
    assert re.fullmatch(r"service 'executor' may not call /toban_proto\.v1\.\w+/\w+; use the certificate of .*", said)


def test_the_certificate_of_another_authority(stack: Stack, refused: Refused, tmp_path: Path) -> None:
    other = make_all(tmp_path) / "admin-cli"
    said = refused(69, "run", "start", "wrong-fine", TOBAN_TLS_DIR=str(other))
    assert "certificate" in said and stack.coordinators[0] in said


def test_a_folder_without_a_certificate(refused: Refused, tmp_path: Path) -> None:
    said = refused(78, "run", "start", "wrong-fine", TOBAN_TLS_DIR=str(tmp_path))
    assert said.startswith(f"{tmp_path}/tls.crt: cannot be read") and "TOBAN_TLS_DIR" in said


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


def test_a_run_that_no_executor_fits_names_the_labels(toban: Callable[..., str], tmp_path: Path) -> None:
    file = tmp_path / "picky.yaml"
    file.write_text(
        JOB.replace("NAME", "wrong-picky").replace("PROGRAM", "/bin/true") + "  selector: {labels: {gpu: a100}}\n"
    )
    toban("apply", "-f", str(file))
    run = toban("run", "start", "wrong-picky", "-o", "name").strip()
    assert "no executor has the labels of its selector (gpu=a100)" in toban("run", "get", run)
    toban("run", "cancel", run)
    assert "Waits" not in toban("run", "get", run)
