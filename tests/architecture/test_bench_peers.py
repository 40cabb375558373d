"""The bench of peers: ratios are in our favour above 1, and a task that is lost or runs twice fails its peer."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "bench"))

from peers import figures
from peers.catalogue import PEERS, chosen

pytestmark = pytest.mark.long
BENCH = Path(__file__).resolve().parents[1] / "bench"


def test_ratios_are_of_medians_and_of_each_round() -> None:
    ours = [{"runs_per_s": 500.0, "idle_latency_p50_ms": 8.0}, {"runs_per_s": 700.0, "idle_latency_p50_ms": 10.0}]
    theirs = [{"runs_per_s": 250.0, "idle_latency_p50_ms": 4.0}, {"runs_per_s": 1400.0, "idle_latency_p50_ms": 5.0}]
    rate, latency = figures.lines("huey", list(zip(ours, theirs, strict=True)))
    assert rate == {
        "bench": "peers",
        "peer": "huey",
        "figure": "runs_per_s",
        "ours": 600.0,
        "theirs": 825.0,
        "ratio": 0.73,
        "ratios": [2.0, 0.5],
    }
    assert (latency["figure"], latency["ratio"], latency["ratios"]) == ("idle_latency_p50_ms", 0.5, [0.5, 0.5])


def test_a_figure_without_a_number_has_no_ratio() -> None:
    with pytest.raises(ValueError, match="huey: noop_per_s is not positive in every round"):
        figures.lines("huey", [({"noop_per_s": 0.0}, {"noop_per_s": 5.0})])
    assert figures.lines("huey", []) == []
    assert figures.lines("huey", [({"due_s": 1.0}, {})]) == [], "a peer without schedules"


def test_the_table_has_a_row_a_figure() -> None:
    found = figures.lines("huey", [({"runs_per_s": 500.0}, {"runs_per_s": 1000.0})])
    assert figures.table(found).splitlines() == [
        "peer  figure      ours   theirs  ratio  of the rounds",
        "huey  runs_per_s  500.0  1000.0  0.5    0.5",
    ]


@pytest.mark.parametrize(
    ("numbers", "message"),
    [
        ([0, 2], r"of 3 tasks 1 were lost \[1\]"),
        ([0, 1, 2, 1], r"1 ran more than once \[1\]"),
        ([0, 1, 2, 7], r"1 were not of this round \[7\]"),
        ([], r"3 were lost"),
    ],
)
def test_each_task_has_its_effect_once(numbers: list[int], message: str) -> None:
    figures.check_effects([2, 0, 1], 3, of="huey")
    with pytest.raises(ValueError, match=message):
        figures.check_effects(numbers, 3, of="huey")


def test_peers_are_chosen_by_name() -> None:
    assert [peer.name for peer in chosen("celery huey")] == ["celery", "huey"]
    assert [peer.name for peer in chosen("")] == list(PEERS)
    with pytest.raises(ValueError, match="PEERS='hue': hue is no peer; there are huey, celery"):
        chosen("hue")


def test_a_wrong_number_is_refused_before_anything_starts() -> None:
    done = subprocess.run(
        [sys.executable, BENCH / "bench_peers.py"],
        env={**os.environ, "ROUNDS": "many"},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 2 and "ROUNDS='many' is not a number of at least 1" in done.stderr


def test_each_peer_is_pinned_and_has_a_module_of_tasks() -> None:
    pins = {line.partition("==")[0] for line in (BENCH / "peers/requirements.txt").read_text().splitlines()}
    for peer in PEERS.values():
        assert {package.partition("[")[0] for package in peer.packages} <= pins, peer.name
        assert (BENCH / "peers/apps" / f"{peer.name}_app.py").exists()
