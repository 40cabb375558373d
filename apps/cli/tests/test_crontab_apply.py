"""`import crontab --apply` changes nothing of others, and `--out` writes a new file for its owner alone."""

from __future__ import annotations

import io
import json
import os
import stat
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from toban_domain.errors import ErrorCode, TobanError
from toban_proto.v1 import coordinator_pb2 as pb

Toban = Callable[..., tuple[int, str, str]]
LINE = "0 3 * * * /usr/bin/hello\n"


@pytest.fixture
def crontab(tmp_path: Path) -> Path:
    file = tmp_path / "crontab"
    file.write_text(LINE)
    return file


class Stored:
    """Documents by kind and name, versions from 1; applied as the server does it."""

    def __init__(self, cluster: Any) -> None:
        self.specs: dict[tuple[str, str], dict[str, Any]] = {}
        self.versions: dict[tuple[str, str], int] = {}
        self.wrote: list[pb.ApplyRequest] = []
        cluster.control.answers["Apply"] = self.apply
        cluster.reader.answers["GetJob"] = lambda asked: pb.Job(**self.read("Job", asked.name))
        cluster.reader.answers["GetSchedule"] = lambda asked: pb.Schedule(**self.read("Schedule", asked.name))

    def read(self, kind: str, name: str) -> dict[str, Any]:
        spec = self.specs[kind, name]
        return {"name": name, "version": self.versions[kind, name], "spec_json": json.dumps(spec)}

    def put(self, kind: str, name: str, labels: dict[str, str]) -> None:
        self.specs[kind, name] = {"labels": labels}
        self.versions[kind, name] = self.versions.get((kind, name), 0) + 1

    def apply(self, request: pb.ApplyRequest) -> pb.ApplyResponse:
        applied = []
        for manifest in request.manifests:
            document = json.loads(manifest.json)
            key = document["kind"], document["metadata"]["name"]
            spec = {"labels": document["metadata"]["labels"], **document["spec"]}
            action = "created" if key not in self.specs else "unchanged" if self.specs[key] == spec else "updated"
            if not request.dry_run:
                assert manifest.HasField("expect_version")
                if manifest.expect_version != self.versions.get(key, 0):
                    raise TobanError(ErrorCode.CONFLICT, "it was changed meanwhile")
                if action != "unchanged":
                    self.specs[key], self.versions[key] = spec, self.versions.get(key, 0) + 1
            version = self.versions.get(key, 0)
            applied.append(pb.Applied(kind=key[0], name=key[1], action=action, version=version))
        if not request.dry_run:
            self.wrote.append(request)
        return pb.ApplyResponse(applied=applied)


@pytest.fixture
def stored(cluster: Any) -> Stored:
    return Stored(cluster)


def test_the_same_crontab_may_be_changed_and_imported_again(stored: Stored, toban: Toban, crontab: Path) -> None:
    assert toban("import", "crontab", str(crontab), "--apply")[:2] == (0, "job hello created\nschedule hello created\n")
    assert toban("import", "crontab", str(crontab), "--apply")[1] == "job hello unchanged\nschedule hello unchanged\n"
    crontab.write_text("0 4 * * * /usr/bin/hello\n")
    code, out, _ = toban("import", "crontab", str(crontab), "--apply")
    assert (code, out) == (0, "job hello unchanged\nschedule hello updated\n")


@pytest.mark.parametrize(
    ("labels", "outcome"),
    [
        ({}, "job hello (not from a crontab)"),
        ({"origin": "hand"}, "job hello (not from a crontab)"),
        ({"origin": "crontab"}, "job hello (from an unknown crontab)"),
        ({"origin": "crontab", "crontab": "web2:/etc/crontab"}, "job hello (from crontab web2:/etc/crontab)"),
    ],
)
def test_what_is_not_from_this_crontab_is_left_alone(
    stored: Stored, toban: Toban, crontab: Path, labels: dict[str, str], outcome: str
) -> None:
    stored.put("Job", "hello", labels)
    code, out, err = toban("import", "crontab", str(crontab), "--apply")
    assert (code, out) == (73, "")
    assert outcome in err.splitlines()[-1]
    assert "schedule hello" not in err.splitlines()[-1]
    assert stored.wrote == []
    assert toban("import", "crontab", str(crontab), "--apply", "--replace")[0] == 0
    assert [manifest.expect_version for manifest in stored.wrote[0].manifests] == [1, 0]


def test_a_schedule_of_others_is_left_alone_too(stored: Stored, toban: Toban, crontab: Path) -> None:
    stored.put("Schedule", "hello", {})
    code, _, err = toban("import", "crontab", str(crontab), "--apply")
    assert code == 73
    assert "schedule hello (not from a crontab)" in err
    assert stored.wrote == []


def test_what_appears_meanwhile_is_left_alone(stored: Stored, toban: Toban, crontab: Path, cluster: Any) -> None:
    def apply(request: pb.ApplyRequest) -> pb.ApplyResponse:
        if not request.dry_run:
            stored.put("Job", "hello", {})
        return stored.apply(request)

    cluster.control.answers["Apply"] = apply
    assert toban("import", "crontab", str(crontab), "--apply")[0] != 0
    assert stored.wrote == []


