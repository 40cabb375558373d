"""An operator's day through the pages of the site, over a whole stack: start, kill, rerun, pause, drain, and the leader handed over.

These are the pages and actions that the gate pays for, by HTTP alone. `test_site_all_actions.py` does every action in a browser, in the long gate.
"""

import json
import re
import urllib.error
from collections.abc import Iterator
from typing import Any

import pytest

from toban_proto.v1 import coordinator_pb2 as pb
from toban_proto.v1 import coordinator_pb2_grpc as rpc
from toban_stack.stack import Stack
from toban_testing.admin_client import AdminClient
from toban_testing.site_client import SiteClient, signed_in

pytestmark = pytest.mark.e2e

SLEEP = "import json, os, time\ntime.sleep(json.load(open(os.environ['TOBAN_PAYLOAD_FILE']))['seconds'])\n"
JOB = {
    "apiVersion": "toban/v1",
    "kind": "Job",
    "metadata": {"name": "sleeper"},
    "spec": {
        "steps": [{"argv": ["python3", "-c", SLEEP]}],
        "timeout_seconds": 120,
        "allow_shell": True,
        "default_payload": {"seconds": 1},
        "payload_schema": {"properties": {"seconds": {"type": "integer", "minimum": 0, "maximum": 90}}},
    },
}
SCHEDULE = {
    "apiVersion": "toban/v1",
    "kind": "Schedule",
    "metadata": {"name": "rarely"},
    "spec": {"job": "sleeper", "interval_seconds": 86_400},
}


def refused(site: SiteClient, path: str, **fields: str) -> tuple[int, str]:
    """Status and text of a form that is refused."""
    with pytest.raises(urllib.error.HTTPError) as caught:
        site.submit(path, path, **fields)
    with caught.value as answer:
        return answer.code, answer.read().decode()


def started(path: str) -> int:
    """The run that a form led to."""
    found = re.fullmatch(r"/runs/(\d+)\?done=\w+", path)
    assert found, path
    return int(found[1])


def epoch(admin: Any) -> int:
    """The leader's."""
    return int(admin.call(rpc.JobReaderStub, "GetCluster", pb.GetClusterRequest()).epoch)


@pytest.fixture
def as_before(admin: AdminClient) -> Iterator[None]:
    """Whatever the test has come to: no run of it goes on, and every executor takes work."""
    yield
    for run in admin.runs(job="sleeper"):
        if not run.HasField("finished_at"):
            admin.cancel(run.id, mode="kill")
    for executor in admin.cluster().executors:
        if executor.drained:
            admin.call(rpc.OperationsStub, "UndrainExecutor", pb.UndrainExecutorRequest(worker_id=executor.worker_id))


