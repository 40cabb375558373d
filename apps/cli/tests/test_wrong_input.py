"""Wrong input: each gets one clear line, a distinct exit code, and nothing half done."""

from __future__ import annotations

import gzip
import json
import random
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Toban = Callable[..., tuple[int, str, str]]
JOB = "apiVersion: toban/v1\nkind: Job\nmetadata: {name: x}\nspec:\n  steps: [{argv: [/bin/true]}]\n"
SCHEDULE = "apiVersion: toban/v1\nkind: Schedule\nmetadata: {name: s}\nspec: {job: x, RULE}\n"
# Exit codes of mistakes that are neither YAML nor keys: rules 67, payloads that are too large 71.
WRONG_KINDS = {
    "spec.cron: '0 0 30 2 *' never fires": 67,
    "spec.cron: '61' is not a minute": 67,
    "did you mean Europe/Berlin": 67,
    "the limit is 32768": 71,
}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (JOB + "  timeout: 5\n", "spec.timeout: is not a known key; did you mean 'timeout_seconds'?"),
        (JOB + "  timeout_seconds: soon\n", "spec.timeout_seconds: must be a whole number, is 'soon'"),
        (JOB + "  enabled: yep\n", "spec.enabled: must be true or false, is 'yep'"),
        (JOB.replace("/bin/true", "sh, -c, date"), "spec.steps[0].argv: is a shell command (sh is a shell)"),
        (JOB.replace("name: x", "name: X Y"), "metadata.name: 'X Y' is not a name"),
        (JOB + "  on_lease_loss: continue\n", "spec.on_lease_loss: continue needs idempotent: true"),
        ("kind: Calendar\napiVersion: toban/v1\n", "kind: Calendar is not available in this version"),
        (SCHEDULE.replace("RULE", 'cron: "0 0 30 2 *"'), "spec.cron: '0 0 30 2 *' never fires"),
        (SCHEDULE.replace("RULE", 'cron: "61 * * * *"'), "spec.cron: '61' is not a minute"),
        (SCHEDULE.replace("RULE", 'daily_at: "03:00", timezone: Europe/Berln'), "did you mean Europe/Berlin"),
        (JOB + f"  default_payload: {{blob: {'x' * 40_000}}}\n", "the limit is 32768"),
        (SCHEDULE.replace("RULE", f"interval_seconds: 60, payload: {{blob: {'x' * 40_000}}}"), "the limit is 32768"),
        (JOB + "---\n" + JOB, "document 2: metadata.name: Job 'x' is already in"),
        ("a: [1,\n", ":2:1: "),
        ("a: b: c\n", ":1:5: mapping values are not allowed here"),
        ("a: 1\na: 2\n", ":2:1: the key 'a' is given twice"),
        ("\x00\x01", "is not YAML in UTF-8"),
        ("# only a comment\n", "no document found"),
        ("- 1\n", "must be a mapping, is a list"),
    ],
)
@pytest.mark.parametrize("command", ["validate", "apply"])
def test_a_wrong_file_is_refused_before_anything_is_sent(
    toban: Toban, tmp_path: Path, text: str, words: str, command: str
) -> None:
    file = tmp_path / "jobs.yaml"
    file.write_text(text)
    code, out, err = toban(command, "-f", str(file))
    assert (code, out) == (WRONG_KINDS.get(words, 65), "")
    assert err.startswith(f"error: {file}") or "document" in err
    assert words in err
    assert len(err.splitlines()) == 1