def test_pairs_stay_together_in_large_crontabs(
    stored: Stored, toban: Toban, crontab: Path, monkeypatch: pytest.MonkeyPatch, cluster: Any
) -> None:
    monkeypatch.setattr("toban_cli.importers.parts.MAX_DOCUMENTS", 3)
    crontab.write_text("".join(f"0 {hour} * * * /usr/bin/job{hour}\n" for hour in range(5)))
    assert toban("import", "crontab", str(crontab), "--apply")[0] == 0
    assert [len(request.manifests) for request in stored.wrote] == [2, 2, 2, 2, 2]


def test_a_call_stays_below_the_bytes_that_the_server_takes(
    stored: Stored, toban: Toban, crontab: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("toban_cli.importers.apply._MAX_BYTES", 5000)
    crontab.write_text("".join(f"0 {hour} * * * /usr/bin/job{hour} {'x' * 1000}\n" for hour in range(5)))
    assert toban("import", "crontab", str(crontab), "--apply")[0] == 0
    assert [len(request.manifests) for request in stored.wrote] == [4, 4, 2]
    assert all(request.ByteSize() <= 5000 for request in stored.wrote)


def test_a_call_that_fails_says_what_was_applied_before(
    stored: Stored, toban: Toban, crontab: Path, monkeypatch: pytest.MonkeyPatch, cluster: Any
) -> None:
    def apply(request: pb.ApplyRequest) -> pb.ApplyResponse:
        if not request.dry_run and "job2" in request.manifests[0].json:
            raise TobanError(ErrorCode.CONFLICT, "job 'job2' was changed meanwhile")
        return stored.apply(request)

    monkeypatch.setattr("toban_cli.importers.parts.MAX_DOCUMENTS", 2)
    cluster.control.answers["Apply"] = apply
    crontab.write_text("".join(f"0 {hour} * * * /usr/bin/job{hour}\n" for hour in range(5)))
    code, out, err = toban("import", "crontab", str(crontab), "--apply")
    assert code != 0 and [line.split()[1] for line in out.splitlines()] == ["job0", "job0", "job1", "job1"]
    assert "job 'job2' was changed meanwhile (4 of 10 documents were applied before; run the same command again" in err
    cluster.control.answers["Apply"] = stored.apply
    code, out, _ = toban("import", "crontab", str(crontab), "--apply")
    assert (code, out.count(" unchanged"), out.count(" created")) == (0, 4, 6)


# More documents than one apply takes, and more bytes than one file may have.
MANY = "".join(f"{n} 3 * * * /usr/bin/job{n}\n" for n in range(11))
LONG = "TEXT=" + "x" * 4000 + "\n" + "".join(f"0 3 * * * /usr/bin/job{n}\n" for n in range(300))


@pytest.mark.parametrize("text", [MANY, pytest.param(LONG, marks=pytest.mark.long)], ids=["many", "long"])
def test_a_large_import_is_written_in_files_that_are_valid(
    toban: Toban, crontab: Path, tmp_path: Path, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if text == MANY:
        monkeypatch.setattr("toban_cli.importers.parts.MAX_DOCUMENTS", 20)
    crontab.write_text(text)
    out = tmp_path / "jobs.yaml"
    code, _, err = toban("import", "crontab", str(crontab), "--out", str(out))
    second = tmp_path / "jobs-2.yaml"
    assert code == 0 and second.exists() and not (tmp_path / "jobs-3.yaml").exists()
    assert err.splitlines()[-2:] == [f"  toban apply -f {out}", f"  toban apply -f {second}"]
    assert "one apply takes at most 2000 documents and 1 MiB" in err
    names: list[str] = []
    for path in (out, second):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert path.stat().st_size <= 1024 * 1024
        code, listed, _ = toban("validate", "-f", str(path), "-o", "name")
        assert code == 0 and len(listed.splitlines()) <= 2000
        names += listed.split()
    lines = sum(line[0].isdigit() for line in text.splitlines())
    assert len(names) == len(set(names)) == 2 * lines


def test_a_large_import_to_stdout_is_refused_whole(
    toban: Toban, crontab: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("toban_cli.importers.parts.MAX_DOCUMENTS", 20)
    crontab.write_text(MANY)
    code, out, err = toban("import", "crontab", str(crontab))
    assert (code, out) == (65, "")
    assert err.splitlines()[-1] == (
        "error: the YAML needs 2 files, since one apply takes at most 2000 documents and 1 MiB;"
        " write them with --out FILE, or apply at once with --apply"
    )
    (tmp_path / "jobs-2.yaml").write_text("mine")
    code, _, err = toban("import", "crontab", str(crontab), "--out", str(tmp_path / "jobs.yaml"))
    assert code == 73 and "jobs-2.yaml exists already" in err
    assert not (tmp_path / "jobs.yaml").exists()


def test_a_line_that_no_executor_could_start_is_left_out(toban: Toban, crontab: Path) -> None:
    text = "".join(f"TEXT{n}={'x' * 4000}\n" for n in range(60))
    crontab.write_text(f"{LINE}{text}0 4 * * * /usr/bin/large\n")
    code, out, err = toban("import", "crontab", str(crontab))
    assert code == 65 and "hello" in out and "large" not in out
    assert "the limit is 196608: put some into a file" in err


def test_a_time_at_boot_counts_as_left_out(toban: Toban, crontab: Path) -> None:
    crontab.write_text(f"{LINE}@reboot /usr/bin/up\n@reboot /usr/bin/late\nwrong\n")
    code, out, err = toban("import", "crontab", str(crontab))
    assert code == 65 and "name: up" in out
    assert (
        "  converted without its time: job up WITHOUT a schedule: @reboot cannot be a schedule, since Toban runs on a fleet"
        " that does not boot; start it with `toban run start up` from a systemd unit, or leave this line in cron\n"
    ) in err
    assert err.splitlines()[-1].endswith("3 jobs, 1 schedule; NOT carried over: line 4 and the time of lines 2, 3")
    crontab.write_text(f"{LINE}@noauto /usr/bin/by-hand\n")
    code, _, err = toban("import", "crontab", str(crontab))
    assert code == 0 and err.splitlines()[-1].endswith("2 jobs, 1 schedule; nothing was left out")


def test_out_makes_a_new_file_for_its_owner(toban: Toban, crontab: Path, tmp_path: Path) -> None:
    out = tmp_path / "jobs.yaml"
    assert toban("import", "crontab", str(crontab), "--out", str(out))[0] == 0
    assert stat.S_IMODE(out.stat().st_mode) == 0o600
    out.write_text("mine")
    out.chmod(0o644)
    code, _, err = toban("import", "crontab", str(crontab), "--out", str(out))
    assert (code, out.read_text()) == (73, "mine")
    assert "--force" in err
    assert toban("import", "crontab", str(crontab), "--out", str(out), "--force")[0] == 0
    assert "kind: Job" in out.read_text()
    assert "mine" not in out.read_text()
    assert stat.S_IMODE(out.stat().st_mode) == 0o600


@pytest.mark.parametrize("force", [(), ("--force",)])
def test_out_follows_no_link_and_writes_no_pipe(
    toban: Toban, crontab: Path, tmp_path: Path, force: tuple[str, ...]
) -> None:
    target, link, pipe = tmp_path / "target", tmp_path / "link", tmp_path / "pipe"
    target.write_text("mine")
    link.symlink_to(target)
    os.mkfifo(pipe)
    for place in (link, pipe):
        code, _, err = toban("import", "crontab", str(crontab), "--out", str(place), *force)
        assert code == (65 if force else 73)
        assert str(place) in err.splitlines()[-1]
    assert target.read_text() == "mine"


def test_nothing_is_said_to_be_nothing(toban: Toban, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"\n \n")))
    out = tmp_path / "out.yaml"
    assert toban("import", "crontab", "-", "--out", str(out)) == (0, "", "stdin is empty: there is nothing to import\n")
    assert not out.exists()


FILES = {
    "systemd": ("x.timer", "[Timer]\nOnCalendar={}:00\n", "a systemd timer"),
    "kubernetes": (
        "x.yaml",
        "apiVersion: batch/v1\nkind: CronJob\nmetadata: {{name: x}}\nspec:\n  schedule: 0 {} * * *\n"
        "  jobTemplate: {{spec: {{template: {{spec: {{containers: [{{image: busybox}}]}}}}}}}}\n",
        "a Kubernetes CronJob",
    ),
    "celery-beat": ("x.json", '{{"x": {{"task": "a.b", "schedule": {}}}}}', "a celery beat schedule"),
    "airflow": (
        "x.py",
        "with DAG('x', schedule='0 {} * * *', catchup=False):\n    BashOperator(task_id='a', bash_command='date')\n",
        "an Airflow DAG",
    ),
}


@pytest.mark.parametrize("kind", FILES)
def test_each_import_changes_what_is_from_its_file(stored: Stored, toban: Toban, tmp_path: Path, kind: str) -> None:
    name, text, one = FILES[kind]
    (tmp_path / "x.service").write_text("[Service]\nExecStart=/bin/x\n")
    file = tmp_path / name
    file.write_text(text.format(3))
    apply = ("import", kind, str(file), "--apply")
    assert toban(*apply)[:2] == (0, "job x created\nschedule x created\n")
    file.write_text(text.format(4))
    assert toban(*apply)[:2] == (0, "job x unchanged\nschedule x updated\n")
    stored.put("Job", "x", {"origin": "hand"})
    code, out, err = toban(*apply)
    assert (code, out) == (73, "")
    assert f"job x (not from {one})" in err
    assert toban(*apply, "--replace")[0] == 0
