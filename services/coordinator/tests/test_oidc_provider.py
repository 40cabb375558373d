"""Tokens and key sets of any form: each is verified or refused, and none is an unexpected error."""

from __future__ import annotations

import asyncio
import base64
import random
import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from joserfc import jwk, jws

from toban_coordinator.adapters.oidc_provider import (
    FETCH_SECONDS,
    FRESH_SECONDS,
    MAX_WAITING,
    RETRY_SECONDS,
    HttpsOidcProvider,
    read_keys,
)
from toban_domain.errors import ErrorCode, TobanError
from toban_runtime.json_http import JsonHttp, JsonHttpError
from toban_testing.clock import FakeClock
from toban_testing.oidc_provider import Provider, new_key

SHORT_RSA = {"kty": "RSA", "n": base64.urlsafe_b64encode(b"\xc1" * 128).decode().rstrip("="), "e": "AQAB"}
HEADERS = [
    *("[]", '"x"', "1", "null", "{}", '{"alg": []}', '{"alg": null}', "[" * 300, "\xff"),
    *(
        '{"alg": "ES256"}',
        '{"alg": "ES256", "kid": ["one"]}',
        '{"alg": "ES256", "kid": 5}',
        '{"alg": "ES512", "kid": "one"}',
    ),
    *('{"alg": "RS256", "kid": "one"}', '{"alg": "ES256K", "kid": "one"}', '{"alg": "EdDSA", "kid": "one"}'),
    *('{"alg": "ES256", "kid": "one", "jwk": 5}', '{"alg": "ES256", "kid": "one", "typ": 5}'),
    '{"alg": "ES256", "kid": "one", "crit": ["b64"], "b64": false}',
]


@pytest.fixture
def provider() -> Iterator[Provider]:
    made = Provider()
    made.start()
    yield made
    made.stop()


@pytest.fixture
def verifier(provider: Provider) -> HttpsOidcProvider:
    return HttpsOidcProvider(issuer=provider.issuer, http=JsonHttp(), clock=FakeClock())


def by_hand(header: str, payload: str = "{}") -> str:
    parts = (header.encode("latin-1"), payload.encode(), b"x" * 64)
    return ".".join(base64.urlsafe_b64encode(part).decode().rstrip("=") for part in parts)


async def is_refused(verifier: HttpsOidcProvider, token: str) -> bool:
    try:
        await verifier.claims(token)
    except TobanError as error:
        return error.code is ErrorCode.UNAUTHENTICATED
    return False


@pytest.mark.parametrize("header", HEADERS)
async def test_headers_of_any_form_are_refused(verifier: HttpsOidcProvider, header: str) -> None:
    assert await is_refused(verifier, by_hand(header))


@pytest.mark.parametrize("payload", ["[1]", "nope", "[" * 400, ""])
async def test_a_signed_text_that_is_no_object_is_refused(
    verifier: HttpsOidcProvider, provider: Provider, payload: str
) -> None:
    header = {"alg": "ES256", "kid": "one"}
    assert await is_refused(verifier, jws.serialize_compact(header, payload, provider.key, algorithms=["ES256"]))


async def test_no_changed_character_passes(verifier: HttpsOidcProvider, provider: Provider) -> None:
    token = provider.token("n")
    claims, chance = await verifier.claims(token), random.Random(1)
    for _ in range(500):
        changed = list(token)
        changed[chance.randrange(len(token))] = chance.choice("abcXYZ019-_.é")
        text = "".join(changed)
        # The last character of a part has bits without a meaning.
        assert text == token or await is_refused(verifier, text) or await verifier.claims(text) == claims


@pytest.mark.parametrize(
    ("alg", "kind", "size"),
    [("RS256", "RSA", 2048), ("PS256", "RSA", 2048), ("ES512", "EC", "P-521"), ("Ed25519", "OKP", "Ed25519")],
)
async def test_every_kind_of_key(provider: Provider, alg: str, kind: Any, size: Any) -> None:
    provider.key = jwk.generate_key(kind, size, {"kid": "other"}, private=True)
    verifier = HttpsOidcProvider(issuer=provider.issuer, http=JsonHttp(), clock=FakeClock())
    assert (await verifier.claims(provider.token("n", header={"alg": alg})))["nonce"] == "n"


async def test_sign_ins_at_once_fetch_once(verifier: HttpsOidcProvider, provider: Provider) -> None:
    await asyncio.gather(*(verifier.claims(provider.token("n")) for _ in range(10)))
    assert provider.requests.count("/keys") == 1