def test_all_mistakes_of_all_files_are_told(toban: Toban, tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(JOB + "  timeout: 5\n  retries: 2\n")
    (tmp_path / "b.yaml").write_text(SCHEDULE.replace("RULE", "interval_seconds: 0"))
    code, _, err = toban("validate", "-f", str(tmp_path))
    assert code == 65
    assert [text.split(": ")[2] for text in err.splitlines()] == [
        "spec.timeout",
        "spec.retries",
        "spec.interval_seconds",
    ]
    _, _, err = toban("validate", "-f", str(tmp_path), "-o", "json")
    assert len(json.loads(err)["error"]["detail"]["errors"]) == 3


def test_good_files(toban: Toban, tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(JOB)
    assert toban("validate", "-f", str(tmp_path)) == (0, "1 document is valid\n", "")
    code, out, _ = toban("validate", "-f", str(tmp_path), "-o", "json")
    assert (code, json.loads(out)) == (0, {"valid": True, "documents": 1})


@pytest.mark.parametrize(
    ("argv", "code", "words"),
    [
        (("validate", "-f", "/nowhere.yaml"), 66, "/nowhere.yaml cannot be read (No such file or directory)"),
        (("validate", "-f", "."), 66, "no *.yaml or *.yml in this folder"),
        (("validate",), 64, "FILE: nothing is named; give a YAML file, a folder of them, or - for stdin"),
        (("rum",), 64, "No such command 'rum'. Did you mean 'run'? See"),
        (("run", "get", "twelve"), 64, "Invalid value for 'RUN'"),
        (("run", "list", "--state", "FALED"), 64, "did you mean FAILED?"),
        (("run", "start", "x", "-p", "novalue"), 65, "is not name=value"),
        (("run", "start", "x", "-p", "n:=abc"), 72, "the value is not JSON"),
        (("run", "start", "x", "--payload", "[1]"), 72, "the payload is a list; give one JSON object"),
        (("run", "start", "x", "--payload", "{"), 72, "the payload is not JSON"),
        (("run", "start", "x", "--payload", "@/nowhere.json"), 72, "cannot be read"),
        (("run", "start", "x", "-p", "blob=" + "x" * 40_000), 71, "the limit is 32768"),
        (("job", "list"), 78, "no coordinator address is configured"),
    ],
)
def test_wrong_arguments(
    toban: Toban, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, argv: tuple[str, ...], code: int, words: str
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("TOBAN_COORDINATORS", raising=False)
    found, out, err = toban(*argv)
    assert (found, out) == (code, "")
    assert err.startswith("error: ")
    assert words in err
    assert len(err.splitlines()) == 1


def test_a_payload_in_a_file_is_bounded_too(toban: Toban, tmp_path: Path) -> None:
    (tmp_path / "large.json").write_text(json.dumps({"blob": "x" * 40_000}))
    code, out, err = toban("run", "start", "x", "--payload", f"@{tmp_path / 'large.json'}")
    assert (code, out) == (71, "")
    assert "the limit is 32768; put the data into a file or a bucket" in err


def test_usage_errors_are_json_when_asked(toban: Toban) -> None:
    code, _, err = toban("job", "get", "-o", "json")
    assert code == 64
    assert json.loads(err)["error"]["code"] == "USAGE"


def test_no_coordinator_answers(toban: Toban, tls: Path, monkeypatch: pytest.MonkeyPatch, free_port: int) -> None:
    monkeypatch.setenv("TOBAN_COORDINATORS", f"127.0.0.1:{free_port},127.0.0.1:1")
    monkeypatch.setenv("TOBAN_TLS_DIR", str(tls))
    code, out, err = toban("job", "list")
    assert (code, out) == (69, "")
    assert (
        err == f"error: no coordinator answers: 127.0.0.1:{free_port}, 127.0.0.1:1. "
        "`toban doctor` shows the cause; `toban dev` starts a local stack\n"
    )


def test_the_next_address_answers(cluster: Any, toban: Toban, monkeypatch: pytest.MonkeyPatch, free_port: int) -> None:
    from toban_proto.v1 import coordinator_pb2 as pb

    cluster.reader.answers["ListJobs"] = pb.ListJobsResponse()
    monkeypatch.setenv("TOBAN_COORDINATORS", f"127.0.0.1:{free_port},{cluster.coordinator}")
    assert toban("job", "list")[0] == 0


def test_an_address_that_is_none(toban: Toban, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOBAN_COORDINATORS", "localhost")
    code, _, err = toban("job", "list")
    assert code == 78
    assert "'localhost', which is not host:port" in err


def test_a_variable_that_is_misspelt(cluster: Any, toban: Toban, monkeypatch: pytest.MonkeyPatch) -> None:
    from toban_proto.v1 import coordinator_pb2 as pb

    cluster.reader.answers["ListJobs"] = pb.ListJobsResponse()
    # Of an executor, and of Kubernetes beside Services called scheduler and scheduler-toban-coordinator.
    monkeypatch.setenv("SCHEDULER_SLOTS", "4")
    for service in ("SCHEDULER", "SCHEDULER_TOBAN_COORDINATOR"):
        for link in ("SERVICE_HOST", "SERVICE_PORT", "SERVICE_PORT_GRPC", "PORT", "PORT_50051_TCP", "PORT_53_UDP_ADDR"):
            monkeypatch.setenv(f"{service}_{link}", "10.0.0.1")
    assert toban("job", "list")[0] == 0
    monkeypatch.setenv("SCHEDULER_HTPP_PORT", "80")
    assert "SCHEDULER_HTPP_PORT: unknown variable" in toban("job", "list")[2]
    monkeypatch.delenv("SCHEDULER_HTPP_PORT")
    monkeypatch.setenv("TOBAN_COORDINATERS", "elsewhere:1")
    code, out, err = toban("job", "list")
    assert (code, out) == (78, "")
    assert err == "error: TOBAN_COORDINATERS: unknown variable in the environment; did you mean TOBAN_COORDINATORS?\n"
    code, out, _ = toban("doctor")
    assert code == 1 and "TOBAN_COORDINATERS: unknown variable" in out


def test_without_a_certificate(cluster: Any, toban: Toban, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TOBAN_TLS_DIR", str(tmp_path))
    code, out, err = toban("job", "list")
    assert (code, out) == (78, "")
    assert f"{tmp_path}/tls.crt: cannot be read" in err
    assert len(err.splitlines()) == 1


def test_with_the_certificate_of_another_service(
    cluster: Any, toban: Toban, tls: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOBAN_TLS_DIR", str(tls / "executor"))
    code, out, err = toban("job", "list")
    assert (code, out) == (77, "")
    assert "service 'executor' may not call" in err
    assert len(err.splitlines()) == 1


def test_with_the_certificate_of_another_authority(
    cluster: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from toban_stack import certs

    monkeypatch.setenv("TOBAN_TLS_DIR", str(certs.make_all(tmp_path)))
    # A process of its own: the library's own chatter can only be silenced before it is loaded.
    done = subprocess.run(
        [sys.executable, "-m", "toban_cli", "job", "list"], capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stdout) == (69, "")
    assert "certificate" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_the_local_stack_needs_no_setting(
    cluster: Any, toban: Toban, tls: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from toban_proto.v1 import coordinator_pb2 as pb

    cluster.reader.answers["ListJobs"] = pb.ListJobsResponse()
    record = {
        "coordinators": [cluster.coordinator],
        "log_archivers": [],
        "tls_dir": str(tls),
        "trust_domain": "toban.internal",
    }
    (tmp_path / "stack.json").write_text(json.dumps(record))
    for name in ("TOBAN_COORDINATORS", "TOBAN_LOG_ARCHIVERS", "TOBAN_TLS_DIR"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("TOBAN_HOME", str(tmp_path))
    assert toban("job", "list")[0] == 0


@pytest.mark.parametrize(
    ("argv", "heavy"),
    [
        (["--help"], ("grpc", "rich", "google.protobuf", "yaml", "pydantic", "structlog")),
        (["run", "list", "--help"], ("grpc", "rich", "google.protobuf", "yaml", "pydantic", "structlog")),
        (["run", "list"], ("rich", "yaml", "pydantic", "structlog")),
    ],
)
def test_commands_load_only_what_they_need(cluster: Any, argv: list[str], heavy: tuple[str, ...], at_most: Any) -> None:
    from toban_proto.v1 import coordinator_pb2 as pb

    cluster.reader.answers["ListRuns"] = pb.ListRunsResponse(runs=[pb.Run(id=1)])
    script = f"import sys; from toban_cli.main import run; run({argv}); sys.exit(','.join(m for m in {heavy} if m in sys.modules))"
    begun = time.perf_counter()
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert done.stderr.strip() == ""
    assert "RUN" in done.stdout or "Usage" in done.stdout
    # 0.15 s (help) and 0.3 s (list) on an idle machine.
    assert time.perf_counter() - begun < at_most(4)


@pytest.mark.parametrize(
    "content",
    [
        gzip.compress(random.Random(1).randbytes(9000)),
        Path(sys.executable).read_bytes()[:9000],
        "0 3 * * * /bin/true\n".encode("utf-16"),
    ],
    ids=["compressed", "program", "utf-16"],
)
def test_a_crontab_that_is_no_text_is_refused_in_one_line(toban: Toban, tmp_path: Path, content: bytes) -> None:
    (tmp_path / "crontab").write_bytes(content)
    code, out, err = toban("import", "crontab", str(tmp_path / "crontab"))
    assert (code, out) == (65, "")
    assert (
        err
        == f"error: {tmp_path}/crontab is not text in UTF-8; give a crontab, or use `crontab -l | toban import crontab -`\n"
    )
    # One line of a text that cannot be read is told beside the others.
    (tmp_path / "crontab").write_bytes(b"0 3 * * * /bin/true\n0 4 * * * /bin/caf\xe9\n0 5 * * * /bin/a\0b\n")
    code, out, err = toban("import", "crontab", str(tmp_path / "crontab"))
    assert code == 65 and "/bin/true" in out and "not UTF-8" in err and "NUL" in err


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (
            b"0 3 * * * true\n\n0 4 * * * echo " + b"x" * 400_000 + b"\n",
            "crontab, line 3: it has 400015 bytes, the limit is 65536; put its command into a script and import again",
        ),
        (
            b"# blank\n" * 10_001,
            "crontab has 10001 lines, the limit is 10000: line 10001 and later ones do not fit; split the file",
        ),
    ],
    ids=["long", "many"],
)
def test_a_crontab_that_would_take_long_is_refused_in_one_line(
    toban: Toban, tmp_path: Path, content: bytes, said: str
) -> None:
    (tmp_path / "crontab").write_bytes(content)
    code, out, err = toban("import", "crontab", str(tmp_path / "crontab"))
    assert (code, out, err) == (65, "", f"error: {tmp_path}/{said}\n")


def test_a_crontab_of_the_largest_size_is_imported(toban: Toban, tmp_path: Path) -> None:
    longest = b"0 3 * * * true " + b"x" * (65536 - 15) + b"\n"
    (tmp_path / "crontab").write_bytes(b"# blank\n" * 9999 + longest)
    _, _, err = toban("import", "crontab", str(tmp_path / "crontab"))
    assert "the limit is" not in err and "line 10000" in err
