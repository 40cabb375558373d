"""A kubernetes step as its cluster gets it: what is allowed, names, labels, deadlines."""

import pytest

from toban_domain.outcome import AttemptKey
from toban_executor.decide.kubernetes_job import (
    NotAllowedError,
    deadline_seconds,
    is_earlier,
    job_name,
    labels,
    parse_access,
    should_extend,
)

MARKS = {"owner": "toban", "attempt": 1, "step": 0, "incarnation": "i"}


@pytest.mark.parametrize(
    ("images", "image", "allowed"),
    [
        ("registry.example.com/team/*", "registry.example.com/team/a:1", True),
        ("registry.example.com/team/*", "registry.example.com/teams/a:1", False),
        ("registry.example.com/team/*", "evil.example.com/registry.example.com/team/a", False),
        ("a:1, b:*", "b:2", True),
        ("a.b:1", "axb:1", False),
        ("*", "anything", True),
    ],
)
def test_images(images: str, image: str, allowed: bool) -> None:
    access = parse_access(owner="toban", namespaces="n", images=images, service_accounts="")
    if allowed:
        assert access.namespace({"image": image}) == "n"
    else:
        with pytest.raises(NotAllowedError, match="SCHEDULER_KUBERNETES_IMAGES"):
            access.namespace({"image": image})


def test_a_name_is_that_of_one_dispatch() -> None:
    one = labels(key=AttemptKey(12, 7), **MARKS)
    names = {
        job_name(one),
        job_name(labels(key=AttemptKey(12, 8), **MARKS)),
        job_name(labels(key=AttemptKey(12, 7), **{**MARKS, "step": 1})),
        job_name(labels(key=AttemptKey(12, 7), **{**MARKS, "owner": "other"})),
    }
    assert len(names) == 4
    assert job_name(dict(one)) == job_name(one) and job_name(one).startswith("toban-12-1-")
    longest = labels(key=AttemptKey(2**63 - 1, 2**63 - 1), **{**MARKS, "attempt": 2**31 - 1})
    assert len(job_name(longest)) <= 63


def test_earlier_attempts_have_smaller_tokens() -> None:
    assert is_earlier({"toban.dev/token": "9"}, 10)
    assert not is_earlier({"toban.dev/token": "10"}, 10)
    assert not is_earlier({}, 10) and not is_earlier({"toban.dev/token": "x"}, 10)


def test_a_job_never_ends_later_than_the_margin_after_the_lease() -> None:
    for elapsed in (0.0, 0.4, 17.9):
        for left in (0.0, 0.3, 9.7):
            now = 100.0 + elapsed
            end = deadline_seconds(started=100.0, now=now, lease_until=now + left, margin=60.0) - elapsed
            assert left + 59 < end <= left + 60
    assert deadline_seconds(started=5.0, now=5.0, lease_until=0.0, margin=0.1) == 1


def test_an_old_answer_about_the_lease_does_not_prolong_it() -> None:
    """However late it is used: the program may have been frozen, or have waited for the API."""
    for now in (100.0, 150.0, 1000.0):
        assert deadline_seconds(started=90.0, now=now, lease_until=110.0, margin=60.0) == 80


def test_a_job_that_goes_on_without_a_lease_has_the_margin_from_now_on() -> None:
    assert deadline_seconds(started=90.0, now=150.0, lease_until=None, margin=60.0) == 120


def test_the_deadline_is_moved_now_and_then() -> None:
    assert not should_extend(70, 89, 60.0)
    assert should_extend(70, 90, 60.0)
