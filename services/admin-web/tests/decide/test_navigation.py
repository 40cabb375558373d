"""The pages that every page leads to."""

from __future__ import annotations

from toban_admin_web.decide.navigation import GROUPS, groups_for, is_here


def endpoints(role: str) -> list[str]:
    return [link.endpoint for group in groups_for(role) for link in group.links]


def test_a_page_for_administrators_is_shown_to_them_alone() -> None:
    people = {"users.listed", "groups.listed", "rules.listed"}
    assert set(endpoints("admin")) - set(endpoints("editor")) == {"audit.listed", *people}
    assert set(endpoints("editor")) - set(endpoints("viewer")) == {"secrets.listed"}
    assert endpoints("") == endpoints("viewer")


def test_letters_and_endpoints_are_unique() -> None:
    links = [link for group in GROUPS for link in group.links]
    letters = [link.letter for link in links if link.letter]
    assert len(set(letters)) == len(letters) and len({link.endpoint for link in links}) == len(links)


def test_a_page_is_below_another() -> None:
    assert is_here("/jobs/hello", "/jobs") and is_here("/", "/")
    assert not is_here("/jobs", "/") and not is_here("/jobs-of-others", "/jobs")
