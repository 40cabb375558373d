"""Bounds of sign-ins with an OpenID provider: steps of one address and of all, and steps that wait for the provider."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from toban_admin_web.decide.rate_limit import BURST_SECONDS
from toban_admin_web.views.people import oidc_limits
from toban_admin_web.views.people.oidc_limits import IN_ALL_PER_MINUTE, PER_MINUTE, OidcLimits
from toban_admin_web.views.view_context import EXTENSION
from toban_domain.errors import ErrorCode, TobanError
from toban_testing.clock import FakeClock
from toban_testing.oidc_provider import Provider, query_of

BURST = int(PER_MINUTE / 60 * BURST_SECONDS)
IN_ALL = int(IN_ALL_PER_MINUTE / 60 * BURST_SECONDS)


def fill(limits: OidcLimits, address: str, steps: int) -> int:
    """How many of the steps are allowed."""
    allowed = 0
    for _ in range(steps):
        try:
            with limits.step(address):
                allowed += 1
        except TobanError as error:
            assert error.code is ErrorCode.RESOURCE_EXHAUSTED and error.detail["retry_after_seconds"] >= 1
    return allowed


async def test_one_address_has_a_rate() -> None:
    clock = FakeClock()
    limits = OidcLimits(clock=clock, at_once=4)
    assert fill(limits, "192.0.2.1", BURST + 50) == BURST
    assert fill(limits, "192.0.2.2", 5) == 5
    # One host has all addresses of its /64.
    assert fill(limits, "2001:db8::1", BURST) == BURST and fill(limits, "2001:db8::ffff", 1) == 0
    await clock.advance(60)
    assert fill(limits, "192.0.2.1", BURST + 50) == BURST


def test_all_addresses_together_have_a_rate() -> None:
    limits = OidcLimits(clock=FakeClock(), at_once=4)
    # What is refused to one address is not taken from the others.
    assert fill(limits, "192.0.2.1", 10 * IN_ALL) == BURST
    assert sum(fill(limits, f"198.51.{one // 200}.{one % 200}", 1) for one in range(IN_ALL)) == IN_ALL - BURST


def test_a_bounded_number_of_addresses_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(oidc_limits, "KEPT", 3)
    limits = OidcLimits(clock=FakeClock(), at_once=4)
    assert fill(limits, "192.0.2.1", BURST) == BURST
    fill(limits, "192.0.2.2", 1)
    assert fill(limits, "192.0.2.1", 1) == 0
    for one in range(3, 6):
        fill(limits, f"192.0.2.{one}", 1)
    assert len(limits._buckets) == 3
    assert fill(limits, "192.0.2.1", 1) == 1


def test_a_step_that_ends_with_an_error_frees_its_place() -> None:
    limits = OidcLimits(clock=FakeClock(), at_once=1)
    with pytest.raises(OSError), limits.step("192.0.2.1"):
        raise OSError
    with limits.step("192.0.2.1"), pytest.raises(TobanError) as caught, limits.step("192.0.2.2"):
        pass
    assert caught.value.code is ErrorCode.PROVIDER_UNAVAILABLE
    assert fill(limits, "192.0.2.2", 1) == 1


@pytest.fixture
def provider() -> Any:
    made = Provider()
    made.start()
    yield made
    made.stop()


@pytest.fixture
def site(new_web: Any, provider: Provider) -> Any:
    web = new_web(oidc_client_secret=provider.secret, http_threads=4)
    web.client.delete_cookie("toban-session")
    web.cluster.accounts.provider = provider
    return web


def test_who_starts_too_many_sign_ins_waits(site: Any, provider: Provider) -> None:
    limits = OidcLimits(clock=FakeClock(), at_once=4)
    site.worker.app.extensions[EXTENSION] = replace(site.worker.context, oidc_limits=limits)
    url = site.get("/sign-in/oidc").headers["Location"]
    assert fill(limits, "127.0.0.1", BURST) == BURST - 1
    refused = site.get("/sign-in/oidc")
    assert refused.status_code == 429 and int(refused.headers["Retry-After"]) >= 1
    assert "Too many sign-ins are started from here" in refused.get_data(as_text=True)
    # An answer of the provider counts, too: anyone can make one that fits a cookie.
    callback = provider.grants_code(url).removeprefix("http://localhost")
    assert site.get(callback).status_code == 429
    assert "/token" not in provider.requests
    assert site.client.get("/sign-in/oidc", environ_base={"REMOTE_ADDR": "198.51.100.7"}).status_code == 303


def test_few_threads_wait_for_the_provider(site: Any, provider: Provider) -> None:
    url = site.get("/sign-in/oidc").headers["Location"]
    callback = provider.grants_code(url).removeprefix("http://localhost")
    with site.worker.context.oidc_limits.step("198.51.100.7"):
        for path in ("/sign-in/oidc", callback):
            refused = site.get(path)
            page = refused.get_data(as_text=True)
            assert refused.status_code == 503 and "1 sign-ins wait for a response already" in page
        assert 'name="password"' in site.page("/sign-in"), "passwords go on"
    assert query_of(url)["state"] and site.get("/sign-in/oidc").status_code == 303
