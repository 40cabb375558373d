"""The rules and routes by Prometheus' own tools: each alert fires when it should, not before its time, and not otherwise.

`make alerts-test`; without promtool and amtool (Debian: prometheus, prometheus-alertmanager) it is skipped.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from toban_stack import container_secrets
from toban_testing.monitoring import rules
from toban_testing.monitoring.alert_cases import CASES, MORE, Series

ROOT = Path(__file__).resolve().parents[2]
PROMETHEUS = ROOT / "deploy" / "prometheus"
ALERTMANAGER = ROOT / "deploy" / "alertmanager" / "alertmanager.yml"
ALERTS = {alert.name: alert for alert in rules.alerts(ROOT)}
INTERVAL = 15


def tool(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        pytest.skip(f"no {name} here: apt-get install prometheus prometheus-alertmanager")
    return found


def run(*command: str, cwd: Path = ROOT) -> str:
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False, timeout=100)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_there_is_a_case_for_each_alert() -> None:
    assert set(CASES) == set(ALERTS) and set(MORE) < set(ALERTS)


def test_rules_and_configuration_are_valid(tmp_path: Path) -> None:
    promtool = tool("promtool")
    shutil.copytree(PROMETHEUS, tmp_path, dirs_exist_ok=True)
    # It looks for the files of tokens, which are in the container.
    config = (tmp_path / "prometheus.yml").read_text().replace("/run/keys/", f"{tmp_path}/")
    (tmp_path / "prometheus.yml").write_text(config)
    for name in container_secrets.SHARES["prometheus"].secrets:
        (tmp_path / name).write_text("token")
    assert "SUCCESS" in run(promtool, "check", "config", "prometheus.yml", cwd=tmp_path)
    assert "SUCCESS" in run(tool("amtool"), "check-config", str(ALERTMANAGER))


@pytest.mark.seed(206, 207, 222, 223)
def test_each_alert_fires_when_it_should_and_only_then(tmp_path: Path) -> None:
    """One file for promtool: of each case a test that fires, one a step before its time, and one that stays quiet."""
    tests = []
    for name, case in [*CASES.items(), *((name, case) for name, cases in MORE.items() for case in cases.values())]:
        lasting, lead = rules.seconds(ALERTS[name].lasting), rules.seconds(case.lead)
        late = lasting + lead + 2 * INTERVAL
        tests.append(_test(name, case.fires, {late: True, max(0, lasting - INTERVAL): False}, case.where))
        if case.quiet is not None:
            tests.append(_test(name, case.quiet, {late: False}, case.where))
    suite = {
        "rule_files": [str(path) for path in rules.documents(ROOT)],
        "evaluation_interval": f"{INTERVAL}s",
        "tests": tests,
    }
    path = tmp_path / "alerts.test.yml"
    path.write_text(json.dumps(suite))
    assert "SUCCESS" in run(tool("promtool"), "test", "rules", str(path))


def _test(name: str, series: Series, at: dict[int, bool], where: str) -> dict[str, Any]:
    labels = f'alertname="{name}", alertstate="firing"' + (f", {where}" if where else "")
    return {
        "name": name,
        "interval": f"{INTERVAL}s",
        "input_series": [{"series": key, "values": values} for key, values in series.items()],
        "promql_expr_test": [
            {
                "expr": f"(count(ALERTS{{{labels}}}) > bool 0) or vector(0)",
                "eval_time": f"{seconds}s",
                "exp_samples": [{"labels": "{}", "value": int(fires)}],
            }
            for seconds, fires in at.items()
        ],
    }


@pytest.mark.parametrize(
    ("name", "severity", "receiver"),
    [
        ("TobanNoLeader", "critical", "page"),
        ("TobanTargetDown", "warning", "ticket"),
        ("TobanHeartbeat", "none", "heartbeat"),
        ("AnythingElse", "none", "look"),
    ],
)
def test_an_alert_goes_to_the_receiver_of_its_severity(name: str, severity: str, receiver: str) -> None:
    labels = [f"alertname={name}", f"severity={severity}"]
    told = run(tool("amtool"), "config", "routes", "test", f"--config.file={ALERTMANAGER}", *labels)
    assert told.split() == [receiver]


MATCHER = re.compile(r'(\w+) (=~?) "(.+)"')
INHIBIT = yaml.safe_load(ALERTMANAGER.read_text(encoding="utf-8"))["inhibit_rules"]


def test_what_is_inhibited_are_alerts_that_exist() -> None:
    named: set[str] = set()
    for rule in INHIBIT:
        for matcher in (*rule["source_matchers"], *rule["target_matchers"]):
            label, _, value = _matched(matcher)
            if label == "alertname":
                found = {name for name in ALERTS if re.fullmatch(value, name)}
                prefix, _, choices = value.rstrip(")").partition("(")
                assert len(found) == (len(choices.split("|")) if choices else 1), (matcher, prefix)
                named |= found
    assert "TobanNoLeader" in named


HERE = {"namespace": "production"}
ELSEWHERE = {"namespace": "staging"}
FIRST = {"job": "toban-coordinator", "instance": "a:9464"}
SECOND = {"job": "toban-coordinator", "instance": "b:9464"}


@pytest.mark.parametrize(
    ("source", "target", "hidden"),
    [
        # One coordinator without PostgreSQL says nothing of the cluster, nor of other processes.
        (("TobanPostgresUnreachable", FIRST), ("TobanNoLeader", {}), False),
        (("TobanPostgresUnreachable", FIRST), ("TobanHealthCritical", SECOND), False),
        (("TobanPostgresUnreachable", FIRST), ("TobanHealthCritical", FIRST), True),
        (("TobanPostgresGone", {}), ("TobanNoLeader", {}), True),
        (("TobanPostgresGone", {}), ("TobanPostgresUnreachable", FIRST), True),
        (("TobanPostgresGone", {}), ("TobanHealthCritical", {"job": "toban-executor", "instance": "e:9464"}), False),
        # Installations say nothing of each other.
        (("TobanPostgresGone", HERE), ("TobanNoLeader", HERE), True),
        (("TobanPostgresGone", HERE), ("TobanNoLeader", ELSEWHERE), False),
        (("TobanNoLeader", HERE), ("TobanSlotsOverdue", ELSEWHERE), False),
        (("TobanNoLeader", {}), ("TobanLoopFailing", {"job": "toban-log-archiver", "instance": "l:9464"}), False),
        (("TobanServiceGone", HERE | {"job": "toban-executor"}), ("TobanTargetDown", HERE | FIRST), False),
        (("TobanServiceGone", HERE | {"job": "toban-coordinator"}), ("TobanTargetDown", HERE | FIRST), True),
    ],
)
def test_only_what_follows_is_inhibited(source: tuple[str, Series], target: tuple[str, Series], hidden: bool) -> None:
    above, below = ({"alertname": name, **labels} for name, labels in (source, target))
    found = any(
        all(_fits(matcher, above) for matcher in rule["source_matchers"])
        and all(_fits(matcher, below) for matcher in rule["target_matchers"])
        # A label that neither has is equal.
        and all(above.get(label, "") == below.get(label, "") for label in rule["equal"])
        for rule in INHIBIT
    )
    assert found == hidden


def _matched(matcher: str) -> tuple[str, str, str]:
    found = MATCHER.fullmatch(matcher)
    assert found is not None, matcher
    label, operator, value = found.groups()
    return label, operator, value


def _fits(matcher: str, labels: Series) -> bool:
    label, operator, value = _matched(matcher)
    return re.fullmatch(value if operator == "=~" else re.escape(value), labels.get(label, "")) is not None
