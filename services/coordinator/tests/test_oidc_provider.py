"""Tokens and key sets of any form: each is verified or refused, and none is an unexpected error."""

from __future__ import annotations

import asyncio
import base64
import random
from collections.abc import Iterator
from typing import Any

import pytest
from joserfc import jwk, jws

from toban_coordinator.adapters.oidc_provider import HttpsOidcProvider, read_keys
from toban_domain.errors import ErrorCode, TobanError
from toban_runtime.json_http import JsonHttp
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
