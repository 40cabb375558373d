"""The sentences of the services: each one that a page shows is in the catalogue, and is found again with its values."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from toban_admin_web.decide.languages import DEFAULT, LANGUAGES
from toban_admin_web.decide.service_texts import MAX_LENGTH, ServiceTexts

ROOT = Path(__file__).resolve().parents[4]
CATALOGUE: dict[str, dict[str, str]] = json.loads((ROOT / "web/locales/services.json").read_text(encoding="utf-8"))
TEXTS = ServiceTexts(CATALOGUE)
OTHERS = [language for language in LANGUAGES if language != DEFAULT]
DECIDE = "services/coordinator/src/toban_coordinator/decide"
# What these write is on a page, in English.
MODULES = (
    "libs/domain/src/toban_domain/settings.py",
    f"{DECIDE}/runs/explain_run.py",
    f"{DECIDE}/runs/wait_reason.py",
    f"{DECIDE}/limits/limits.py",
    f"{DECIDE}/limits/groups.py",
    f"{DECIDE}/limits/breaker.py",
    f"{DECIDE}/placement/assign.py",
    f"{DECIDE}/runs/reap.py",
    f"{DECIDE}/runs/reconcile.py",
    f"{DECIDE}/runs/report.py",
    "services/coordinator/src/toban_coordinator/app/schedules/next_slots.py",
    "libs/schedule/src/toban_schedule/annotated_slots.py",
    "libs/schedule/src/toban_schedule/dst_preview.py",
    "services/executor/src/toban_executor/decide/outcome.py",
)
# The pages ask for settings that exist only.
NOT_SHOWN = ("; the nearest is",)


@pytest.mark.parametrize("module", MODULES)
def test_sentences_of_a_service_are_in_the_catalogue(module: str) -> None:
    fixed = "\n".join(CATALOGUE)
    missing = [piece for piece in _pieces(ROOT / module) if piece not in fixed and piece not in NOT_SHOWN]

    assert missing == [], "give these sentences their translations in web/locales/services.json"


@pytest.mark.parametrize("language", OTHERS)
def test_each_sentence_is_found_with_its_values(language: str) -> None:
    wrong = []
    for key, translations in CATALOGUE.items():
        values = [f"x{number}" for number in range(key.count("{}"))]
        sentence = key.replace("{}", "%s") % tuple(values) if values else key
        expected = re.sub(r"\{(\d)\}", lambda match, values=values: values[int(match[1])], translations[language])
        found = TEXTS.find(language, sentence)
        if found != expected or any(value not in expected for value in values):
            wrong.append((key, found))

    assert wrong == []


def test_a_sentence_in_a_sentence_is_translated_and_a_name_is_not() -> None:
    assert TEXTS.find("ja", "no executor takes work (2 draining, 1 silent)") == (
        "作業を受け付けるエグゼキューターがありません (2 台ドレイン中, 1 台応答なし)"
    )
    assert TEXTS.find("ja", "limit runs is reached") == "リミット runs に達しています"


def test_sentences_of_the_release_before_are_translated() -> None:
    for now in [key for key in CATALOGUE if "cancelled" in key]:
        assert CATALOGUE[now.replace("cancelled", "canceled")] == CATALOGUE[now]


def test_the_parts_of_a_long_list_are_not_looked_for() -> None:
    short, long = (", ".join([*["2 draining"] * number, "no sentence"]) for number in (19, 20))
    assert "draining" not in (TEXTS.find("ja", f"no executor takes work ({short})") or short)
    assert (TEXTS.find("ja", f"no executor takes work ({long})") or "").endswith(f"({long})")


def test_times_in_sentences_are_apart(subtests: Any) -> None:
    at = datetime(2026, 12, 1, 8, tzinfo=UTC)
    for language, text, expected in (
        ("en", "it was due at 2026-12-01 08:00:00 UTC", ["it was due at ", at]),
        ("ja", "no slot comes after 2026-12-01T08:00:00Z", [at, " より後にスロットはありません"]),
        ("en", "no slot comes after 2026-99-01T08:00:00Z", ["no slot comes after ", "2026-99-01T08:00:00Z"]),
        ("en", "Traceback at 2026-12-01T08:00:00Z", ["Traceback at 2026-12-01T08:00:00Z"]),
        ("ja", "Traceback at 2026-12-01T08:00:00Z", ["Traceback at 2026-12-01T08:00:00Z"]),
    ):
        with subtests.test(text, language=language):
            assert list(TEXTS.parts(language, text)) == expected


@pytest.mark.parametrize("text", ["", "traceback of a job", "x" * (MAX_LENGTH + 1), "it was due at"])
def test_an_unknown_text_is_not_translated(text: str) -> None:
    assert TEXTS.find("ja", text) is None


def _pieces(path: Path) -> Iterator[str]:
    """The fixed parts of the sentences in a module: texts of more than one word outside docstrings and exceptions."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    skipped: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) or (isinstance(node, ast.Raise) and node.exc is not None):
            skipped |= {id(part) for part in ast.walk(node)}
        if isinstance(node, ast.Call) and getattr(node.func, "id", "").endswith("Error"):
            skipped |= {id(part) for part in ast.walk(node)}
        if isinstance(node, ast.FormattedValue) and node.format_spec is not None:
            skipped |= {id(part) for part in ast.walk(node.format_spec)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in skipped:
            piece = node.value.strip()
            if " " in piece:
                yield piece
