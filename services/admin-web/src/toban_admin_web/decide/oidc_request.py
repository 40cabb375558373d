"""What the site keeps and sends for a sign-in with an OpenID provider: code flow with PKCE. All of one sign-in is in a cookie of its browser."""

from __future__ import annotations

import base64
import binascii
import hmac
import json
import re
from dataclasses import dataclass
from hashlib import sha256
from urllib.parse import quote, urlencode

from toban_admin_web.decide.browser_safety import is_plain, local_path

OIDC = "oidc"
CALLBACK = "/sign-in/oidc/callback"
SECONDS = 600
MAX_NEXT, MAX_CODE = 1000, 4096
_VERIFIER = re.compile(r"[A-Za-z0-9_-]{43,128}")
_ERROR = re.compile(r"[a-z0-9_]{1,64}")


@dataclass(frozen=True, slots=True)
class Pending:
    """A sign-in that was started: the secret of PKCE, the nonce that a coordinator made, and the page to go on to."""

    verifier: str
    nonce: str
    next: str

    @property
    def state(self) -> str:
        """Comes back from the provider. The verifier signs it, so that it fits this cookie as a whole and no other."""
        text = json.dumps([self.nonce, self.next])
        return hmac.new(self.verifier.encode(), b"toban oidc state " + text.encode(), sha256).hexdigest()

    @property
    def challenge(self) -> str:
        """The form of the verifier that the provider gets first (S256)."""
        return base64.urlsafe_b64encode(sha256(self.verifier.encode()).digest()).decode().rstrip("=")

    def packed(self) -> str:
        """As the value of a cookie."""
        text = json.dumps([self.verifier, self.nonce, self.next], ensure_ascii=False)
        return base64.urlsafe_b64encode(text.encode("utf-8", "replace")).decode()


def unpack(cookie: str, state: str) -> Pending | None:
    """The sign-in of this browser; None when `state` is not of it."""
    try:
        found = json.loads(base64.urlsafe_b64decode(cookie.encode()))
    except (ValueError, binascii.Error, RecursionError):
        return None
    if not isinstance(found, list) or len(found) != 3 or not all(isinstance(one, str) for one in found):
        return None
    pending = Pending(found[0], found[1], local_path(found[2]))
    fits = _VERIFIER.fullmatch(pending.verifier) and hmac.compare_digest(pending.state.encode(), state.encode())
    return pending if fits else None


def short_path(path: str) -> str:
    """A page to go on to that fits the cookie, of which browsers keep 4 KiB."""
    return path if len(path.encode("utf-8", "replace")) <= MAX_NEXT else "/"


def redirect_uri(host_header: str) -> str:
    """Where the provider sends the browser back, by the name under which the site was asked."""
    return f"{'http' if is_plain(host_header) else 'https'}://{host_header}{CALLBACK}"


def authorization_url(endpoint: str, pending: Pending, *, client_id: str, scope: str, host_header: str) -> str:
    """Where the browser goes to sign in."""
    query = {
        "response_type": "code",
        "client_id": client_id,
        "redirect_uri": redirect_uri(host_header),
        "scope": scope,
        "state": pending.state,
        "nonce": pending.nonce,
        "code_challenge": pending.challenge,
        "code_challenge_method": "S256",
    }
    return f"{endpoint}{'&' if '?' in endpoint else '?'}{urlencode(query)}"


def token_request(
    *, code: str, pending: Pending, client_id: str, secret: str, in_body: bool, host_header: str
) -> tuple[dict[str, str], bytes]:
    """Headers and body of the exchange of a code. Without a secret PKCE alone shows that the code is ours."""
    form = {
        "grant_type": "authorization_code",
        "code": code,
        "redirect_uri": redirect_uri(host_header),
        "client_id": client_id,
        "code_verifier": pending.verifier,
    }
    headers = {"Content-Type": "application/x-www-form-urlencoded", "Accept": "application/json"}
    if secret and in_body:
        form["client_secret"] = secret
    elif secret:
        pair = f"{quote(client_id, safe='')}:{quote(secret, safe='')}"
        headers["Authorization"] = f"Basic {base64.b64encode(pair.encode()).decode()}"
    return headers, urlencode(form).encode()


def error_name(raw: object) -> str:
    """An error of the provider as it may be shown; "error" for anything that is no name."""
    return raw if isinstance(raw, str) and _ERROR.fullmatch(raw) else "error"
