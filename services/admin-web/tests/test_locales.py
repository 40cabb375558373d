"""Every text is there in every language, with the same places, and everything that a page can say is among them."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from toban_admin_web.decide.languages import LANGUAGES, NAMES
from toban_admin_web.decide.messages import places
from toban_admin_web.decide.tones import GROUPS
from toban_domain.outcome import Reason
from toban_domain.run import RunState

WEB = Path(__file__).resolve().parents[3] / "web"
CATALOGUES = {
    language: json.loads((WEB / "locales" / f"{language}.json").read_text(encoding="utf-8")) for language in LANGUAGES
}
ENGLISH = CATALOGUES["en"]
PROBLEMS = ("unreachable", "thing", "page", "method", "request", "host", "busy", "cluster", "bug")


def said() -> set[str]:
    """The names that templates, and the functions behind them, ask for."""
    names: set[str] = set()
    for template in (WEB / "templates").glob("*.html"):
        text = template.read_text(encoding="utf-8")
        names |= set(re.findall(r"\bt\('([a-z_.]+)'[,)]", text)) | set(re.findall(r"'(nav\.[a-z]+)'", text))
    names |= {f"state.{state}" for state in RunState} | {f"group.{group}" for group in GROUPS}
    names |= {f"reason.{reason}" for reason in Reason if reason}
    names |= {f"problem.{name}.{part}" for name in PROBLEMS for part in ("title", "text", "mend")}
    names |= {f"rule.every.{unit}" for unit in "smhd"} | {
        f"age.{way}.{unit}" for way in ("ago", "in") for unit in "smhd"
    }
    names |= {f"weekday.{day}" for day in ("mon", "tue", "wed", "thu", "fri", "sat", "sun")}
    return names | {"rule.weekly", "rule.hourly", "rule.daily", "rule.cron", "rule.and", "age.now"}


def test_there_is_a_name_for_each_language() -> None:
    assert set(NAMES) == set(LANGUAGES) == {path.stem for path in (WEB / "locales").glob("*.json")}


@pytest.mark.parametrize("language", LANGUAGES)
def test_each_text_is_there_with_the_same_places(language: str) -> None:
    catalogue = CATALOGUES[language]
    assert set(catalogue) == set(ENGLISH)
    assert {name: places(text) for name, text in catalogue.items()} == {
        name: places(text) for name, text in ENGLISH.items()
    }
    assert {name for name, text in catalogue.items() if "%" in text} == {
        name for name, text in ENGLISH.items() if "%" in text
    }
    assert [name for name, text in catalogue.items() if not text.strip()] == []


def test_everything_that_is_said_has_a_text() -> None:
    assert sorted(said() - set(ENGLISH)) == []


def test_no_text_is_left_over() -> None:
    words = {
        "leader",
        "role",
        "member",
        "health",
        "check",
        "executor_state",
        "enabled",
        "schedule_status",
        "outcome",
        "origin",
        "event",
        "value",
    }
    words |= {"reason", "state", "span"}
    left = {name for name in set(ENGLISH) - said() if name.partition(".")[0] not in words}
    assert sorted(left) == []
