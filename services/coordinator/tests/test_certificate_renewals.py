"""Renewal of the certificates of machines, against PostgreSQL; the signer is a stand-in."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from itertools import pairwise
from typing import Any

import pytest

from toban_coordinator.app.executors.certificate_renewals import CertificateRenewals
from toban_coordinator.app.executors.invites import Invites
from toban_coordinator.ports.signer import Signed
from toban_domain.errors import ErrorCode, TobanError
from toban_observability.context import CALLER, Caller
from toban_observability.metrics import REGISTRY
from toban_runtime.clock import SystemClock
from toban_runtime.ids import IdSource
from toban_store.pool import Pool


class Signer:
    """Numbers what it signs."""

    def __init__(self) -> None:
        self.signed = 0
        self.life = timedelta(days=30)
        self.entered = asyncio.Semaphore(0)
        self.go = asyncio.Event()
        self.go.set()

    async def sign(self, request: bytes, *, group: str) -> Signed:
        self.entered.release()
        await self.go.wait()
        self.signed += 1
        return Signed(certificate=b"signed", serial=f"{self.signed:x}", ends_at=SystemClock().wall() + self.life)


@pytest.fixture
def signer() -> Signer:
    return Signer()


@pytest.fixture
def denied() -> set[int]:
    return set()


@pytest.fixture
def renewals(pool: Pool, signer: Signer, denied: set[int]) -> CertificateRenewals:
    return CertificateRenewals(pool=pool, signer=signer, denied=lambda: denied)


@pytest.fixture
async def joined(pool: Pool, signer: Signer) -> str:
    """The serial number of a machine that has joined."""
    invites = Invites(pool=pool, ids=IdSource(), signer=signer, coordinators=lambda: (), log_archivers=())
    _, token = await invites.add(group="", uses=0, valid_seconds=0, reason="", actor="ada")
    return (await invites.join(token, b"request", machine="m", address="192.0.2.7")).signed.serial


async def renew(renewals: CertificateRenewals, serial: str) -> str:
    CALLER.set(Caller("192.0.2.8", "executor"))
    signed = await renewals.renew(b"request", serial=serial, group="default", actor="certificate executor")
    return signed.serial


async def refused(work: Any, reason: str, code: ErrorCode = ErrorCode.PERMISSION_DENIED) -> str:
    """The message; the refusal was counted."""
    name, labels = "toban_certificate_renewals_refused_total", {"reason": reason}
    before = REGISTRY.get_sample_value(name, labels)
    with pytest.raises(TobanError) as caught:
        await work
    assert caught.value.code is code
    assert REGISTRY.get_sample_value(name, labels) == (before or 0) + 1
    return caught.value.message


async def age(sql: Any, days: float) -> None:
    """As if all that is there had been signed so much earlier."""
    await sql(
        "UPDATE scheduler.executor_certificates SET signed_at = signed_at - make_interval(secs => %s),"
        " ends_at = ends_at - make_interval(secs => %s)",
        days * 86400,
        days * 86400,
    )


async def test_a_machine_renews_again_and_again_and_each_is_recorded(
    renewals: CertificateRenewals, joined: str, sql: Any
) -> None:
    serials = [joined]
    for _ in range(2):
        await age(sql, 20)
        serials.append(await renew(renewals, serials[-1]))
    rows = await sql(
        "SELECT serial, parent, executor_group, invite, machine FROM scheduler.executor_certificates ORDER BY signed_at"
    )
    [(invite,)] = await sql("SELECT id FROM scheduler.executor_invites")
    parents = [None, *serials[:-1]]
    assert rows == [(serial, parent, "default", invite, "m") for serial, parent in zip(serials, parents, strict=True)]
    log = await sql(
        "SELECT actor, target, after->>'serial', address FROM scheduler.admin_action_log WHERE action = 'executor.renew' ORDER BY id"
    )
    assert log == [
        ("certificate executor", f"certificate {old} of executor group default", new, "192.0.2.8")
        for old, new in pairwise(serials)
    ]


async def test_of_a_copy_and_its_original_one_goes_on(renewals: CertificateRenewals, joined: str, sql: Any) -> None:
    await age(sql, 20)
    await renew(renewals, joined)
    await age(sql, 1)
    message = await refused(renew(renewals, joined), "renewed")
    assert "someone else may have its key" in message and f"toban audit list --target {joined}" in message


async def test_after_a_lost_answer_one_of_both_certificates_goes_on(
    renewals: CertificateRenewals, joined: str, sql: Any
) -> None:
    await age(sql, 20)
    lost, kept = await renew(renewals, joined), await renew(renewals, joined)
    await age(sql, 20)
    await renew(renewals, kept)
    await refused(renew(renewals, lost), "renewed")


async def test_two_renewals_at_the_same_time_do_not_both_go_on(
    renewals: CertificateRenewals, joined: str, sql: Any, signer: Signer
) -> None:
    """The signer signs for both before either counts."""
    await age(sql, 20)
    pair = [await renew(renewals, joined) for _ in range(2)]
    await age(sql, 20)
    signer.go.clear()
    signer.entered = asyncio.Semaphore(0)
    both = [asyncio.ensure_future(renew(renewals, one)) for one in pair]
    for _ in both:
        await signer.entered.acquire()
    signer.go.set()
    done = await asyncio.gather(*both, return_exceptions=True)
    assert sorted(type(one).__name__ for one in done) == ["TobanError", "str"]


async def test_what_was_denied_and_what_came_from_it_is_not_renewed(
    renewals: CertificateRenewals, joined: str, sql: Any, denied: set[int]
) -> None:
    await age(sql, 20)
    child = await renew(renewals, joined)
    await age(sql, 20)
    denied.add(int(joined, 16))
    assert f"{joined} is on the deny-list" in await refused(renew(renewals, child), "denied")


async def test_a_certificate_in_the_first_half_of_its_life_is_not_renewed(
    renewals: CertificateRenewals, joined: str, sql: Any, signer: Signer
) -> None:
    await age(sql, 14)
    await refused(renew(renewals, joined), "early", ErrorCode.RESOURCE_INVALID_STATE)
    assert signer.signed == 1


async def test_a_certificate_that_no_machine_got_by_joining_is_not_renewed(
    renewals: CertificateRenewals, signer: Signer
) -> None:
    assert "SCHEDULER_RENEW_CERTIFICATE" in await refused(renew(renewals, "abc"), "unknown")
    assert signer.signed == 0


async def test_those_that_are_over_for_a_month_go_when_none_that_came_from_them_is_good(
    renewals: CertificateRenewals, joined: str, sql: Any, signer: Signer
) -> None:
    async def kept() -> set[str]:
        return {row[0] for row in await sql("SELECT serial FROM scheduler.executor_certificates")}

    signer.life = timedelta(days=100)
    await age(sql, 20)
    child = await renew(renewals, joined)
    await age(sql, 70)
    grandchild = await renew(renewals, child)
    assert await kept() == {joined, child, grandchild}
    await age(sql, 55)
    last = await renew(renewals, grandchild)
    assert await kept() == {child, grandchild, last}
