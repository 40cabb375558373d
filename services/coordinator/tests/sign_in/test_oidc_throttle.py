"""Failed sign-ins with an OpenID provider make later ones wait: apart from passwords, and apart for each person."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from toban_coordinator.decide.people.sign_in import FREE
from toban_domain.errors import ErrorCode, TobanError
from toban_store.tx import tx
from toban_testing.oidc_provider import new_key

PASSWORD = "correct horse battery"
HERE = "192.0.2.1"


async def test_failures_are_throttled_by_address(world: Any) -> None:
    nonce = await world.nonce()
    bad = world.provider.token(nonce, aud="other")
    for _ in range(FREE + 1):
        await world.refused(bad, nonce)
    good = world.provider.token(nonce, groups=["all"])
    await world.refused(good, nonce, ErrorCode.RESOURCE_EXHAUSTED)
    assert (await world.oidc.finish(good, nonce, address="198.51.100.9")).person.name == "ada"


async def test_people_without_an_account_throttle_no_other_person_at_their_address(world: Any) -> None:
    """An office has one address."""
    for number in range(2 * FREE):
        nonce = await world.nonce()
        token = world.provider.token(nonce, sub=f"stranger-{number}", groups=[])
        await world.refused(token, nonce, ErrorCode.PERMISSION_DENIED)
    assert (await world.enter(groups=["all"])).person.name == "ada"
    assert (await world.sign_in.with_password("root", PASSWORD, address=HERE)).person.name == "root"
    # One of them alone waits after some tries, there.
    nonce = await world.nonce()
    token = world.provider.token(nonce, sub="stranger-0", groups=[])
    for _ in range(FREE):
        await world.refused(token, nonce, ErrorCode.PERMISSION_DENIED)
    await world.refused(token, nonce, ErrorCode.RESOURCE_EXHAUSTED)
    assert (await world.enter(groups=["all"])).person.name == "ada"
    with pytest.raises(TobanError, match="toban user link"):
        await world.oidc.finish(token, nonce, address="198.51.100.9")


async def test_wrong_passwords_throttle_no_person_of_the_provider(world: Any) -> None:
    for _ in range(FREE + 1):
        with pytest.raises(TobanError):
            await world.sign_in.with_password("root", "a wrong password", address=HERE)
    with pytest.raises(TobanError) as caught:
        await world.sign_in.with_password("root", PASSWORD, address=HERE)
    assert caught.value.code is ErrorCode.RESOURCE_EXHAUSTED
    assert (await world.enter(groups=["all"])).person.name == "ada"


async def test_tokens_without_a_good_signature_throttle_their_address(world: Any) -> None:
    nonce = await world.nonce()
    for _ in range(FREE + 1):
        await world.refused(world.provider.token(nonce, key=new_key("one")), nonce)
    good = world.provider.token(nonce, groups=["all"])
    await world.refused(good, nonce, ErrorCode.RESOURCE_EXHAUSTED)
    assert (await world.oidc.finish(good, nonce, address="198.51.100.9")).person.name == "ada"


async def test_people_of_one_address_sign_in_side_by_side(world: Any) -> None:
    nonces = [await world.nonce() for _ in range(3 * FREE)]
    tokens = [world.provider.token(one, sub=f"s-{at}", groups=["all"]) for at, one in enumerate(nonces)]
    made = await asyncio.gather(
        *(world.oidc.finish(token, nonce, address=HERE) for token, nonce in zip(tokens, nonces, strict=True))
    )
    assert len({one.person.name for one in made}) == 3 * FREE
    async with tx(world.pool) as t:
        assert await t.fetch_all("SELECT key FROM scheduler.sign_in_failures WHERE key LIKE 'OpenID%'") == []
