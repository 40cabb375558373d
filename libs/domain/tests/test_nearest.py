"""The remedy for a mistyped name."""

from toban_domain.nearest import suggestion


def test_the_nearest_other_name_is_suggested() -> None:
    assert suggestion("pagr", ["pager", "chat"], "see the list") == "did you mean 'pager'?"
    assert suggestion("pager", ["pager"], "see the list") == "see the list"
    assert suggestion("pager", [], "see the list") == "see the list"
