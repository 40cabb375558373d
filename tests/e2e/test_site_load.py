"""A crowded minute, seen and spread by way of the site over a whole stack."""

import urllib.error
from typing import Any

import pytest

from toban_proto.v1 import coordinator_pb2 as pb
from toban_proto.v1 import coordinator_pb2_grpc as rpc
from toban_stack.stack import Stack
from toban_testing.admin_client import AdminClient
from toban_testing.sample_company import manifest
from toban_testing.site_client import signed_in

pytestmark = pytest.mark.e2e


def schedule(name: str, **rule: Any) -> dict[str, Any]:
    return manifest("Schedule", name, job="crowd", timezone="Asia/Tokyo", **rule)


def stored(admin: AdminClient) -> dict[str, tuple[str, int]]:
    """Rule and version of each schedule."""
    request = pb.ListSchedulesRequest(job="crowd")
    found = admin.call(rpc.JobReaderStub, "ListSchedules", request).schedules
    return {one.name: (one.rule, one.version) for one in found}


def test_a_crowded_minute_is_spread(stack: Stack, admin: AdminClient) -> None:
    site = signed_in(stack)
    # Far enough away that nothing fires during the test.
    begin = admin.call(rpc.JobReaderStub, "GetComingLoad", pb.GetComingLoadRequest()).begin.ToDatetime()
    hour = (begin.hour + 12) % 24
    at = f"{(hour + 9) % 24:02}:20"
    admin.apply(
        manifest("Job", "crowd", steps=[{"argv": ["/bin/true"]}]),
        *(schedule(f"crowd-{n:02}", daily_at=at) for n in range(12)),
        schedule("crowd-steps", cron="*/20 * * * *"),
    )

    def crowded() -> list[Any]:
        load = admin.call(rpc.JobReaderStub, "GetComingLoad", pb.GetComingLoadRequest(names=200))
        return [one for one in load.crowded if {"crowd-00", "crowd-steps"} <= {named.schedule for named in one.named}]

    admin.until(lambda: bool(crowded()), of="the crowded minute")
    minute = crowded()[0].at.ToDatetime().strftime("%Y-%m-%dT%H:%M")
    assert minute.endswith(f"T{hour:02}:20")
    admin.until(lambda: f"minute={minute}#minute" in site.get("/load"), of="the red cell")

    path = f"/load/spread?minute={minute}&over=24"
    admin.until(lambda: "11 schedules change" in site.get(path), of="the minute at every coordinator")
    page, stale = site.get(path), site.hidden(path, "/load/spread")
    assert "11 schedules change" in page and "crowd-steps" in page and f"daily_at: {at[:3]}42" in page
    admin.apply(schedule("crowd-05", daily_at=at, payload={"changed": "in between"}))
    before = stored(admin)
    with pytest.raises(urllib.error.HTTPError) as caught:
        site.send("/load/spread", **stale, reason="crowded")
    with caught.value as answer:
        assert "a schedule was changed since" in answer.read().decode()
    assert stored(admin) == before

    # The coordinators have counted the changed one again.
    admin.until(lambda: "11 schedules change" in site.get(path), of="the newest versions")
    assert site.submit(path, "/load/spread", reason="crowded")[0].endswith("done=spread")
    after = stored(admin)
    rules = [after[f"crowd-{n:02}"][0] for n in range(12)]
    assert rules == [f"daily at {at[:3]}{20 + 2 * n} Asia/Tokyo" for n in range(12)]
    assert after["crowd-00"] == before["crowd-00"] and after["crowd-steps"] == before["crowd-steps"]
    entries = admin.call(rpc.OperationsStub, "ListAudit", pb.ListAuditRequest(target="schedule crowd-11")).entries
    assert entries[0].reason == "crowded"
