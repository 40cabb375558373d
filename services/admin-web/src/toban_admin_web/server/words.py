"""What templates can say: words of the language, times, durations, addresses of files. Everything that comes from outside is escaped."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

from flask import Flask, g, request, url_for
from markupsafe import Markup

from toban_admin_web.decide import languages, log_text, opened, rules, spans, tones
from toban_admin_web.decide.messages import Messages
from toban_admin_web.decide.records import Schedule
from toban_admin_web.server import language
from toban_runtime.clock import Clock

DIGEST_LENGTH = 12


class Words:
    """The functions of the templates."""

    def __init__(self, messages: Messages, static: Path) -> None:
        self._messages = messages
        self._static = static
        self._digests: dict[str, str] = {}

    def t(self, name: str, **values: object) -> str:
        """The text `name` in the language of the request."""
        return self._messages.say(language.current(), name, **values)

    def word(self, kind: str, value: str) -> str:
        """A word of the cluster (a state, a role, a reason) in the language of the request; the word itself when it is not known."""
        text = self._messages.find(language.current(), f"{kind}.{value}")
        return value if text is None else text

    def at(self, moment: datetime | None) -> Markup:
        """A time as the script shows it in the viewer's zone; without the script it is UTC and says so."""
        if moment is None:
            return Markup('<span class="none">–</span>')
        utc = moment.astimezone(UTC)
        return Markup('<time datetime="{}">{}</time>').format(
            utc.isoformat(timespec="milliseconds").replace("+00:00", "Z"), f"{utc:%Y-%m-%d %H:%M:%S} UTC"
        )

    def utc(self, moment: datetime | None) -> str:
        """A time in UTC, as text."""
        return "" if moment is None else f"{moment.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"

    def ago(self, moment: datetime | None, now: datetime) -> str:
        """How long ago, or how far ahead."""
        return "" if moment is None else self._said(spans.age(moment, now))

    def took(self, start: datetime | None, end: datetime | None, now: datetime) -> str:
        """From start to end, or until now."""
        words = spans.took(start, end, now)
        return "–" if words is None else self._said(words)

    def rule(self, schedule: Schedule) -> str:
        """The rule of a schedule in words."""
        spec = opened.as_object(schedule.spec_json)
        weekly = rules.weekly(spec)
        if weekly is not None:
            days = self.t("rule.and").join(self.t(f"weekday.{day}") for day in weekly[0])
            return self.t("rule.weekly", days=days, time=weekly[1])
        words = rules.rule_words(spec)
        return schedule.rule if words is None else self._said(words)

    def asset(self, name: str) -> str:
        """The address of a file in static/, with its digest."""
        if name not in self._digests:
            self._digests[name] = sha256((self._static / name).read_bytes()).hexdigest()[:DIGEST_LENGTH]
        return url_for("static", filename=name, v=self._digests[name])

    def _said(self, words: tuple[str, Mapping[str, str]]) -> str:
        return self.t(words[0], **words[1])


def install(app: Flask, messages: Messages, clock: Clock) -> None:
    """Gives the templates of `app` their words."""
    words = Words(messages, Path(str(app.static_folder)))
    functions = (words.t, words.word, words.at, words.utc, words.ago, words.took, words.rule, words.asset)
    app.jinja_env.globals.update({function.__name__: function for function in functions})
    app.jinja_env.globals.update(
        tone=tones.tone, plain=log_text.clean, in_language=_in_language, part_address=_part_address
    )

    def common() -> dict[str, Any]:
        return {
            "language": language.current(),
            "languages": languages.NAMES,
            "path": request.path,
            "now": clock.wall(),
        }

    app.context_processor(common)


def _in_language(tag: str) -> str:
    """The address of this page in another language."""
    return f"{_here()}?{urlencode({**request.args, 'lang': tag})}"


def _part_address() -> str:
    """The address that the script asks to keep this page fresh."""
    query = {**request.args, "part": "1"}
    if g.get("chosen"):
        query["lang"] = g.chosen
    return f"{_here()}?{urlencode(query)}"


def _here() -> str:
    """The path of this page for a link: browsers take two slashes at its start, or a backslash, for another host."""
    return "/" + quote(request.path.lstrip("/\\"))
