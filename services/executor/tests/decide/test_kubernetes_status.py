"""What the status of a Job and its pods means."""

from typing import Any

import pytest

from toban_executor.decide.kubernetes_status import End, Pod, cannot_start, end_of, is_finished, read_pod


def job(kind: str, reason: str = "", message: str = "") -> dict[str, Any]:
    return {"status": {"conditions": [{"type": kind, "status": "True", "reason": reason, "message": message}]}}


RUNS = Pod(name="p", phase="Running", started=True)


def ended(code: int | None, **more: Any) -> Pod:
    return Pod(name="p", phase="Failed", started=True, exit_code=code, **more)


@pytest.mark.parametrize(
    ("job", "pods", "end"),
    [
        ({}, [], None),
        ({}, [RUNS], None),
        (job("Complete"), [ended(0)], End(0)),
        (job("Failed", "BackoffLimitExceeded"), [ended(3)], End(3)),
        ({}, [ended(137, reason="OOMKilled")], End(137, "more than limits.memory_mb = 64")),
        ({}, [ended(143, deleted=True)], End(143, "was deleted while it ran")),
        ({}, [ended(None, reason="Evicted", message="no disk")], End(1, "pod p failed: Evicted: no disk")),
        (job("FailureTarget", "DeadlineExceeded"), [RUNS], End(1, "reached its deadline")),
        (job("Failed", "DeadlineExceeded"), [ended(143)], End(1, "reached its deadline")),
        (job("Failed", "BackoffLimitExceeded"), [RUNS], None),
        (job("Failed", "BackoffLimitExceeded", "too often"), [], End(1, "BackoffLimitExceeded: too often")),
        (None, [RUNS], End(1, "was deleted, and not by this step")),
        (None, [ended(0)], End(0)),
    ],
)
def test_ends(job: dict[str, Any] | None, pods: list[Pod], end: End | None) -> None:
    found = end_of(job, pods, memory_mb=64)
    assert (found is None) == (end is None)
    if found and end:
        assert found.exit_code == end.exit_code
        assert end.text in found.text and bool(end.text) == bool(found.text)


def test_only_a_final_condition_ends_a_job() -> None:
    assert is_finished(job("Complete")) and is_finished(job("Failed"))
    assert not is_finished(job("FailureTarget")) and not is_finished(job("Suspended"))
    assert not is_finished({"status": {"conditions": [{"type": "Complete", "status": "False"}]}})


def test_a_pod_that_no_node_takes_is_given_up_in_time() -> None:
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/3 nodes fit"}
    pod = read_pod({"metadata": {"name": "p"}, "status": {"phase": "Pending", "conditions": [condition]}})
    assert pod.waits == "Unschedulable: 0/3 nodes fit"
    assert cannot_start([pod], waited=9, limit=10) == ""
    assert cannot_start([pod], waited=10, limit=10).endswith("= 10; pod p: Unschedulable: 0/3 nodes fit")
    assert cannot_start([], waited=10, limit=10).endswith("the Job has no pod; see its events")
    assert cannot_start([RUNS], waited=1000, limit=10) == ""
