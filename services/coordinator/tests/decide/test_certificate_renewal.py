"""Which certificates of machines may be renewed."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from toban_coordinator.decide.executors.certificate_renewal import LOST_ANSWER, MachineCertificate, refusal

SIGNED = datetime(2030, 1, 1, tzinfo=UTC)
HALF = SIGNED + timedelta(days=15)
CERTIFICATE = MachineCertificate(
    serial="c",
    invite=1,
    machine="m",
    signed_at=SIGNED,
    ends_at=SIGNED + timedelta(days=30),
    line=["c", "b", "a"],
    renewed_at=None,
    is_overtaken=False,
)
INSTANT = timedelta(microseconds=1)


def reason(certificate: MachineCertificate, now: datetime, *denied: int) -> str:
    found = refusal(certificate, denied, now)
    return found.reason if found else ""


def test_renewal_begins_in_the_last_half() -> None:
    assert reason(CERTIFICATE, HALF - INSTANT) == "early"
    assert reason(CERTIFICATE, HALF) == ""


def test_a_second_renewal_is_for_a_lost_answer_only() -> None:
    renewed = replace(CERTIFICATE, renewed_at=HALF)
    assert reason(renewed, HALF + LOST_ANSWER) == ""
    assert reason(renewed, HALF + LOST_ANSWER + INSTANT) == "renewed"


def test_of_two_renewals_of_one_certificate_one_goes_on() -> None:
    assert reason(replace(CERTIFICATE, is_overtaken=True), HALF) == "renewed"


@pytest.mark.parametrize("denied", [0xA, 0xB, 0xC])
def test_a_denied_certificate_ends_its_line(denied: int) -> None:
    assert reason(CERTIFICATE, HALF, denied) == "denied"
    assert reason(CERTIFICATE, HALF, 0xD) == ""
