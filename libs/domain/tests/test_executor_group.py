"""Which labels an executor of a group may have."""

import pytest

from toban_domain.errors import ErrorCode, TobanError
from toban_domain.executor_group import ExecutorGroup, allowed_labels, check_name, closed_to, refusal

DEFAULT = ExecutorGroup(name="default", claims=frozenset({"*"}))
PCI = ExecutorGroup(name="pci", labels={"pool": "pci"}, claims=frozenset({"zone"}))
WEB = ExecutorGroup(name="web", labels={"pool": "web", "region": "eu"})
ALL = (DEFAULT, PCI, WEB)


@pytest.mark.parametrize(
    ("group", "claimed", "why"),
    [
        (DEFAULT, {}, ""),
        (DEFAULT, {"pool": "batch", "zone": "a"}, ""),
        (DEFAULT, {"pool": "pci"}, "label pool=pci belongs to group 'pci'"),
        (PCI, {"pool": "pci", "zone": "b"}, ""),
        (PCI, {"pool": "web"}, "label pool=web is pool=pci in group 'pci'"),
        (PCI, {"gpu": "yes"}, "executors of group 'pci' may not claim label gpu"),
        (WEB, {"zone": "a"}, "executors of group 'web' may not claim label zone"),
        (DEFAULT, {"region": "eu"}, "label region=eu belongs to group 'web'"),
    ],
)
def test_an_executor_claims_what_its_group_allows_and_no_group_has_reserved(group, claimed, why):
    found = refusal(claimed, group, ALL)
    assert found.startswith(why) and bool(found) is bool(why)


@pytest.mark.parametrize(
    ("job_labels", "selected", "closed"),
    [
        ({"team": "pay", "x": "y"}, ("pool", "card"), None),
        ({"team": "web"}, ("pool", "card"), "card"),
        ({}, ("pool", "card"), "card"),
        ({}, ("pool", "web"), None),
        ({}, ("pool", "free"), None),
        ({}, ("disk", "fast"), None),
    ],
)
def test_a_job_selects_labels_of_groups_that_run_it(job_labels, selected, closed):
    card = ExecutorGroup(name="card", labels={"pool": "card", "disk": "fast"}, job_labels={"team": "pay"})
    fast = ExecutorGroup(name="fast", labels={"disk": "fast"})
    found = closed_to(job_labels, *selected, (*ALL, card, fast))
    assert (found and found.name) == closed


def test_two_groups_may_have_one_label():
    both = (PCI, ExecutorGroup(name="pci-2", labels={"pool": "pci"}))
    assert [refusal({"pool": "pci"}, one, both) for one in both] == ["", ""]


def test_a_running_executor_keeps_what_it_may_have_and_gets_the_labels_of_its_group():
    claimed = {"pool": "web", "zone": "a", "gpu": "yes"}
    assert allowed_labels(claimed, PCI, ALL) == {"pool": "pci", "zone": "a"}
    assert allowed_labels(claimed, DEFAULT, ALL) == {"zone": "a", "gpu": "yes"}


@pytest.mark.parametrize("name", ["pci", "a", "9", "a-b", "x" * 63])
def test_a_name_is_a_label_of_a_dns_name(name):
    assert check_name(name) == name


@pytest.mark.parametrize("name", ["", "-a", "a-", "A", "a.b", "a/b", "a b", "x" * 64, "ä", "a\n"])
def test_other_names_are_refused(name):
    with pytest.raises(TobanError) as caught:
        check_name(name)
    assert caught.value.code is ErrorCode.INVALID_ARGUMENT
