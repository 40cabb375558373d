"""A state directory that was copied to another machine makes a new instance."""

import pytest

from toban_executor.decide.instance import Instance, Kept, instance_of


@pytest.mark.parametrize(
    ("kept", "expected"),
    [
        (Kept(instance="", machine="", registered=""), Instance(id="new", previous="", copied=False)),
        (Kept(instance="old", machine="here", registered="x"), Instance(id="old", previous="x", copied=False)),
        (Kept(instance="old", machine="there", registered="x"), Instance(id="new", previous="", copied=True)),
        # Made before machines were noted.
        (Kept(instance="old", machine="", registered="x"), Instance(id="old", previous="x", copied=False)),
    ],
)
def test_who_it_is(kept: Kept, expected: Instance) -> None:
    assert instance_of(kept, machine="here", new_id="new") == expected
