"""What the benches share measures what it claims, and the bench that drives the coordinator's parts directly still fits them."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "bench"))

from bench_cpu import CLASSES, StackCpu, ms_per_run

pytestmark = pytest.mark.long
BENCH = Path(__file__).resolve().parents[1] / "bench"


def test_cpu_is_counted_for_the_process_its_guard_and_the_guards_jobs() -> None:
    """An executor that burns nothing, with a guard that burns and whose job, ended, has burnt twice as much."""
    burn = "import time\nwhile time.process_time() < {}: pass\n"
    guard = f"import subprocess, sys, time\nsubprocess.run([sys.executable, '-c', {burn.format(0.6)!r}])\n"
    guard += burn.format(0.3) + "print('ready', flush=True)\nsys.stdin.read()\n"
    executor = f"import subprocess, sys\nsubprocess.run([sys.executable, '-c', {guard!r}])\n"
    with subprocess.Popen([sys.executable, "-c", executor], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stdin is not None
        try:
            assert process.stdout.readline() == b"ready\n"
            used = StackCpu({"executor-1": process.pid, "redis": os.getpid()}, leader="coordinator-1").seconds()
            whole = StackCpu({"redis": os.getpid()}, leader="").seconds()["others"]
        finally:
            process.stdin.close()
    assert 0.5 < used["jobs"] < 0.9 and 0.25 < used["guards"] < 0.5 and used["executor"] < 0.25
    assert used["others"] > 0 and used["leader"] == used["postgres"] == 0
    assert whole - used["others"] > 0.7, "the executor is a child of `redis`, and counts once"
    spent = ms_per_run(dict.fromkeys(CLASSES, 0.0), used, 100)
    assert spent["total"] == pytest.approx(sum(used.values()) * 10)
    with pytest.raises(ProcessLookupError, match="executor-1"):
        StackCpu({"executor-1": process.pid}, leader="").seconds()


def test_the_bench_of_the_stores_path_runs() -> None:
    done = subprocess.run(
        [sys.executable, BENCH / "store_hot_path.py", "200"],
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )
    assert done.returncode == 0, done.stderr
    figures = json.loads(done.stdout)
    assert figures["runs"] == 200 and figures["runs_per_s"] > 0 and figures["assign_turns"] > 0


def test_the_bench_of_growth_runs(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, BENCH / "growth.py", "100", "--svg", tmp_path / "growth.svg"],
        capture_output=True,
        text=True,
        check=False,
        timeout=200,
    )
    assert done.returncode == 0, done.stderr
    points = [json.loads(line) for line in done.stdout.splitlines()]
    assert {(point["by"], point["count"]) for point in points} == {("executors", 2), ("executors", 100)}
    assert [point["what"] for point in points] == ["tick", "start", "list", "list_filtered", "assign"] * 2
    assert all(0 < point["p50_ms"] <= point["p95_ms"] and point["ratio"] > 0 for point in points)
    picture = ElementTree.parse(tmp_path / "growth.svg").getroot()
    assert len(picture.findall("{*}polyline")) == 5 and picture.findall("{*}path[@class='goal']")


def test_the_bench_of_limits_runs() -> None:
    done = subprocess.run(
        [sys.executable, BENCH / "limits.py", "0.01"],
        capture_output=True,
        text=True,
        check=False,
        timeout=200,
    )
    assert done.returncode == 0, done.stderr
    figures = {line["part"]: line for line in map(json.loads, done.stdout.splitlines())}
    assert set(figures) == {"stack", "throughput", "flood", "resume", "tick"}
    assert figures["resume"]["runs"] == 100 and figures["tick"]["deferred"] == 1000


def served(program: str, *arguments: str) -> list[dict[str, Any]]:
    """The lines of a bench that starts a stack with a site."""
    done = subprocess.run(
        [sys.executable, BENCH / program, *arguments], capture_output=True, text=True, check=False, timeout=200
    )
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def test_the_bench_of_memory_judges_each_process() -> None:
    """Seconds say nothing about a slope: whether the verdict is that of the lines is what can be seen."""
    done = subprocess.run(
        [sys.executable, BENCH / "memory_slope.py", "12", "20"],
        capture_output=True,
        text=True,
        check=False,
        timeout=200,
    )
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    slopes = {line["process"]: line["mb_per_hour"] for line in lines}
    assert {"coordinator-1", "coordinator-2", "executor-1", "executor-2", "log-archiver-1"} < set(slopes), done.stderr
    assert {f"executor-1 slot {slot}" for slot in range(16)} < set(slopes), "every guard"
    assert min(line["first_mb"] for line in lines) > 1 and lines[0]["runs"] > 100
    steep = [name for name, slope in slopes.items() if slope > 1]
    assert done.returncode == bool(steep) and all(name in done.stderr for name in steep)


def test_the_bench_of_lists_over_rest_runs() -> None:
    lines = served("rest_lists.py", "2000", "2", "1")
    assert [line["way"] for line in lines] == ["rest", "grpc"]
    for line in lines:
        assert len(line["p50_p95_ms"]) == 26 and line["worst_p95_ms"] > 0


def test_the_bench_of_wrong_passwords_runs() -> None:
    [line] = served("wrong_passwords.py", "40", "50")
    # Each attempt is refused: as wrong, or because there were too many.
    assert set(line["statuses"]) <= {"401", "429"} and sum(line["statuses"].values()) == 40
    assert line["p95_before_ms"] > 0 and line["p95_during_ms"] > 0
