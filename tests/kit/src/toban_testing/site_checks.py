"""What every page of the site is looked at for, beside what axe-core finds: its texts in each language; and the rules of its addresses."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from werkzeug.routing import Map

from toban_admin_web.main.worker import VIEWS
from toban_admin_web.server.app import create_app
from toban_runtime.clock import SystemClock
from toban_runtime.ids import IdSource
from toban_testing.browser import Page

WEB = Path(__file__).resolve().parents[4] / "web"
LANGUAGES = ("en", "ja", "zh-Hant")
# Texts that nothing else is in, and attributes that are read or shown.
_TEXTS = """[...document.querySelectorAll('body *, title')].filter((one) => !one.closest('[lang]:not(html), script, template, .code'))
    .flatMap((one) => [one.childElementCount ? '' : one.textContent, one.title ?? '', one.ariaLabel ?? ''])
    .map((one) => one.trim()).filter(Boolean)"""
_WORDS = """[...document.querySelectorAll('h1, h2, h3, th, label, summary, legend, button, a.button, nav a, .lead, .message')].filter((one) =>
    !one.closest('[lang]:not(html)')).map((one) => one.textContent.trim()).filter(Boolean)"""


def addresses() -> Map:
    """The rules of the addresses, each with its view and methods."""
    app = create_app(web_dir=WEB, clock=SystemClock(), ids=IdSource(), http_names=())
    for one in VIEWS:
        app.register_blueprint(one)
    return app.url_map


def texts() -> dict[str, dict[str, str]]:
    """Of each language by key."""
    return {one: json.loads((WEB / "locales" / f"{one}.json").read_text(encoding="utf-8")) for one in LANGUAGES}


def untranslated(page: Page, known: Mapping[str, Mapping[str, str]], language: str) -> list[str]:
    """Keys in place of texts, and words that are those of English where the language has its own."""
    wrong = [f"the key {one} in place of its text" for one in page.run(_TEXTS) if "." in one and one in known["en"]]
    own = {text for key, text in known["en"].items() if known[language][key] != text}
    own -= {text for key, text in known["en"].items() if known[language][key] == text}
    return wrong + [f"English: {one}" for one in set(page.run(_WORDS)) if one in own]