def test_the_day_of_an_operator(stack: Stack, admin: AdminClient, as_before: None) -> None:
    site = signed_in(stack)
    admin.apply(JOB, SCHEDULE)

    status, text = refused(site, "/jobs/sleeper/run", **{"payload.seconds": "91"})
    assert status == 400 and "seconds" in text, "the schema decides"
    first = started(site.submit("/jobs/sleeper/run", "/jobs/sleeper/run", **{"payload.seconds": "80"})[0])
    admin.until(lambda: admin.run(first).state == "RUNNING", of="the run")
    site.submit(f"/runs/{first}/kill", f"/runs/{first}/kill", reason="it takes too long")
    admin.until(lambda: admin.run(first).state == "CANCELED", of="its end")
    page = site.get(f"/runs/{first}")
    assert "Kill requested" in page and "it takes too long" in page and f"/runs/{first}/rerun" in page

    rerun = f"/runs/{first}/rerun"
    again = started(site.submit(rerun, rerun, **{"payload.seconds": "0", "reason": "shorter"})[0])
    admin.until(lambda: admin.run(again).state == "SUCCEEDED", of="the rerun")
    assert json.loads(admin.run(again).payload_json) == {"seconds": 0} and admin.run(again).rerun_of == first
    many = "/runs/rerun?job=sleeper&state=CANCELED"
    _, text = site.submit(many, many, reason="all of them")
    assert "Done." in text and "1 of 1 run " in text

    site.submit("/schedules/rarely/pause", "/schedules/rarely/pause", reason="a holiday")
    assert "a holiday" in site.get("/schedules/rarely") and "/schedules/rarely/resume" in site.get("/jobs/sleeper")
    site.submit("/schedules/rarely/resume", "/schedules/rarely/resume", reason="back to work")

    found = re.search(r'href="(/executors/\d+/drain)\?epoch=', site.get("/executors"))
    assert found
    drain, seen = found[1], epoch(admin)
    site.submit(drain, drain, reason="new disk")
    assert "new disk" in site.get("/executors")
    path, _ = site.submit("/cluster/demote", "/cluster/demote", reason="patching")
    assert path == "/cluster?done=demoted" and epoch(admin) > seen
    for stale in ("/cluster/demote", drain.replace("drain", "undrain")):
        status, text = refused(site, stale, reason="from a stale page", epoch=str(seen))
        assert status == 409 and "leads, not" in text
    assert "from a stale page" not in site.get("/audit")
    undrain = drain.replace("drain", "undrain")
    site.submit(undrain, undrain, reason="the disk is in")
    audit = site.get("/audit")
    for reason in ("it takes too long", "a holiday", "back to work", "new disk", "patching", "the disk is in"):
        assert reason in audit


def test_an_administrator_changes_people_and_secrets(stack: Stack, admin: AdminClient) -> None:
    site, password = signed_in(stack), "correct horse battery"
    given = {"name": "carol", "role": "viewer", "password": password, "again": password}
    assert site.submit("/new/user", "/new/user", **given, reason="joins")[0] == "/users/carol?done=user_added"
    person = SiteClient(stack.sites[0])
    person.sign_in("carol", password)
    with pytest.raises(urllib.error.HTTPError) as caught:
        person.get("/users")
    with caught.value as answer:
        assert answer.code == 403

    site.submit("/new/group", "/new/group", name="runners", reason="a team")
    site.submit("/users/carol/join", "/users/carol/join", group="runners", reason="a member")
    rule = {"kind": "group", "name": "runners", "effect": "allow", "role": "operator", "labels": "team=ops"}
    site.submit("/new/rule", "/new/rule", **rule, reason="they run it")
    text = site.get("/rules?user=carol&action=run")
    assert "Denied." in text and "no rule gives carol operator" in text
    site.submit("/users/carol/role", "/users/carol/role", role="operator", reason="all jobs")
    text = site.get("/rules?user=carol&action=run")
    assert "Allowed." in text and text.count('class="chosen"') == 1
    for path, end in (
        ("/users/carol/disable", "left"),
        ("/users/carol/delete", "gone"),
        ("/groups/runners/delete", "no team"),
    ):
        site.submit(path, path, reason=end)
    status, text = refused(site, "/users/tester/disable", reason="by mistake")
    assert status == 409 and ("your own account" in text or "no enabled account" in text)

    value = "a value of this test"
    secret = {"name": "e2e-secret", "value": value, "for": "all"}
    assert "e2e-secret" in site.submit("/new/secret", "/new/secret", **secret, reason="first")[1]
    site.submit(
        "/secrets/e2e-secret/set", "/secrets/e2e-secret/set", value=value * 2, **{"for": "keep"}, reason="leaked"
    )
    secrets = admin.call(rpc.OperationsStub, "ListSecrets", pb.ListSecretsRequest()).secrets
    [stored] = [one for one in secrets if one.name == "e2e-secret"]
    assert (stored.name, stored.version, list(stored.jobs)) == ("e2e-secret", 2, [])
    assert value not in site.get("/secrets") and value not in site.get("/audit")
    site.submit("/secrets/e2e-secret/delete", "/secrets/e2e-secret/delete", reason="not needed")
    audit = site.get("/audit")
    for reason in ("joins", "a member", "they run it", "all jobs", "no team", "leaked", "not needed"):
        assert reason in audit
