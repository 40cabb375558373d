"""A browser without scripts for the site: cookies, redirects and forms; and one that a person has signed in with."""

import html
import re
import urllib.parse
import urllib.request
from http.client import HTTPResponse
from http.cookiejar import CookieJar

from toban_domain.errors import ErrorCode, TobanError
from toban_stack.stack import Stack
from toban_testing.accounts import add_user
from toban_testing.stack_fixtures import admin_of

USER, PASSWORD = "tester", "correct horse battery"
SECONDS = 60.0


class SiteClient:
    """One browser. A status of 400 and more raises urllib.error.HTTPError."""

    def __init__(self, address: str) -> None:
        self.base = f"http://{address}"
        self.cookies = CookieJar()
        self._opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(self.cookies))

    def open(self, path: str, **headers: str) -> HTTPResponse:
        """A response whose body is still to be read; names of headers have underscores."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        opened: HTTPResponse = self._opener.open(
            urllib.request.Request(self.base + path, headers=named), timeout=SECONDS
        )
        return opened

    def get(self, path: str, **headers: str) -> str:
        """The text of a page."""
        with self.open(path, **headers) as response:
            return response.read().decode()

    def submit(self, page: str, action: str, **fields: str) -> tuple[str, str]:
        """Sends the form of `page` that goes to `action`: where that led, and the text there."""
        return self.send(action, **{**self.hidden(page, action), **fields})

    def hidden(self, page: str, action: str) -> dict[str, str]:
        """The hidden fields of the form of `page` that is posted to `action`; none when there is no such form."""
        forms = re.findall(r"<form([^>]*)>(.*?)</form>", self.get(page), re.DOTALL)
        wanted = ('method="post"', f'action="{html.escape(action)}"')
        form = next((body for head, body in forms if all(one in head for one in wanted)), "")
        return dict(re.findall(r'type="hidden" name="(\w+)" value="([^"]*)"', form))

    def send(self, action: str, **fields: str) -> tuple[str, str]:
        """Sends a form with these fields: where that led, and the text there."""
        body = urllib.parse.urlencode(fields).encode()
        request = urllib.request.Request(self.base + action, data=body, headers={"Origin": self.base})
        with self._opener.open(request, timeout=SECONDS) as response:
            return response.url.removeprefix(self.base), response.read().decode()

    def sign_in(self, user: str = USER, password: str = PASSWORD) -> str:
        """The path of the page after it."""
        return self.submit("/sign-in", "/sign-in", user=user, password=password)[0]


def signed_in(stack: Stack, *, site: int = 0) -> SiteClient:
    """A browser at a site of the stack, signed in as an administrator that is made when it does not exist yet."""
    with admin_of(stack) as admin:
        try:
            add_user(admin, USER, "admin", password=PASSWORD)
        except TobanError as error:
            if error.code is not ErrorCode.ALREADY_EXISTS:
                raise
    browser = SiteClient(stack.sites[site])
    browser.sign_in()
    return browser
