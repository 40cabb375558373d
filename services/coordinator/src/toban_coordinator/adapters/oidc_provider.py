"""The OpenID provider over HTTPS: discovery document and keys, kept for a while, and the signatures of ID tokens."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from joserfc import jwk, jws
from joserfc.errors import JoseError

from toban_coordinator.decide.people.oidc import ALGORITHMS, LONGEST_TOKEN
from toban_coordinator.ports.oidc import Endpoints
from toban_domain.errors import ErrorCode, TobanError
from toban_domain.http_call import Request
from toban_domain.oidc import parse_endpoint
from toban_domain.version import VERSION
from toban_observability.logs import get_logger
from toban_runtime.clock import Clock
from toban_runtime.json_http import JsonHttp, JsonHttpError

# Seconds. Documents are fetched again after the first, and used for the second when the provider does not answer then.
FRESH_SECONDS, STALE_SECONDS = 3600.0, 86400.0
# The least time between the end of a fetch and the next one: after a failure, and for a key that is not known.
RETRY_SECONDS, UNKNOWN_KEY_SECONDS = 5.0, 60.0
# How long a fetch of both documents may take, and how many sign-ins wait for it at a time.
FETCH_SECONDS = 5.0
MAX_WAITING = 32
MAX_KEYS = 64
_MIN_RSA_BITS = 2048
# By the beginning of an algorithm.
_KEY_TYPES = {"RS": "RSA", "PS": "RSA", "ES": "EC", "Ed": "OKP"}
_DISCOVERY = "/.well-known/openid-configuration"
_log = get_logger(__name__)

Key = jwk.RSAKey | jwk.ECKey | jwk.OKPKey


@dataclass(frozen=True, slots=True, kw_only=True)
class _Known:
    """What the provider said, and when."""

    endpoints: Endpoints
    keys: Sequence[Key]
    at: float


class HttpsOidcProvider:
    """`OidcProvider` by its issuer. One fetch at a time, in a thread of its own: some sign-ins wait for it, at most FETCH_SECONDS, other calls
    do not."""

    def __init__(self, *, issuer: str, http: JsonHttp, clock: Clock) -> None:
        self._issuer = issuer
        self._http = http
        self._clock = clock
        self._plain = parse_endpoint(issuer).scheme == "http"
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="oidc")
        self._fetching: asyncio.Task[None] | None = None
        self._waiting = 0
        self._known: _Known | None = None
        self._tried_at = float("-inf")
        self._failure = ""
        # The token is bounded before; its header and payload have no further limits.
        self._registry = jws.JWSRegistry(algorithms=list(ALGORITHMS), strict_check_header=False)

    async def endpoints(self) -> Endpoints:
        """From the discovery document."""
        return (await self._current()).endpoints

    async def claims(self, id_token: str) -> Mapping[str, Any]:
        """The claims of a token that a key of the provider signed. Raises UNAUTHENTICATED, PROVIDER_UNAVAILABLE."""
        known = await self._current()
        header, signed = self._read(id_token)
        keys = _fitting(known.keys, header)
        if not keys and self._clock.monotonic() - self._tried_at >= UNKNOWN_KEY_SECONDS:
            # The provider may have new keys; without an answer the ones we have still count.
            known = await self._fetched(at_least=UNKNOWN_KEY_SECONDS)
            keys = _fitting(known.keys, header)
        if len(keys) != 1:
            raise _refused("the provider has no key for it" if not keys else "several keys of the provider fit it")
        # Microseconds to a millisecond: not worth a thread.
        try:
            good = jws.validate_compact(signed, keys[0], registry=self._registry)
        except (JoseError, ValueError):
            good = False
        if not good:
            raise _refused("its signature is not of the provider")
        return _claims(signed.payload)

    async def _current(self) -> _Known:
        now, known = self._clock.monotonic(), self._known
        if known is not None and now - known.at < FRESH_SECONDS:
            return known
        return await self._fetched(at_least=RETRY_SECONDS)

    async def _fetched(self, *, at_least: float) -> _Known:
        """Fetches unless that was tried within `at_least` seconds; what is known is used on when it fails, or when too many wait for it."""
        if self._fetching is None and self._clock.monotonic() - self._tried_at >= at_least:
            self._fetching = asyncio.create_task(self._fetch())
        failure = self._failure
        if self._fetching is not None and self._waiting >= MAX_WAITING:
            failure = f"{MAX_WAITING} sign-ins wait for its response already; try again in some seconds"
        elif self._fetching is not None:
            self._waiting += 1
            try:
                # It is of all that wait: it goes on when the call of one of them ends.
                await asyncio.shield(self._fetching)
            finally:
                self._waiting -= 1
            failure = self._failure
        if self._known is None or self._clock.monotonic() - self._known.at >= STALE_SECONDS:
            raise TobanError(ErrorCode.PROVIDER_UNAVAILABLE, f"the OpenID provider is not available: {failure}")
        return self._known

    async def _fetch(self) -> None:
        try:
            run = asyncio.get_running_loop().run_in_executor
            endpoints, jwks = await run(self._thread, self._download)
            self._known = _Known(endpoints=endpoints, keys=read_keys(jwks), at=self._clock.monotonic())
        except (JsonHttpError, ValueError) as error:
            self._failure = str(error)
            _log.warning("OpenID provider did not give its configuration", issuer=self._issuer, error=str(error))
        finally:
            self._tried_at = self._clock.monotonic()
            self._fetching = None

    def _download(self) -> tuple[Endpoints, Mapping[str, Any]]:
        ends_at = self._clock.monotonic() + FETCH_SECONDS
        found = self._get(self._issuer.removesuffix("/") + _DISCOVERY, FETCH_SECONDS)
        if found.get("issuer") != self._issuer:
            shown = str(found.get("issuer"))[:200]
            raise ValueError(f"its discovery document is of the issuer {shown}; set SCHEDULER_OIDC_ISSUER to that")
        urls = [str(found.get(f"{name}", "")) for name in ("authorization_endpoint", "token_endpoint", "jwks_uri")]
        for url in urls:
            if parse_endpoint(url).scheme == "http" and not self._plain:
                raise ValueError("its discovery document has an address without https")
        methods = found.get("token_endpoint_auth_methods_supported")
        in_body = isinstance(methods, list) and "client_secret_basic" not in methods and "client_secret_post" in methods
        jwks = self._get(urls[2], max(0.1, ends_at - self._clock.monotonic()))
        return Endpoints(authorization=urls[0], token=urls[1], secret_in_body=in_body), jwks

    def _get(self, url: str, seconds: float) -> Mapping[str, Any]:
        headers = {"Accept": "application/json", "User-Agent": f"toban/{VERSION}"}
        answer = self._http.send(Request("GET", parse_endpoint(url), headers), seconds=seconds)
        if answer.status != 200:
            raise JsonHttpError(f"{url}: status {answer.status}")
        return answer.body

    def _read(self, id_token: str) -> tuple[Mapping[str, Any], jws.CompactSignature]:
        if len(id_token) > LONGEST_TOKEN:
            raise _refused(f"it is longer than {LONGEST_TOKEN // 1024} KiB")
        try:
            signed = jws.extract_compact(id_token.encode(), registry=self._registry)
        except (JoseError, ValueError, RecursionError):
            raise _refused("it is no signed token") from None
        header = signed.headers()
        if header.get("alg") not in ALGORITHMS:
            raise _refused("its algorithm is not allowed")
        if "crit" in header or "b64" in header:
            raise _refused("it has an extension that is not known here")
        return header, signed


def read_keys(jwks: Mapping[str, Any]) -> list[Key]:
    """The keys of a set that can sign; others, and those that are not understood, are left out. Raises ValueError without any."""
    listed = jwks.get("keys")
    keys: list[Key] = []
    for entry in listed[:MAX_KEYS] if isinstance(listed, list) else []:
        if not isinstance(entry, dict) or entry.get("kty") not in _KEY_TYPES.values():
            continue
        try:
            key = jwk.import_key(entry)
        except (JoseError, ValueError, TypeError, KeyError, AttributeError):
            continue
        if not isinstance(key, Key) or key.is_private or entry.get("use", "sig") != "sig":
            continue
        if not isinstance(key, jwk.RSAKey) or key.raw_value.key_size >= _MIN_RSA_BITS:
            keys.append(key)
    if not keys:
        raise ValueError("its key set has no public key for signatures")
    return keys


def _fitting(keys: Sequence[Key], header: Mapping[str, Any]) -> list[Key]:
    """Keys that can have signed a token with this header, by its own id of the key only."""
    kid, alg = header.get("kid"), str(header.get("alg"))
    kind = _KEY_TYPES[alg[:2]]
    return [
        key
        for key in keys
        if key.key_type == kind and key.get("alg", alg) == alg and (kid is None or key.get("kid") == kid)
    ]


def _claims(payload: bytes | None) -> Mapping[str, Any]:
    try:
        claims = json.loads(payload or b"")
    except (ValueError, RecursionError):
        claims = None
    if not isinstance(claims, dict):
        raise _refused("its content is no JSON object")
    return claims


def _refused(why: str) -> TobanError:
    return TobanError(ErrorCode.UNAUTHENTICATED, f"the ID token is refused: {why}")
