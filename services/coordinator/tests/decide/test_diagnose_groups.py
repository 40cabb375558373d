"""The check of executor groups."""

from toban_coordinator.decide.cluster.diagnose import GroupFacts, executor_groups


def test_a_group_without_executors_is_a_warning_that_says_who_waits():
    found = executor_groups(
        [
            GroupFacts(name="default", labels={}, claims=["*"], executors=0),
            GroupFacts(name="pci", labels={"pool": "pci", "a": "b"}, claims=[], executors=0),
            GroupFacts(name="spare", labels={}, claims=["zone"], executors=0),
            GroupFacts(name="web", labels={"pool": "web"}, claims=[], executors=1),
        ]
    )
    assert [(one.subject, one.status) for one in found] == [
        ("executor group default", "ok"),
        ("executor group pci", "warning"),
        ("executor group spare", "warning"),
        ("executor group web", "ok"),
    ]
    assert found[0].value == "0 executors, no labels, may claim any label"
    assert found[3].value == "1 executor, pool=web, may claim nothing"
    assert "jobs that select a=b, pool=pci wait" in found[1].message and "toban group delete pci" in found[1].remedy
    assert "nothing runs in it" in found[2].message
