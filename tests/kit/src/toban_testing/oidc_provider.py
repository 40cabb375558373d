"""An OpenID provider on loopback, from the server half of Authlib: discovery, keys, authorization code with PKCE. A person signs in by a click."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit
from urllib.request import HTTPRedirectHandler, Request, build_opener

from authlib.integrations.flask_oauth2 import AuthorizationServer
from authlib.oauth2.rfc6749 import ClientMixin, grants
from authlib.oauth2.rfc7636 import CodeChallenge
from authlib.oidc.core.grants import OpenIDCode
from flask import Flask, Response, jsonify, request
from joserfc import jwk, jwt
from werkzeug.serving import WSGIRequestHandler, make_server

from toban_runtime.clock import SystemClock

CLIENT, SECRET = "toban", "a secret of the provider's client"
_clock = SystemClock()


@dataclass
class _Client(ClientMixin):
    """The one client. `secret` "" = a public one."""

    secret: str

    def get_client_id(self) -> str:
        return CLIENT

    def get_default_redirect_uri(self) -> str:
        return ""

    def get_allowed_scope(self, scope: str) -> str:
        return scope

    def check_redirect_uri(self, redirect_uri: str) -> bool:
        return urlsplit(redirect_uri).path == "/sign-in/oidc/callback"

    def check_client_secret(self, client_secret: str) -> bool:
        return client_secret == self.secret

    def check_endpoint_auth_method(self, method: str, endpoint: str) -> bool:
        return method == ("client_secret_basic" if self.secret else "none")

    def check_response_type(self, response_type: str) -> bool:
        return response_type == "code"

    def check_grant_type(self, grant_type: str) -> bool:
        return grant_type == "authorization_code"


@dataclass
class _Code:
    """A code that was given out."""

    code: str
    redirect_uri: str
    scope: str
    nonce: str
    code_challenge: str
    code_challenge_method: str
    user: Mapping[str, Any]

    def get_redirect_uri(self) -> str:
        return self.redirect_uri

    def get_scope(self) -> str:
        return self.scope

    def get_nonce(self) -> str:
        return self.nonce

    def get_auth_time(self) -> int:
        return int(_clock.wall().timestamp())

    def get_acr(self) -> None:
        return None

    def get_amr(self) -> None:
        return None


@dataclass
class Provider:
    """`user` are the claims of who signs in next. `refuses` = that person says no. `down` = every request gets 503.

    `claims` replaces claims of ID tokens. Keys may be replaced, and `requests` has the path of every request.
    """

    secret: str = SECRET
    user: dict[str, Any] = field(
        default_factory=lambda: {"sub": "subject-1", "preferred_username": "ada", "groups": []}
    )
    claims: dict[str, Any] = field(default_factory=dict)
    refuses: bool = False
    down: bool = False
    issuer: str = ""
    requests: list[str] = field(default_factory=list)
    key: Any = field(default_factory=lambda: new_key("one"))
    codes: dict[str, _Code] = field(default_factory=dict)

    def start(self) -> None:
        """Serves on a free port until `stop`."""
        self._server = make_server("127.0.0.1", 0, self._app(), threaded=True, request_handler=_Silent)
        self.issuer = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Ends the server."""
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def token(self, nonce: str, *, key: Any = None, header: Mapping[str, Any] | None = None, **claims: Any) -> str:
        """An ID token of `user`; `claims` replace its claims, None leaves one out."""
        now = int(_clock.wall().timestamp())
        said = {"iss": self.issuer, "aud": CLIENT, "iat": now, "exp": now + 300, "nonce": nonce, **self.user, **claims}
        used = key or self.key
        headers = {"alg": "ES256", "kid": used.kid, **(header or {})}
        algorithms = [headers["alg"]]
        return jwt.encode(headers, {name: value for name, value in said.items() if value is not None}, used, algorithms)

    def grants_code(self, url: str) -> str:
        """Where the provider sends the browser that went to `url`."""
        opened = build_opener(_NoRedirect()).open(Request(url), timeout=30)
        return str(opened.headers["Location"])

    def _app(self) -> Flask:
        app = Flask("provider")
        client = _Client(self.secret)
        server = AuthorizationServer(
            app, query_client=lambda name: client if name == CLIENT else None, save_token=_keep_nothing
        )
        server.register_grant(_grant(self), [CodeChallenge(required=True), _id_tokens(self)])

        def admit() -> Response | None:
            self.requests.append(request.path)
            return Response("down", 503) if self.down else None

        def configuration() -> Response:
            return jsonify(
                issuer=self.issuer,
                authorization_endpoint=f"{self.issuer}/authorize",
                token_endpoint=f"{self.issuer}/token",
                jwks_uri=f"{self.issuer}/keys",
                token_endpoint_auth_methods_supported=["client_secret_basic" if self.secret else "none"],
            )

        def authorize() -> Any:
            user = None if self.refuses else dict(self.user)
            grant = server.get_consent_grant(end_user=user)
            return server.create_authorization_response(grant_user=user, grant=grant)

        app.before_request(admit)
        app.add_url_rule("/.well-known/openid-configuration", "configuration", configuration)
        app.add_url_rule("/keys", "keys", lambda: jsonify(keys=[{**self.key.as_dict(private=False), "use": "sig"}]))
        app.add_url_rule("/authorize", "authorize", authorize)
        app.add_url_rule("/token", "token", server.create_token_response, methods=["POST"])
        return app


def new_key(kid: str) -> Any:
    """A key that signs tokens."""
    return jwk.generate_key("EC", "P-256", {"kid": kid}, private=True)


def query_of(url: str) -> dict[str, str]:
    """The parameters of an address."""
    return {name: values[0] for name, values in parse_qs(urlsplit(url).query).items()}


def with_query(url: str, **changed: str) -> str:
    """The address with other parameters."""
    return f"{url.partition('?')[0]}?{urlencode({**query_of(url), **changed})}"


class _Silent(WSGIRequestHandler):
    def log(self, *_: Any) -> None:
        """Requests are kept in `Provider.requests`."""


class _NoRedirect(HTTPRedirectHandler):
    def redirect_request(self, *_: Any, **__: Any) -> None:
        return None

    def http_error_302(self, req: Any, fp: Any, code: int, msg: str, headers: Any) -> Any:
        return fp


def _keep_nothing(*_: Any) -> None:
    """Access tokens are of no use here."""


def _grant(provider: Provider) -> type[grants.AuthorizationCodeGrant]:
    class Grant(grants.AuthorizationCodeGrant):
        TOKEN_ENDPOINT_AUTH_METHODS = ["client_secret_basic", "none"]

        def save_authorization_code(self, code: str, request: Any) -> None:
            data = request.payload.data
            provider.codes[code] = _Code(
                code,
                request.payload.redirect_uri,
                request.payload.scope,
                data["nonce"],
                data["code_challenge"],
                data["code_challenge_method"],
                request.user,
            )

        def query_authorization_code(self, code: str, client: Any) -> _Code | None:
            return provider.codes.get(code)

        def delete_authorization_code(self, authorization_code: _Code) -> None:
            provider.codes.pop(authorization_code.code)

        def authenticate_user(self, authorization_code: _Code) -> Mapping[str, Any]:
            return authorization_code.user

    return Grant


def _id_tokens(provider: Provider) -> OpenIDCode:
    class IdTokens(OpenIDCode):
        def exists_nonce(self, nonce: str, request: Any) -> bool:
            return False

        def encode_id_token(self, token: Any, request: Any) -> str:
            return provider.token(request.authorization_code.nonce, **provider.claims)

    return IdTokens()
