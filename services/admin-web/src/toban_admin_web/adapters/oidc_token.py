"""The token endpoint of the OpenID provider: a code becomes an ID token, which coordinators verify."""

from __future__ import annotations

from toban_admin_web.decide.oidc_request import Pending, error_name, token_request
from toban_admin_web.ports.people import OidcStart
from toban_domain.errors import ErrorCode, TobanError
from toban_domain.http_call import Request, parse_url
from toban_domain.version import VERSION
from toban_runtime.json_http import JsonHttp, JsonHttpError

REJECTED = "invalid_grant"


class TokenEndpoint:
    """`secret` is that of Toban at the provider; "" = a public client."""

    def __init__(self, *, http: JsonHttp, secret: str) -> None:
        self._http = http
        self._secret = secret

    def id_token(self, start: OidcStart, pending: Pending, code: str, *, host_header: str) -> str:
        """Raises UNAUTHENTICATED for a code that is not good, PROVIDER_UNAVAILABLE."""
        headers, body = token_request(
            code=code,
            pending=pending,
            client_id=start.client_id,
            secret=self._secret,
            in_body=start.secret_in_body,
            host_header=host_header,
        )
        try:
            target = parse_url(start.token_endpoint)
            answer = self._http.send(Request("POST", target, {**headers, "User-Agent": f"toban/{VERSION}"}, body))
        except (JsonHttpError, ValueError) as error:
            raise _unavailable(str(error)) from None
        token = answer.body.get("id_token")
        if answer.status == 200 and isinstance(token, str) and token:
            return token
        name = error_name(answer.body.get("error")) if answer.status != 200 else "no id_token"
        if name == REJECTED:
            raise TobanError(ErrorCode.UNAUTHENTICATED, "the provider refused the code: it was used, or is too old")
        raise _unavailable(f"{target.shown}: status {answer.status}, {name}")


def _unavailable(why: str) -> TobanError:
    return TobanError(ErrorCode.PROVIDER_UNAVAILABLE, f"the OpenID provider gave no ID token: {why}")
