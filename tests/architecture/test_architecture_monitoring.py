"""What is watched exists: metrics, the pages about them, alerts, runbooks, the dashboard."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from toban_testing.monitoring import dashboard, rules
from toban_testing.monitoring.catalogue import Metric, declared, problems

ROOT = Path(__file__).resolve().parents[2]
ALERTS = rules.alerts(ROOT)
# A command of Toban in a line of its own or in backquotes, and what docs/cli.md knows.
COMMAND = re.compile(r"(?:^|`)toban ([a-z]+)(?: ([a-z][a-z-]*)\b)?", re.MULTILINE)
COMMANDS = {
    " ".join(words)
    for noun, verb in re.findall(
        r"^#+ toban ([a-z]+)(?: ([a-z-]+))?$", (ROOT / "docs/cli.md").read_text(), re.MULTILINE
    )
    for words in ((noun, verb), (noun, ""))
}


@pytest.fixture(scope="module")
def metrics() -> list[Metric]:
    """What the code declares. It takes more than a second to find, so it is not done at collection."""
    return declared(ROOT)


@pytest.fixture(scope="module")
def names(metrics: list[Metric]) -> set[str]:
    return {name for metric in metrics for name in (metric.name, *metric.series)}


def test_names_labels_and_meanings_keep_the_rules(metrics: list[Metric]) -> None:
    assert problems(metrics) == []


def test_a_bad_name_label_or_meaning_is_found() -> None:
    bad = [
        Metric(name="toban_things", kind="counter", meaning="Things."),
        Metric(name="toban_time_ms", kind="gauge", meaning="Time."),
        Metric(name="toban_size", kind="histogram", meaning="Sizes."),
        Metric(name="toban_runs_by_job", kind="gauge", meaning="no sentence", labels=("job_name",)),
    ]
    found = "\n".join(problems(bad))
    for words in (
        "toban_things: the name of a counter",
        "toban_time_ms: base units",
        "toban_size: the name of a histogram",
        "must be a sentence",
        "label 'job_name'",
    ):
        assert words in found


@pytest.mark.parametrize("script", ["gen-metrics", "gen-dashboard", "gen-chart-files"])
def test_generated_files_are_current(script: str) -> None:
    done = subprocess.run([ROOT / "scripts" / script, "--check"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_every_metric_that_is_watched_exists(metrics: list[Metric]) -> None:
    known = rules.recorded(ROOT)
    watched = [*(alert.expression for alert in ALERTS), *known.values(), *dashboard.expressions()]
    assert rules.unknown(watched, metrics, known) == set()


def test_every_metric_that_a_document_names_exists(names: set[str]) -> None:
    missing = {
        f"{path.relative_to(ROOT)}: {name}"
        for path in [*ROOT.glob("docs/**/*.md"), *ROOT.glob("*.md")]
        for name in rules.IN_DOCUMENT.findall(path.read_text(encoding="utf-8"))
        if name not in names
    }
    assert missing == set()


def test_every_alert_says_everything(names: set[str], subtests: pytest.Subtests) -> None:
    for alert in ALERTS:
        with subtests.test(alert.name):
            assert_alert_says_everything(alert, names)


def assert_alert_says_everything(alert: rules.Alert, names: set[str]) -> None:
    assert alert.name.startswith("Toban")
    assert rules.seconds(alert.lasting) > 0
    assert alert.severity in ("critical", "warning") or (alert.name, alert.severity) == ("TobanHeartbeat", "none")
    assert alert.summary.endswith(".")
    assert alert.runbook == f"{rules.RUNBOOKS}/{alert.name}.md"
    page = (ROOT / alert.runbook).read_text(encoding="utf-8")
    assert page.startswith(f"# {alert.name}\n")
    assert tuple(re.findall(r"^## (.+)$", page, re.MULTILINE)) == rules.SECTIONS
    assert f"**{alert.severity}**" in page
    # What `python -m` runs is a module.
    assert set(rules.NAME.findall(re.sub(r"python -m \w+", "", page))) <= names
    assert {" ".join(words) for words in COMMAND.findall(page)} <= COMMANDS


def test_every_alert_can_fire() -> None:
    """No page of an alert says that its subject comes later."""
    assert [alert.name for alert in ALERTS if "cannot fire yet" in (ROOT / alert.runbook).read_text()] == []


def test_every_runbook_says_what_an_answer_means(subtests: pytest.Subtests) -> None:
    """Above each command and query stands what a good answer is, or a bad one."""
    for alert in ALERTS:
        with subtests.test(alert.name):
            page = (ROOT / alert.runbook).read_text()
            lines = page.split("## What to look at\n```\n")[1].split("```")[0].splitlines()
            asked, told = lines[1::2], lines[::2]
            assert asked and len(asked) == len(told)
            assert [line for line in told if not line.startswith(("# ", "-- "))] == []
            assert [line for line in asked if line.startswith(("# ", "-- "))] == []


def test_a_runbook_asks_processes_in_ways_that_exist() -> None:
    for alert in ALERTS:
        page = (ROOT / alert.runbook).read_text()
        assert re.findall(r"curl .*:9464|psql \"|redis-cli", page) == [], alert.name


def test_every_runbook_has_an_alert() -> None:
    pages = {path.stem for path in (ROOT / rules.RUNBOOKS).glob("*.md")}
    assert pages == {alert.name for alert in ALERTS}
