"""The site over a whole stack: healthy in `make status`, a live log read over HTTP to its end, and 503 without a coordinator."""

import json
import signal
import urllib.error
from collections.abc import Iterator
from pathlib import Path

import pytest

from toban_stack.stack import Stack
from toban_stack.wait import wait_until
from toban_testing.admin_client import AdminClient
from toban_testing.site_client import SiteClient, signed_in
from toban_testing.stack_fixtures import admin_of, running_stack

pytestmark = pytest.mark.e2e

WRITER = "import sys, time\nfor n in range(20):\n    print('out', n, flush=True)\n    time.sleep(0.1)\nprint('bad', file=sys.stderr)\n"


def events(site: SiteClient, run_id: int, after: str = "") -> Iterator[tuple[str, str, dict[str, object]]]:
    """(name, id, data) of each event of a live log until the server ends it."""
    with site.open(f"/runs/{run_id}/log/stream?after={after}") as answer:
        fields: dict[str, str] = {}
        for raw in answer:
            name, _, value = raw.decode().rstrip("\n").partition(": ")
            if not name and "event" in fields:
                yield fields["event"], fields["id"], json.loads(fields["data"])
            fields = fields | {name: value} if name else {}


def is_reachable(site: SiteClient) -> bool:
    """Whether the site reaches a coordinator."""
    try:
        return "Toban" in site.get("/executors")
    except urllib.error.HTTPError as error:
        error.close()
        return False


def site_health(stack: Stack) -> list[str]:
    """The health of the site in `make status`."""
    return [row.health for row in stack.status() if row.role == "admin-web"]


@pytest.mark.seed(11, 12)
def test_the_site_of_a_stack(stack: Stack, admin: AdminClient) -> None:
    admin.until(lambda: "ok" in site_health(stack), of="a healthy site")
    site = signed_in(stack)
    steps = [{"argv": ["python3", "-c", WRITER]}]
    spec = {"steps": steps, "timeout_seconds": 60, "allow_shell": True}
    admin.apply({"apiVersion": "toban/v1", "kind": "Job", "metadata": {"name": "site-writer"}, "spec": spec})
    [run_id] = admin.start("site-writer")
    admin.until(lambda: admin.run(run_id).state == "RUNNING", of="the run")

    seen, cursor, stream = [], "", events(site, run_id)
    while len(seen) < 5:
        _, cursor, data = next(stream)
        seen += data["lines"]  # type: ignore[arg-type]
    stream.close()
    # The rest over another connection, which resumes at the cursor of the first one.
    for event in events(site, run_id, cursor):
        name, _, data = event
        seen += data.get("lines", [])  # type: ignore[arg-type]
    assert name == "end" and data == {"state": "SUCCEEDED", "complete": True}
    assert [row[0] for row in seen] == list(range(1, 22)), "each line once, in order"
    assert [row[3] for row in seen if row[1] == "stdout"] == [f"out {n}" for n in range(20)]
    assert [row[3] for row in seen if row[1] == "stderr"] == ["bad"]
    # By way of a coordinator, which asks a log-archiver: at least today's output is there.
    archive = json.loads(site.get("/api/v1/archive"))
    assert archive["days"][-1]["chunks"] > 0 and f'<tr id="{archive["days"][-1]["log_day"]}">' in site.get("/archive")

    page = site.get(f"/runs/{run_id}")
    assert "out 19" in page and "succeeded" in page
    log = f"/runs/{run_id}/log"
    token = cursor.partition(":")[0]
    for query, wanted in (
        ("before=end&limit=2", [20, 21]),
        (f"before={token}:5&limit=3", [2, 3, 4]),
        (f"after={token}:5&limit=3", [6, 7, 8]),
        (f"around={token}:5&limit=4", [3, 4, 5, 6]),
        ("before=end&stream=stderr", [row[0] for row in seen if row[1] == "stderr"]),
    ):
        parts = json.loads(site.get(f"{log}/lines?{query}"))["parts"]
        assert [row[0] for part in parts for row in part["lines"]] == wanted, query
    found = json.loads(site.get(f"{log}/search?find=OUT+1"))
    assert (found["count"], found["whole"]) == ("11", True), "out 1 and out 10 to out 19"
    assert "Hits: 11" in site.get(f"{log}?find=OUT+1")
    for path in ("/", "/runs", "/jobs", "/jobs/site-writer", "/schedules", "/executors", f"/runs/{run_id}/log.txt"):
        assert site.get(path)


@pytest.mark.long
@pytest.mark.seed(90)
def test_a_site_whose_only_coordinator_dies(tmp_path: Path) -> None:
    with running_stack(tmp_path / "home", coordinators=1, executors=1, admin_webs=1) as stack, admin_of(stack) as admin:
        site = signed_in(stack)
        spec = {"steps": [{"argv": ["/bin/true"]}]}
        admin.apply({"apiVersion": "toban/v1", "kind": "Job", "metadata": {"name": "alone"}, "spec": spec})
        [run_id] = admin.start("alone")
        assert admin.until_ended(run_id).state == "SUCCEEDED"
        stack.kill("coordinator-1", signal.SIGKILL)
        with pytest.raises(urllib.error.HTTPError) as caught:
            site.get("/")
        with caught.value as answer:
            assert answer.code == 503 and stack.coordinators[0] in answer.read().decode()
        stack.start("coordinator-1")
        assert wait_until(lambda: is_reachable(site), 60), "the site reaches a restarted coordinator"
