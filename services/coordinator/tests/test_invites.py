"""Invites and the machines that join with them, against PostgreSQL; the signer is a stand-in."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Any

import pytest

from toban_coordinator.app.executors.invites import TOKEN_PREFIX, Invites
from toban_coordinator.app.executors.operations_groups import GroupChange, GroupOperations
from toban_coordinator.ports.signer import Signed
from toban_domain.errors import ErrorCode, TobanError
from toban_runtime.ids import IdSource
from toban_store.pool import Pool
from toban_store.tx import autocommit

ENDS_AT = datetime(2031, 1, 1, tzinfo=UTC)


class Signer:
    """Signs with a text."""

    def __init__(self) -> None:
        self.signed: list[tuple[bytes, str]] = []
        self.error: TobanError | None = None
        self.entered = asyncio.Semaphore(0)
        self.go = asyncio.Event()
        self.go.set()

    async def sign(self, request: bytes, *, group: str) -> Signed:
        self.entered.release()
        await self.go.wait()
        if self.error is not None:
            raise self.error
        self.signed.append((request, group))
        return Signed(certificate=b"signed", serial=f"{len(self.signed):x}", ends_at=ENDS_AT)


@pytest.fixture
def signer() -> Signer:
    return Signer()


@pytest.fixture
def invites(pool: Pool, signer: Signer) -> Invites:
    return Invites(pool=pool, ids=IdSource(), signer=signer, coordinators=lambda: ("c:1",), log_archivers=("l:1",))


async def add(invites: Invites, **given: Any) -> tuple[Any, str]:
    return await invites.add(**{"group": "", "uses": 0, "valid_seconds": 0, "reason": "", "actor": "ada", **given})


async def join(invites: Invites, token: str, machine: str = "m") -> Any:
    return await invites.join(token, b"request", machine=machine, address="192.0.2.7")


async def refused(work: Any, code: ErrorCode) -> str:
    with pytest.raises(TobanError) as caught:
        await work
    assert caught.value.code is code
    return caught.value.message


async def rows(pool: Pool, sql: str) -> list[Any]:
    async with autocommit(pool) as t:
        return [tuple(row.values()) for row in await t.fetch_all(sql)]


async def test_an_invite_is_good_for_as_many_machines_as_it_says(invites: Invites, signer: Signer) -> None:
    made, token = await add(invites, uses=2)
    assert token.startswith(TOKEN_PREFIX) and len(token) == len(TOKEN_PREFIX) + 64
    assert (made.group, made.uses, made.used, made.status) == ("default", 2, 0, "good")
    joined = await join(invites, token, "a")
    assert (joined.signed.certificate, joined.group, joined.coordinators, joined.log_archivers) == (
        b"signed",
        "default",
        ("c:1",),
        ("l:1",),
    )
    await join(invites, token, " b \n")
    assert "used, removed or past its end" in await refused(join(invites, token), ErrorCode.UNAUTHENTICATED)
    [listed] = await invites.list()
    assert (listed.used, listed.status, listed.last_machine) == (2, "used", "b")
    assert signer.signed == [(b"request", "default")] * 2


async def test_only_its_hash_is_stored_and_all_is_in_the_audit_log(invites: Invites, pool: Pool) -> None:
    made, token = await add(invites, reason="new rack")
    await join(invites, token, "a")
    await invites.remove(made.id, reason="done", actor="ada")
    stored = await rows(pool, "SELECT secret_hash::text FROM scheduler.executor_invites")
    assert token not in str(stored)
    log = await rows(
        pool,
        "SELECT actor, action, target, reason, after->>'serial' FROM scheduler.admin_action_log WHERE target LIKE 'invite%' ORDER BY id",
    )
    target = f"invite {made.id} of executor group default"
    assert log == [
        ("ada", "invite.add", target, "new rack", None),
        (f"invite {made.id}", "executor.join", target, "", "1"),
        ("ada", "invite.remove", target, "done", None),
    ]


async def test_the_end_removal_and_a_wrong_token(invites: Invites, pool: Pool) -> None:
    await refused(join(invites, TOKEN_PREFIX + "0" * 64), ErrorCode.UNAUTHENTICATED)
    made, token = await add(invites)
    await rows(pool, "UPDATE scheduler.executor_invites SET ends_at = now() RETURNING id")
    await refused(join(invites, token), ErrorCode.UNAUTHENTICATED)
    assert [one.status for one in await invites.list()] == ["ended"]
    await invites.remove(made.id, reason="", actor="ada")
    assert f"there is no invite {made.id}" in await refused(
        invites.remove(made.id, reason="", actor="ada"), ErrorCode.NOT_FOUND
    )
    made, token = await add(invites)
    await invites.remove(made.id, reason="", actor="ada")
    await refused(join(invites, token), ErrorCode.UNAUTHENTICATED)


async def test_two_machines_do_not_share_the_last_use(invites: Invites, signer: Signer) -> None:
    """Both are signed for before either takes it; one of them gets nothing."""
    _, token = await add(invites)
    signer.go.clear()
    both = [asyncio.ensure_future(join(invites, token, name)) for name in ("a", "b")]
    for _ in both:
        await signer.entered.acquire()
    signer.go.set()
    done = await asyncio.gather(*both, return_exceptions=True)
    assert len(signer.signed) == 2
    assert sorted(type(one).__name__ for one in done) == ["Joined", "TobanError"]
    [listed] = await invites.list()
    assert (listed.used, listed.uses) == (1, 1)


async def test_a_use_counts_only_when_the_certificate_was_signed(invites: Invites, signer: Signer) -> None:
    _, token = await add(invites)
    signer.error = TobanError(ErrorCode.UNAVAILABLE, "the signer is away")
    await refused(join(invites, token), ErrorCode.UNAVAILABLE)
    signer.error = None
    assert (await join(invites, token)).group == "default"


@pytest.mark.parametrize("machine", ["a\0b", "a\nb", "a\x1b[2J", "x" * 201])
async def test_a_name_that_no_machine_has_is_refused_before_anything_is_signed(
    machine: str, invites: Invites, signer: Signer
) -> None:
    _, token = await add(invites)
    assert "200 printable characters" in await refused(join(invites, token, machine), ErrorCode.INVALID_ARGUMENT)
    assert not signer.signed
    await join(invites, token, "x" * 200)


async def test_an_invite_ends_with_its_group(invites: Invites, signer: Signer, pool: Pool) -> None:
    groups = GroupOperations(pool=pool)
    change = GroupChange(name="pci", labels={}, claims=(), create=True)
    await groups.set(change, "ada")
    _, token = await add(invites, group="pci", uses=2)
    _, other = await add(invites)
    signer.go.clear()
    signing = asyncio.ensure_future(join(invites, token))
    await signer.entered.acquire()
    await groups.remove("pci", reason="", actor="ada")
    signer.go.set()
    await refused(signing, ErrorCode.UNAUTHENTICATED)
    await groups.set(change, "ada")
    await refused(join(invites, token), ErrorCode.UNAUTHENTICATED)
    assert (await join(invites, other)).group == "default"


async def test_what_is_asked_for_wrongly(invites: Invites) -> None:
    assert "toban group list" in await refused(add(invites, group="pci"), ErrorCode.NOT_FOUND)
    for given in ({"uses": 1001}, {"uses": -1}, {"valid_seconds": 59}, {"valid_seconds": 8 * 86400}):
        assert "1 to 1000 uses" in await refused(add(invites, **given), ErrorCode.INVALID_ARGUMENT)


async def test_those_that_are_over_for_a_month_go_with_the_next_one(invites: Invites, pool: Pool) -> None:
    await add(invites)
    await rows(pool, "UPDATE scheduler.executor_invites SET ends_at = now() - interval '31 days' RETURNING id")
    made, _ = await add(invites)
    assert [one.id for one in await invites.list()] == [made.id]