@pytest.mark.filterwarnings("ignore:Key size should be")
def test_keys_that_cannot_sign_are_left_out() -> None:
    good = new_key("one")
    public = good.as_dict(private=False)
    useless = [1, None, "x", [], {}, {"kty": "RSA"}, {"kty": "oct", "k": "aGVsbG8"}, {"kty": "AKP"}, SHORT_RSA]
    found = read_keys({"keys": [*useless, {**public, "use": "enc"}, good.as_dict(private=True), public]})
    assert [key.kid for key in found] == ["one"]
    for wrong in ({}, {"keys": {}}, {"keys": useless}):
        with pytest.raises(ValueError, match="no public key"):
            read_keys(wrong)


class SilentHttp(JsonHttp):
    """Every request waits until `over`, and ends without a response."""

    def __init__(self) -> None:
        super().__init__()
        self.over, self.asked = threading.Event(), threading.Event()
        self.seconds: list[float | None] = []

    def send(self, request: Any, *, seconds: float | None = None) -> Any:
        self.seconds.append(seconds)
        self.asked.set()
        self.over.wait(30)
        raise JsonHttpError("no response")


@pytest.fixture
def silent() -> Iterator[SilentHttp]:
    made = SilentHttp()
    yield made
    made.over.set()


async def unavailable(verifier: HttpsOidcProvider) -> str:
    with pytest.raises(TobanError) as caught:
        await verifier.endpoints()
    assert caught.value.code is ErrorCode.PROVIDER_UNAVAILABLE
    return caught.value.message


async def test_few_sign_ins_wait_for_a_provider_that_does_not_respond(silent: SilentHttp) -> None:
    clock = FakeClock()
    verifier = HttpsOidcProvider(issuer="https://id.example.com", http=silent, clock=clock)
    waiting = [asyncio.create_task(unavailable(verifier)) for _ in range(MAX_WAITING)]
    await asyncio.to_thread(silent.asked.wait, 30)
    assert f"{MAX_WAITING} sign-ins wait" in await unavailable(verifier)
    assert not any(one.done() for one in waiting)
    await clock.advance(FETCH_SECONDS)
    silent.over.set()
    assert {one.endswith("no response") for one in await asyncio.gather(*waiting)} == {True}
    # The next one is told at once: the time counts from the end of a fetch, which may last as long.
    assert (await unavailable(verifier)).endswith("no response") and silent.seconds == [FETCH_SECONDS]
    await clock.advance(RETRY_SECONDS)
    await unavailable(verifier)
    assert len(silent.seconds) == 2


async def test_a_fetch_goes_on_when_the_call_that_began_it_ends(provider: Provider) -> None:
    http = SilentHttp()
    real = JsonHttp()

    def send(request: Any, *, seconds: float | None = None) -> Any:
        http.asked.set()
        http.over.wait(30)
        return real.send(request, seconds=seconds)

    http.send = send  # type: ignore[method-assign]
    verifier = HttpsOidcProvider(issuer=provider.issuer, http=http, clock=FakeClock())
    first, second = (asyncio.create_task(verifier.endpoints()) for _ in range(2))
    await asyncio.to_thread(http.asked.wait, 30)
    first.cancel()
    http.over.set()
    assert (await second).token == f"{provider.issuer}/token"
    assert provider.requests.count("/keys") == 1


async def test_with_known_keys_those_beyond_the_bound_go_on(provider: Provider) -> None:
    http, clock = SilentHttp(), FakeClock()
    known = HttpsOidcProvider(issuer=provider.issuer, http=JsonHttp(), clock=clock)
    await known.endpoints()
    known._http = http
    await clock.advance(FRESH_SECONDS)
    waiting = [asyncio.create_task(known.endpoints()) for _ in range(MAX_WAITING)]
    await asyncio.to_thread(http.asked.wait, 30)
    assert (await known.endpoints()).token and not any(one.done() for one in waiting)
    http.over.set()
    assert len(await asyncio.gather(*waiting)) == MAX_WAITING


@pytest.mark.parametrize("methods", [7, "client_secret_post", {}, None])
async def test_methods_that_are_no_list(provider: Provider, methods: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    http = JsonHttp()
    real = http.send

    def send(request: Any, *, seconds: float | None = None) -> Any:
        found = real(request, seconds=seconds)
        return replace(found, body={**found.body, "token_endpoint_auth_methods_supported": methods})

    monkeypatch.setattr(http, "send", send)
    verifier = HttpsOidcProvider(issuer=provider.issuer, http=http, clock=FakeClock())
    assert not (await verifier.endpoints()).secret_in_body
