"""Who may speak for which incarnations of an instance (docs/fencing.md 3.8)."""

import pytest

from toban_coordinator.decide.executors.instance_secret import InstanceRow, may_register, speaks_for

OURS, OTHER = b"o" * 32, b"x" * 32


def row(name: str, secret: bytes | None, *, off: bool = False) -> InstanceRow:
    return InstanceRow(incarnation=name, secret_hash=secret, off=off)


@pytest.mark.parametrize(
    ("rows", "presented", "spoken_for"),
    [
        ([row("a", OURS), row("b", OURS)], OURS, {"a", "b"}),
        ([row("a", OURS), row("b", OURS)], OTHER, set()),
        ([row("a", OURS), row("b", OURS)], None, set()),
        ([row("a", None), row("b", None)], None, {"a", "b"}),
        ([row("a", None)], OURS, {"a"}),
        ([row("a", None), row("b", OURS)], OURS, {"a", "b"}),
        ([row("a", None), row("b", OURS)], OTHER, set()),
        ([row("a", None), row("b", OURS)], None, set()),
        ([row("a", OURS), row("b", None, off=True), row("c", OTHER)], OTHER, {"c"}),
    ],
    ids=[
        "its secret",
        "another secret",
        "no secret",
        "releases before secrets",
        "the first registration with a secret",
        "an upgraded instance, its secret",
        "an upgraded instance, another secret",
        "an upgraded instance, no secret",
        "a second secret speaks for itself",
    ],
)
def test_who_speaks_for_whom(rows: list[InstanceRow], presented: bytes | None, spoken_for: set[str]) -> None:
    assert speaks_for(rows, presented) == spoken_for


@pytest.mark.parametrize(
    ("rows", "presented", "accepted"),
    [
        ([], OURS, True),
        ([row("a", None)], None, True),
        ([row("a", None)], OURS, True),
        ([row("a", OURS)], OURS, True),
        ([row("a", OURS)], OTHER, False),
        ([row("a", OURS)], None, False),
        ([row("a", OURS, off=True)], OTHER, True),
        ([row("a", OURS, off=True)], None, True),
        ([row("a", OURS, off=True), row("b", OTHER)], OURS, True),
    ],
    ids=[
        "a new instance",
        "a release before secrets",
        "an upgrade",
        "its secret",
        "another secret, while it lives",
        "no secret, while it lives",
        "its secret was lost, its lease is over",
        "back to a release before secrets, its lease is over",
        "who took its place while it was off does not keep it out",
    ],
)
def test_who_may_register_as_an_instance(rows: list[InstanceRow], presented: bytes | None, accepted: bool) -> None:
    assert may_register(rows, presented) is accepted


def test_no_hash_is_shown_with_a_row() -> None:
    assert OURS.decode() not in repr(row("a", OURS))
