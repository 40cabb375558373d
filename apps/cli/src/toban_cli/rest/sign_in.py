"""Signs in with a password as a browser does, to make an own API token; the session ends at once."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from http.cookies import SimpleCookie
from typing import Any
from urllib.parse import urlencode, urlsplit

from toban.client.answers import read_json
from toban.client.flow import Flow, Reply, Request, reply_to
from toban_cli.rest.connection import SiteConnection
from toban_cli.rest.site import Site
from toban_domain.errors import ErrorCode, TobanError

SECONDS = 15.0
_CSRF = re.compile(r'name="csrf" value="([0-9a-f]{64})"')
_FORM = "application/x-www-form-urlencoded"
_SEE_OTHER = 303


@dataclass(frozen=True, slots=True, kw_only=True)
class NewToken:
    """An API token that was just made, and the user whose it is."""

    user: str
    role: str
    secret: str = field(repr=False)
    id: int
    ends_at: str


def make_token(site: Site, user: str, password: str, *, name: str, role: str, days: int) -> NewToken:
    """A token of this user; role "" = the highest that the user has. Raises UNAUTHENTICATED for a wrong password, and what the site answers."""
    browser = _Browser(site)
    try:
        browser.enter(user, password)
        try:
            who = browser.api("GET", "/session")
            if not (role or who["role"]):
                message = f"{who['user']} has no role yet, so a token could do nothing; ask an administrator for one"
                raise TobanError(ErrorCode.PERMISSION_DENIED, message)
            role = role or who["role"]
            body = {"name": name, "role": role, "days": days}
            made = browser.api("POST", "/account/tokens", body, csrf=who["csrf_token"])
        finally:
            browser.leave()
    finally:
        browser.connection.close()
    return NewToken(user=who["user"], role=role, secret=made["secret"], id=made["id"], ends_at=made["ends_at"] or "")


class _Browser:
    def __init__(self, site: Site) -> None:
        self._site = site
        parts = urlsplit(site.url)
        self._origin = f"{parts.scheme}://{parts.netloc}"
        self._cookies: dict[str, str] = {}
        self.connection = SiteConnection(site)

    def enter(self, user: str, password: str) -> None:
        """Signs in."""
        form = self.connection.run(self._send("GET", "/sign-in"))
        found = _CSRF.search(form.body.decode("utf-8", "replace"))
        if form.status == _SEE_OTHER and form.headers.get("location", "").endswith("/first"):
            message = f"{self._site.url} has no administrator yet; open the one-time link of `toban user bootstrap`"
            raise TobanError(ErrorCode.UNAUTHENTICATED, message)
        if form.status != 200 or found is None:
            message = (
                f"{self._site.url}/sign-in has no form for passwords (status {form.status}); check the address, or make an API "
                "token on the account page of the site for `toban login --token -`"
            )
            raise TobanError(ErrorCode.CONFIG_INVALID, message)
        fields = {"csrf": found[1], "user": user, "password": password, "next": "/"}
        sent = self._send("POST", "/sign-in", urlencode(fields).encode(), {"Content-Type": _FORM})
        answer = self.connection.run(sent)
        if answer.status == _SEE_OTHER:
            return
        if answer.status == 429:
            seconds = answer.headers.get("retry-after", "some")
            message = f"too many sign-ins of {user} failed; wait {seconds} s"
            raise TobanError(ErrorCode.RESOURCE_EXHAUSTED, message)
        if answer.status == 401:
            message = f"user or password is wrong at {self._site.url}; without a password, use `toban login --token -`"
            raise TobanError(ErrorCode.UNAUTHENTICATED, message)
        message = f"{self._site.url} refused the sign-in with status {answer.status}; try it in a browser"
        raise TobanError(ErrorCode.UNAVAILABLE, message)

    def api(self, verb: str, path: str, body: Any = None, csrf: str = "") -> dict[str, Any]:
        """A request of the API for the session."""
        headers = {"X-CSRF-Token": csrf} if csrf else {}
        return dict(self.connection.run(self._json(self._send(verb, path, body, headers, is_page=False))))

    def leave(self) -> None:
        """Ends the session. It ends by itself later, should this fail."""
        try:
            csrf = self.api("GET", "/session")["csrf_token"]
            for session in self.api("GET", "/account/sessions")["sessions"]:
                if session["current"]:
                    self.api("DELETE", f"/account/sessions/{session['id']}", csrf=csrf)
        except TobanError:
            return

    def _json(self, sent: Flow[Reply]) -> Flow[Any]:
        reply = yield from sent
        return read_json(reply.status, reply.headers, reply.body)

    def _send(
        self, verb: str, path: str, body: Any = None, headers: Mapping[str, str] | None = None, *, is_page: bool = True
    ) -> Flow[Reply]:
        cookies = "; ".join(f"{name}={value}" for name, value in self._cookies.items())
        request = Request(
            method=verb,
            path=path,
            body=body,
            headers={"Origin": self._origin, **({"Cookie": cookies} if cookies else {}), **(headers or {})},
            timeout=SECONDS,
            repeatable=verb == "GET",
            is_page=is_page,
        )
        reply = yield from reply_to(request, self.connection.budget())
        for line in reply.headers.get("set-cookie", "").split("\n"):
            self._cookies |= {name: morsel.value for name, morsel in SimpleCookie(line).items()}
        return reply
