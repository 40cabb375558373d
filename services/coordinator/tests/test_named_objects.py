"""What use cases about named objects share, as far as it needs no server."""

from toban_coordinator.app.named_objects import changed, facts, listed
from toban_domain.errors import ErrorCode
from toban_domain.executor_group import ExecutorGroup


def test_a_list_of_names_is_cut_with_the_number_of_the_others() -> None:
    assert listed(["a"]) == "a"
    assert listed(list("abcde")) == "a, b, c, d, e"
    assert listed(list("abcdefg")) == "a, b, c, d, e and 2 more"


def test_a_change_of_another_call_is_a_conflict_that_names_the_object() -> None:
    error = changed("schedule", "nightly")
    assert error.code is ErrorCode.CONFLICT
    assert error.message == "schedule 'nightly' was changed at the same time; read it and try again"


def test_facts_are_the_attributes_by_name() -> None:
    group = ExecutorGroup(name="gpu", labels={"gpu": "1"}, claims=frozenset(), job_labels={})
    assert facts(group, "name", "labels") == {"name": "gpu", "labels": {"gpu": "1"}}
