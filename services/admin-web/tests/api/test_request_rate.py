"""The rate of requests: a bucket for each credential or address, named in the answers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from toban_admin_web.decide.rate_limit import BURST_SECONDS, Bucket, take

TOKEN = "toban_pat_" + f"{'viewer':0>32}"
OTHER = "toban_pat_" + f"{'admin':0>32}"
MORE = "toban_pat_" + f"{'more':0>32}"


def test_a_full_bucket_empties_and_fills_evenly() -> None:
    bucket, verdict = take(None, 100.0, per_minute=12)
    assert (verdict.allowed, verdict.limit, verdict.remaining, verdict.reset_seconds) == (True, 2, 1, 5)
    bucket, verdict = take(bucket, 100.0, per_minute=12)
    assert (verdict.allowed, verdict.remaining, verdict.retry_seconds) == (True, 0, 0)
    bucket, verdict = take(bucket, 101.0, per_minute=12)
    assert (verdict.allowed, verdict.retry_seconds) == (False, 4)
    bucket, verdict = take(bucket, 105.0, per_minute=12)
    assert verdict.allowed


@given(st.integers(1, 10_000), st.lists(st.floats(0, 30), max_size=60))
def test_never_more_than_the_burst_and_the_rate(per_minute: int, pauses: list[float]) -> None:
    now, allowed, bucket = 0.0, 0, None
    for pause in pauses:
        now += pause
        bucket, verdict = take(bucket, now, per_minute=per_minute)
        allowed += verdict.allowed
        assert 0 <= verdict.remaining <= verdict.limit
    assert allowed <= max(1, per_minute / 60 * BURST_SECONDS) + now * per_minute / 60 + 1e-6


def test_a_clock_that_stands_still_gives_nothing() -> None:
    assert not take(Bucket(0.5, 10.0), 9.0, per_minute=60)[1].allowed


def test_one_credential_does_not_use_up_what_another_has(new_web: Callable[..., Any], further: Any) -> None:
    client = new_web(api_rate=6).client
    client.delete_cookie("toban-session")

    def ask(token: str) -> Any:
        return client.get("/api/v1/jobs", headers={"Authorization": f"Bearer {token}"})

    first, second = ask(TOKEN), ask(TOKEN)
    assert (first.status_code, first.headers["RateLimit-Limit"], first.headers["RateLimit-Remaining"]) == (
        200,
        "1",
        "0",
    )
    assert second.status_code == 429 and second.json["code"] == "RESOURCE_EXHAUSTED"
    assert second.headers["Retry-After"] == "10" and second.headers["RateLimit-Reset"] == "10"
    assert [one[0] for one in further.calls] == ["ListJobs"]
    assert ask(OTHER).status_code == 200
    assert [client.get("/api/v1/openapi.json").status_code for _ in range(2)] == [200, 429]
    assert client.get("/api/v1/jobs").status_code == 429


def test_all_tokens_of_a_person_have_one_rate(new_web: Callable[..., Any], cluster: Any) -> None:
    client = new_web(api_rate=12).client
    cluster.accounts.sessions[MORE], cluster.accounts.bounds[MORE] = cluster.accounts.sessions[TOKEN], {}

    def ask(token: str) -> int:
        return int(client.get("/api/v1/session", headers={"Authorization": f"Bearer {token}"}).status_code)

    assert [ask(token) for token in (TOKEN, MORE, TOKEN, MORE)] == [200, 200, 429, 429]
    assert ask(OTHER) == 200


def test_made_up_tokens_are_counted_for_their_address_before_a_coordinator_is_asked(
    new_web: Callable[..., Any], cluster: Any, further: Any
) -> None:
    client = new_web(api_rate=12).client

    def ask(token: str) -> int:
        return int(client.get("/api/v1/jobs", headers={"Authorization": f"Bearer {token}"}).status_code)

    assert ask(TOKEN) == 200
    cluster.accounts.requests.clear()
    assert [ask(f"toban_pat_{number:0>32}") for number in range(4)] == [401, 401, 429, 429]
    assert len(cluster.accounts.requests) == 2
    client.set_cookie("toban-session", "ab" * 32)
    assert client.get("/api/v1/jobs").status_code == 429
    assert ask(TOKEN) == 200, "a token that was good before has a rate of its own"
    assert ask(OTHER) == 429, "a new one waits as long as its address is busy with made-up ones"


def test_a_good_token_does_not_use_the_rate_of_its_address(new_web: Callable[..., Any]) -> None:
    client = new_web(api_rate=12).client
    found = [
        client.get("/api/v1/session", headers={"Authorization": f"Bearer toban_pat_{role:0>32}"}).status_code
        for role in ("viewer", "operator", "editor", "admin")
    ]
    assert found == [200] * 4


def test_a_token_that_ended_counts_for_its_address(new_web: Callable[..., Any], cluster: Any) -> None:
    client = new_web(api_rate=12).client

    def ask() -> int:
        return int(client.get("/api/v1/session", headers={"Authorization": f"Bearer {TOKEN}"}).status_code)

    assert ask() == 200
    del cluster.accounts.sessions[TOKEN]
    assert [ask() for _ in range(3)] == [401, 401, 429]
