"""A person's way through the site in a browser: each form is opened, filled in and sent as a person does it, and what it leads to is looked at."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from toban_domain.errors import TobanError
from toban_testing.admin_client import AdminClient
from toban_testing.browser import Page, axe_source
from toban_testing.site_checks import LANGUAGES, texts, untranslated

WIDTHS = (390, 1280)
REASON = "for this test"
# Where a person goes on after an action: both have the focus.
RESULT = "main :is(.message, .big)[role=status]"
GOOD = "main .message.good"
# An executor that is stopped loses its lease after ten seconds, and its run later.
FOUND_SECONDS = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Act:
    """On the page `at` a person opens the form that is sent to `path`, fills in `fields`, sends it and sees `shows`.

    A number in `path` that only the page knows is `{}`. `ready` is awaited before the form is sent. `fact` is true at the coordinators afterwards.
    """

    at: str
    path: str
    fields: Mapping[str, str] = field(default_factory=dict)
    shows: str = GOOD
    ready: str = "form"
    fact: Callable[[AdminClient, Mapping[str, Any]], object] = lambda admin, known: True


@dataclass(frozen=True, slots=True, kw_only=True)
class Visitor:
    """A person at a site, who has `known` for the places in addresses. Languages, themes and widths come in turn, so that each meets each.

    `findings`: what was wrong so far.
    """

    page: Page
    base: str
    admin: AdminClient
    known: dict[str, Any]
    findings: list[str] = field(default_factory=list)
    looks: list[tuple[str, str]] = field(default_factory=list)
    _texts: Mapping[str, Mapping[str, str]] = field(default_factory=texts)
    _axe: str = field(default_factory=axe_source)

    def do(self, acts: Sequence[Act]) -> None:
        """One action after the other. Raises AssertionError at one that fails, since later ones need what it makes."""
        for act in acts:
            place, earlier = act.path.replace("{}", "N").format_map(self.known), len(self.page.complaints)
            self._open(act.at)
            try:
                self._open_form(act, place)
                self._send(act, place)
                self.admin.until(lambda act=act: act.fact(self.admin, self.known), of="its effect")  # type: ignore[misc]
            except (TimeoutError, RuntimeError, TobanError) as error:
                shown = self.page.run("(document.querySelector('dialog[open], main') ?? document.body).innerText")
                self._note(place, f"{error}; the page shows: {shown[:500]}")
                raise AssertionError("\n".join(self.findings)) from error
            self._note(place, *self.page.complaints[earlier:])

    def look_at(self, opened: Mapping[str, tuple[str, str, str]]) -> None:
        """What opens over a page or in it: by its name the page, the script that opens it, and a selector of what is open then."""
        for name, (path, script, shows) in opened.items():
            earlier = len(self.page.complaints)
            self._open(path)
            self.page.until("document.querySelector('[data-open-palette]')?.hidden === false")
            self.page.run(f"{script}; 0")
            self.page.until(f"Boolean(document.querySelector({json.dumps(shows)}))")
            self._check(name)
            self._note(name, *self.page.complaints[earlier:])

    def _open(self, path: str) -> None:
        turn = len(self.looks)
        language, dark = LANGUAGES[turn % 3], bool(turn % 2)
        self.looks.append((language, "dark" if dark else "light"))
        self.page.look(width=WIDTHS[turn // 2 % 2], dark=dark, language=language)
        self.page.open(self.base + path.format_map(self.known))

    def _note(self, place: str, *found: str) -> None:
        self.findings.extend(f"{place} ({', '.join(self.looks[-1])}): {one}" for one in found)

    def _check(self, place: str) -> None:
        self._note(place, *self.page.axe(self._axe), *untranslated(self.page, self._texts, self.looks[-1][0]))

    def _open_form(self, act: Act, place: str) -> None:
        """The form may be in the page, in a dialog over the page, or on a page of its own."""
        pattern = "[0-9]+".join(part.format_map(self.known) for part in act.path.split("{}")).replace("/", "[/]")
        self.page.run(f"""window.found = (places) => [...document.querySelectorAll(places)].find((one) =>
            /^{pattern}([?]|$)/.test(one.getAttribute(one.matches('form') ? 'action' : 'href'))); 0""")
        self.page.until("Boolean(found('main form[method=post], main a.button'))", FOUND_SECONDS)
        if self.page.run("found('main form[method=post]') === undefined"):
            self.page.run("{ const link = found('main a.button'); link.focus(); link.click(); }")
            self.page.until(
                "document.readyState === 'complete' && (window.found ? Boolean(found('dialog[open] form'))"
                f" : /^{pattern}$/.test(location.pathname))"
            )
        if self.page.run("Boolean(document.querySelector('dialog[open]'))"):
            self._check(f"the dialog of {place}")
            fields = "document.querySelector('dialog form.action').querySelectorAll('input:not([type=hidden]), textarea, select')"
            first = f"[...{fields}].find((one) => one.type !== 'radio' || one.checked)"
            if not self.page.run(f"document.activeElement === {first}"):
                self._note(f"the dialog of {place}", "the focus is not in its first field")

    def _send(self, act: Act, place: str) -> None:
        fields = {"reason": REASON, **act.fields}
        self.page.run(f"""window.form = document.querySelector('dialog form.action, main form.action') ?? found('main form');
            for (const [name, value] of Object.entries({json.dumps(fields)})) {{
                const control = form.elements[name];
                if (!control && name === 'reason') continue;
                if (control.type === 'checkbox') control.checked = true;
                else control.value = value;
                control.dispatchEvent?.(new Event('input', {{ bubbles: true }}));
            }}""")
        self.page.until(f"Boolean(document.querySelector('{act.ready}'))")
        self.page.run(
            "(form.querySelector('.primary, .danger') ?? form.querySelector('button:not([type=button])')).click()"
        )
        # The page of the form is gone when its window has no `form` any more.
        self.page.until(
            f"window.form === undefined && document.readyState === 'complete' && Boolean(document.querySelector('{act.shows}'))"
        )
        self._check(place)
        if self.page.run(f"document.querySelector('{act.shows}').matches('{RESULT}')"):
            box = f"document.querySelector('{RESULT}').getBoundingClientRect()"
            if not self.page.run(f"{box}.top >= 0 && {box}.bottom <= innerHeight"):
                self._note(place, "the notice is not in view")
            if not self.page.run(f"document.activeElement === document.querySelector('{RESULT}')"):
                self._note(place, "the focus is not at the notice")
