"""Functions for templates: texts, labels, times, durations, URLs. Values from outside are always escaped."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

from flask import Flask, g, request, url_for
from markupsafe import Markup

from toban_admin_web.decide import durations, languages, schedule_text
from toban_admin_web.decide.api_models import RunLimit, Schedule
from toban_admin_web.decide.clock_changes import near_clock_change
from toban_admin_web.decide.cron_text import cron_words
from toban_admin_web.decide.dashboard import term_name
from toban_admin_web.decide.json_fields import as_object
from toban_admin_web.decide.log_text import clean, printable
from toban_admin_web.decide.navigation import groups_for, is_here
from toban_admin_web.decide.payload_form import field_id
from toban_admin_web.decide.run_actions import dispatch_name
from toban_admin_web.decide.service_texts import ServiceTexts
from toban_admin_web.decide.status_styles import FAILED_STATES, state_icon, style
from toban_admin_web.decide.translations import Message, Translations
from toban_admin_web.decide.undo import Undo, undo_of
from toban_admin_web.server import language
from toban_domain.outcome import failure_text
from toban_runtime.clock import Clock

DIGEST_LENGTH = 12


class TemplateHelpers:
    """Helpers that need the translations or the static files."""

    def __init__(self, translations: Translations, services: ServiceTexts, static: Path) -> None:
        self._translations = translations
        self._services = services
        self._static = static
        self._urls: dict[tuple[str, str], str] = {}

    def t(self, key: str, **values: object) -> str:
        """The text `key` in the language of the request."""
        return self._translations.text(language.current(), key, **values)

    def label(self, kind: str, value: str) -> str:
        """The translation of a value from the cluster (a state, a role, a reason); the value itself when it is unknown."""
        text = self._translations.find(language.current(), f"{kind}.{value}")
        return value if text is None else text

    def translated(self, text: str) -> Markup:
        """A sentence of a service in the language of the request, with its times as those of the page.

        One that is not known stays, marked as English for screen readers.
        """
        tag = language.current()
        parts = self._services.parts(tag, text)
        shown = Markup("").join(
            self.at(part) if isinstance(part, datetime) else Markup.escape(_shown(part)) for part in parts
        )
        if tag != languages.DEFAULT and text and text.isascii() and self._services.find(tag, text) is None:
            return Markup('<span lang="en">{}</span>').format(shown)
        return shown

    @staticmethod
    def linked(text: Markup, limits: Sequence[RunLimit]) -> Markup:
        """`text` with links to the limits that hold its run back."""
        links = {str(Markup.escape(one.name)): one.name for one in limits if one.blocks}
        if not links:
            return text
        names = "|".join(re.escape(name) for name in sorted(links, key=len, reverse=True))

        def link(found: re.Match[str]) -> str:
            return Markup('<a href="{}">{}</a>').format(url_for("limits.show", name=links[found[0]]), Markup(found[0]))

        return Markup(re.sub(rf"(?<![\w:/.-])(?:{names})(?![\w:/-]|\.\w)", link, text))

    def notice(self) -> str:
        """What the action that led to this page has done; "" without one."""
        done = request.args.get("done", "")
        return self._translations.find(language.current(), f"done.{done}") or ""

    @staticmethod
    def undo() -> Undo | None:
        """The reverse of what the action that led to this page has done; None without one."""
        given = {**request.args, **(request.view_args or {})}
        return undo_of(given.get("done", ""), request.endpoint or "", given)

    def at(self, moment: datetime | None) -> Markup:
        """A time element in UTC, which the script converts to the viewer's zone."""
        if moment is None:
            return Markup('<span class="none">–</span>')
        utc = moment.astimezone(UTC)
        return Markup('<time datetime="{}">{}</time>').format(
            utc.isoformat(timespec="milliseconds").replace("+00:00", "Z"), f"{utc:%Y-%m-%d %H:%M:%S} UTC"
        )

    def utc(self, moment: datetime | None) -> str:
        """A time in UTC, as text."""
        return "" if moment is None else f"{moment.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"

    def age(self, moment: datetime | None, now: datetime) -> str:
        """The distance from now, in the past or the future."""
        return "" if moment is None else self._message(durations.age(moment, now))

    def elapsed(self, start: datetime | None, end: datetime | None, now: datetime) -> str:
        """The duration from start to end, or until now."""
        message = durations.elapsed(start, end, now)
        return "–" if message is None else self._message(message)

    def seconds_text(self, seconds: float) -> str:
        """A duration."""
        return self._message(durations.duration(seconds))

    def rule(self, schedule: Schedule) -> str:
        """The rule of a schedule as text."""
        spec = as_object(schedule.spec)
        weekly = schedule_text.weekly_rule(spec)
        if weekly is not None:
            days = self.t("rule.and").join(self.t(f"weekday.{day}") for day in weekly[0])
            return self.t("rule.weekly", days=days, time=weekly[1])
        message = schedule_text.rule_message(spec)
        return schedule.rule if message is None else self._message(message)

    def rule_words(self, schedule: Schedule) -> str:
        """A cron expression in words; "" for other rules, and where words would not say well when it fires."""
        cron = as_object(schedule.spec).get("cron")
        return cron_words(cron, schedule.name, self.t) if isinstance(cron, str) else ""

    def asset(self, name: str) -> str:
        """The URL of a file in static/, with its digest."""
        key = (request.script_root, name)
        if key not in self._urls:
            digest = sha256((self._static / name).read_bytes()).hexdigest()[:DIGEST_LENGTH]
            self._urls[key] = url_for("static", filename=name, v=digest)
        return self._urls[key]

    def _message(self, message: Message) -> str:
        return self.t(message[0], **message[1])


def install(app: Flask, translations: Translations, services: ServiceTexts, clock: Clock) -> None:
    """Adds the helpers to the templates of `app`."""
    app.jinja_env.finalize = _shown
    helpers = TemplateHelpers(translations, services, Path(str(app.static_folder)))
    functions = (
        *(
            helpers.t,
            helpers.label,
            helpers.translated,
            helpers.linked,
            helpers.notice,
            helpers.undo,
            helpers.at,
            helpers.utc,
            helpers.age,
            helpers.elapsed,
            helpers.seconds_text,
            helpers.rule,
            helpers.rule_words,
            helpers.asset,
        ),
        *(
            style,
            state_icon,
            near_clock_change,
            term_name,
            clean,
            failure_text,
            language_url,
            part_url,
            field_id,
            groups_for,
            is_here,
            dispatch_name,
        ),
    )
    app.jinja_env.globals.update({function.__name__: function for function in functions}, FAILED_STATES=FAILED_STATES)

    def common() -> dict[str, Any]:
        return {
            "language": language.current(),
            "languages": languages.NAMES,
            "path": request.path,
            "now": clock.wall(),
        }

    app.context_processor(common)


def _shown(value: Any) -> Any:
    """What a template prints: no text of a cluster can turn the writing direction, or act on a terminal that a page is copied into.

    Markup is made of such texts already.
    """
    return value if hasattr(value, "__html__") else printable(str(value))


def language_url(tag: str) -> str:
    """The URL of this page in another language."""
    return f"{page_path()}?{urlencode({**request.args, 'lang': tag})}"


def part_url() -> str:
    """The URL of this page's refreshed part."""
    query = {**request.args, "part": "1"}
    if g.get("requested_language"):
        query["lang"] = g.requested_language
    return f"{page_path()}?{urlencode(query)}"


def page_path() -> str:
    """The path of this page for a link. Browsers read two leading slashes, or a backslash, as another host."""
    return "/" + quote(request.path.lstrip("/\\"))
