"""A rule of a method that lets more callers or people in than it did is named in CHANGELOG.md. The table of docs/architecture.md has the rules."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from toban_domain.access import MINIMUM, Action

ROOT = Path(__file__).parents[2]
TABLE = "docs/architecture.md"
HEAD = "| server | gRPC service | methods | callers | right |"
# Service.Method → callers and right, as the table has them.
Rules = Mapping[str, tuple[frozenset[str], str]]


def rules_of(text: str) -> Rules:
    rows = text.partition(HEAD)[2].partition("<!-- end -->")[0].splitlines()[2:]
    cells = ([cell.strip() for cell in row.strip("|").split("|")] for row in rows)
    return {
        f"{service.strip('`')}.{method}": (frozenset(callers.split(", ")), right)
        for _, service, methods, callers, right in cells
        for method in methods.split(", ")
    }


def is_wider(before: str, after: str) -> bool:
    """Whether another right admits what the right before may not; of two that cannot be compared it may."""
    if before == after:
        return False
    (was, _, about), (now, _, other) = before.partition(": "), after.partition(": ")
    if not (about and other):
        return True
    return MINIMUM[Action(now)].rank < MINIMUM[Action(was)].rank or other not in (about, "cluster")


def widened(before: Rules, after: Rules) -> set[str]:
    return {
        method
        for method, (callers, right) in after.items()
        if method in before and (callers - before[method][0] or is_wider(before[method][1], right))
    }


def git(*arguments: str) -> str:
    return subprocess.run(["git", "-C", ROOT, *arguments], capture_output=True, text=True, check=True).stdout


def test_a_wider_rule_is_in_the_changelog() -> None:
    if git("rev-parse", "--is-shallow-repository").strip() == "true":
        pytest.skip("a shallow clone has no older table")
    first = git("log", "--format=%H", "--reverse", f"-S{HEAD}", "--", TABLE).split()
    before = rules_of(git("show", f"{first[0]}:{TABLE}")) if first else {}
    after = rules_of((ROOT / TABLE).read_text(encoding="utf-8"))
    assert len(after) > 100
    named = set(re.findall(r"`(\w+\.\w+)`", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")))
    assert widened(before, after) <= named, "name these methods in CHANGELOG.md, with who may call them now"


@pytest.mark.parametrize(
    ("before", "after", "wider"),
    [
        ("edit: jobs", "edit: jobs", False),
        ("edit: jobs", "view: jobs", True),
        ("view: any", "edit: cluster", False),
        ("view: cluster", "view: any", True),
        ("view: jobs", "view: list", True),
        ("operate: cluster", "request", True),
        ("certificate", "operate: cluster", True),
    ],
)
def test_which_rule_is_wider(before: str, after: str, wider: bool) -> None:
    one, both = frozenset({"admin-cli"}), frozenset({"admin-cli", "admin-web"})
    assert widened({"A.B": (both, before)}, {"A.B": (one, after), "A.C": (both, "request")}) == (
        {"A.B"} if wider else set()
    )
    assert widened({"A.B": (one, before)}, {"A.B": (both, before)}) == {"A.B"}
