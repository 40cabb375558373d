"""A stack from outside: a run starts the next one by its end, is repeated, noted, and its job deleted."""

from collections.abc import Callable
from typing import Any

import pytest

from toban_proto.v1 import coordinator_pb2 as pb
from toban_testing.admin_client import AdminClient

pytestmark = pytest.mark.e2e


def job(name: str, script: str) -> dict[str, Any]:
    spec = {"steps": [{"argv": ["sh", "-c", script]}], "allow_shell": True}
    return {"apiVersion": "toban/v1", "kind": "Job", "metadata": {"name": name}, "spec": spec}


CHAIN = {
    "apiVersion": "toban/v1",
    "kind": "EventTrigger",
    "metadata": {"name": "load-after-extract"},
    "spec": {
        "on_run_end": {"job": "extract"},
        "job": "load",
        "filter": {"result.rows": {"gt": 0}},
        "payload": {"rows": "{{ result.rows }}", "of": "{{ run.id }}"},
    },
}


def test_from_one_run_to_the_next(admin: AdminClient, toban: Callable[..., str]) -> None:
    admin.apply(job("extract", "echo '::output {\"rows\": 3}::'"), job("load", 'echo "rows $TOBAN_PARAM_ROWS"'), CHAIN)
    toban("run", "start", "extract", "--wait")
    follow(admin, count=2)
    [first] = [str(run.id) for run in admin.runs(job="extract")]
    toban("run", "rerun", first, "--wait", "--reason", "once more")
    follow(admin, count=4)
    toban("run", "note", first, "looked into it")
    shown = toban("run", "get", first)
    assert "looked into it" in shown and "repeats it: once more" in shown
    toban("run", "rerun", "--job", "load", "--state", "SUCCEEDED", "--yes")
    follow(admin, count=6)
    assert "trigger load-after-extract deleted" in toban("job", "delete", "extract", "--with-triggers")
    assert "SUCCEEDED" in toban("run", "get", first)


def test_a_rerun_from_the_failed_step(admin: AdminClient, toban: Callable[..., str]) -> None:
    halves = job("halves", "echo loaded")
    halves["spec"]["steps"] += [{"id": "pack", "argv": ["sh", "-c", 'echo packed && [ "$TOBAN_PARAM_SIZE" = 1 ]']}]
    admin.apply(halves)
    [first] = admin.start("halves", payload={"size": 2})
    failed = admin.until_ended(first)
    assert (failed.state, failed.failed_step) == ("FAILED", 2)
    toban("run", "rerun", str(first), "--from-failed-step", "--param", "size:=1", "--wait")
    [again] = admin.run(first).reruns
    assert [step.state for step in admin.run(again).steps] == ["skipped", "succeeded"]
    assert toban("run", "logs", str(again)).splitlines() == ["packed"]


def follow(admin: AdminClient, *, count: int) -> None:
    """Waits until there are so many runs and all have succeeded; those of `load` that a trigger started know what they follow."""
    admin.until(lambda: len(runs(admin)) == count, of=f"{count} runs")
    for found in runs(admin):
        ended = admin.until_ended(found.id)
        assert ended.state == "SUCCEEDED"
        if ended.trigger:
            assert ended.payload_json == f'{{"of": {ended.after_run}, "rows": 3}}' and ended.chain_depth == 1


def runs(admin: AdminClient) -> list[pb.Run]:
    return [*admin.runs(job="extract"), *admin.runs(job="load")]
