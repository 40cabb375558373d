"""A state directory that was copied to another machine makes a new instance."""

import pytest

from toban_executor.app.recovery import Instance, StoredIdentity, instance_of


@pytest.mark.parametrize(
    ("stored", "expected"),
    [
        (StoredIdentity(instance="", machine="", registered=""), Instance(id="new", previous="", copied=False)),
        (
            StoredIdentity(instance="old", machine="here", registered="x"),
            Instance(id="old", previous="x", copied=False),
        ),
        (StoredIdentity(instance="old", machine="there", registered="x"), Instance(id="new", previous="", copied=True)),
        # Made before machines were noted.
        (StoredIdentity(instance="old", machine="", registered="x"), Instance(id="old", previous="x", copied=False)),
    ],
)
def test_who_it_is(stored: StoredIdentity, expected: Instance) -> None:
    assert instance_of(stored, machine="here", new_id="new") == expected
