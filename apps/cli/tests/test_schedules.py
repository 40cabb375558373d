"""`toban schedule` against a cluster over mTLS."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.timestamp_pb2 import Timestamp

from toban_domain.errors import ErrorCode, TobanError
from toban_proto.v1 import coordinator_pb2 as pb
from toban_runtime.clock import SystemClock

Toban = Callable[..., tuple[int, str, str]]


def at(text: str) -> Timestamp:
    stamp = Timestamp()
    stamp.FromDatetime(datetime.fromisoformat(text))
    return stamp


def schedule(**fields: Any) -> pb.Schedule:
    spec = {
        "name": "nightly",
        "job": "report",
        "daily_at": "03:00",
        "timezone": "Europe/Berlin",
        "dst": {"gap": "skip"},
        "payload": {"name": "Ada", "n": 1},
        "description": "Every night",
        "labels": {"team": "ops"},
    }
    given = {
        "name": "nightly",
        "job": "report",
        "enabled": True,
        "status": "active",
        "spec_json": json.dumps(spec),
        "timezone": "Europe/Berlin",
        "rule": "daily at 03:00 Europe/Berlin",
        "version": 7,
        "description": "Every night",
        "updated_at": at("2026-11-21T10:00:00"),
        "updated_by": "admin-cli",
        **fields,
    }
    return pb.Schedule(**given)


SLOT = pb.NextSlot(
    at=at("2026-10-25T00:30:00"), local="2026-10-25T02:30:00+02:00", rule_note="fold: first of two 02:30"
)


def applied(action: str = "updated", **fields: Any) -> Callable[[Any], pb.ApplyResponse]:
    def answer(request: Any) -> pb.ApplyResponse:
        name = json.loads(request.manifests[0].json)["metadata"]["name"]
        return pb.ApplyResponse(
            applied=[pb.Applied(kind="Schedule", name=name, action=action, version=8, next_slots=[SLOT], **fields)]
        )

    return answer


def sent(cluster: Any) -> tuple[dict[str, Any], Any]:
    [request] = cluster.control.requests
    [manifest] = request.manifests
    return json.loads(manifest.json), manifest


@pytest.mark.seed(170)
@pytest.mark.parametrize(
    ("options", "rule"),
    [
        (["--every", "30s"], {"interval_seconds": 30}),
        (["--every", "5m"], {"every_n_minutes": 5}),
        (["--every", "1h30m"], {"every_n_minutes": 90}),
        (["--cron", "H 3 * * *"], {"cron": "H 3 * * *"}),
        (["--daily-at", "03:00", "--timezone", "Asia/Tokyo"], {"daily_at": "03:00", "timezone": "Asia/Tokyo"}),
        (["--weekly-at", "mon-fri 03:00"], {"weekly_at": "mon-fri 03:00"}),
        (["--hourly-at-minute", "0"], {"hourly_at_minute": 0}),
        (
            ["--every", "2d", "--start", "2026-12-01T00:00:00Z", "--catch-up", "one", "--gap", "skip", "--disabled"],
            {
                "every_n_minutes": 2880,
                "start": "2026-12-01T00:00:00Z",
                "catch_up": "one",
                "dst": {"gap": "skip"},
                "enabled": False,
            },
        ),
        (
            ["--every", "1s", "-p", "name=Ada", "-p", "n:=5"],
            {"interval_seconds": 1, "payload": {"name": "Ada", "n": 5}},
        ),
    ],
)
def test_add_makes_the_definition(cluster: Any, toban: Toban, options: list[str], rule: dict[str, Any]) -> None:
    cluster.control.answers["Apply"] = applied("created", clock_change="2027-03-28: x")
    code, out, err = toban("schedule", "add", "nightly", "--job", "report", *options)
    assert (code, err) == (0, "")
    assert out.splitlines() == [
        "schedule nightly created",
        "  2026-10-25T02:30:00+02:00 = 2026-10-25T00:30:00Z, fold: first of two 02:30",
        "  clocks change: 2027-03-28: x",
    ]
    document, manifest = sent(cluster)
    assert document["spec"] == {"job": "report", **rule} and document["metadata"] == {"name": "nightly"}
    # Only when there is none of this name.
    assert manifest.HasField("expect_version") and manifest.expect_version == 0


@pytest.mark.seed(181)
@pytest.mark.parametrize(
    ("options", "code", "words"),
    [
        (["--job", "a"], 65, "no rule is given; use one of --every 5m"),
        (["--job", "a", "--every", "5m", "--daily-at", "03:00"], 65, "--every and --daily-at are 2 rules"),
        (["--job", "a", "--every", "5"], 65, "write 30s, 5m, 1h30m or 2d"),
        (["--job", "a", "--every", "0s"], 65, "--every: '0s' is out of range; use 1s … 366d"),
        (["--job", "a", "--every", "9" * 5000 + "d"], 65, "is out of range; use 1s … 366d"),
        (["--job", "a", "--every", "5m", "--timezone", "Asia/Tokyo"], 65, "--timezone has no effect here"),
        (["--job", "a", "--cron", "0 0 30 2 *"], 67, "spec.cron: '0 0 30 2 *' never fires"),
        (["--job", "a", "--cron", "61 * * * *"], 67, "'61' is not a minute"),
        (["--job", "a", "--cron", "0 3 * * *", "--timezone", "Berlin"], 67, "did you mean Europe/Berlin?"),
        (["--job", "a", "--daily-at", "25:00"], 67, "not a time of day"),
        (["--job", "a", "--every", "5m", "--gap", "jump"], 65, "use one of skip, shift, run_after"),
        (["--job", "a", "--every", "5m", "--end", "tomorrow"], 67, "spec.end: 'tomorrow' is not an ISO time"),
        (["--job", "a", "--every", "5m", "-p", "x"], 65, "name=value"),
        (["--job", "A!", "--every", "5m"], 65, "'A!' is not a name"),
        (["--every", "5m"], 64, "--job"),
        (["--job", "a", "--hourly-at-minute", "60"], 64, "60"),
    ],
)
def test_add_says_what_is_wrong(toban: Toban, options: list[str], code: int, words: str) -> None:
    said, out, err = toban("schedule", "add", "nightly", *options)
    assert (said, out) == (code, "") and words in err and err.count("\n") == 1


def test_add_does_not_change_one_that_is_there(cluster: Any, toban: Toban) -> None:
    cluster.control.answers["Apply"] = TobanError(ErrorCode.ALREADY_EXISTS, "there is a schedule 'x' already")
    assert toban("schedule", "add", "x", "--job", "a", "--every", "5m")[0] == 73


@pytest.mark.seed(171)
@pytest.mark.parametrize(
    ("options", "change"),
    [
        (["--daily-at", "04:00"], {"daily_at": "04:00"}),
        (["--cron", "0 4 * * *"], {"daily_at": None, "cron": "0 4 * * *"}),
        (["--timezone", "Asia/Tokyo"], {"timezone": "Asia/Tokyo"}),
        (["--fold", "both"], {"dst": {"gap": "skip", "fold": "both"}}),
        (["--gap", ""], {"dst": None}),
        (["--disabled"], {"enabled": False}),
        (["-p", "name=Grace"], {"payload": {"name": "Grace", "n": 1}}),
        (["--payload", "{}", "-p", "k=v"], {"payload": {"k": "v"}}),
        (["--end", "2030-01-01T00:00:00Z"], {"end": "2030-01-01T00:00:00Z"}),
        (["--job", "other"], {"job": "other"}),
    ],
)
def test_update_changes_only_what_is_given(
    cluster: Any, toban: Toban, options: list[str], change: dict[str, Any]
) -> None:
    cluster.reader.answers["GetSchedule"] = schedule()
    cluster.control.answers["Apply"] = applied(note="paused: a move")
    code, out, _ = toban("schedule", "set", "nightly", *options)
    assert code == 0 and out.splitlines()[:2] == ["schedule nightly updated", "  paused: a move"]
    document, manifest = sent(cluster)
    before = json.loads(schedule().spec_json)
    expected = {key: value for key, value in {**before, **change}.items() if value is not None}
    about = {key: expected.pop(key) for key in ("name", "description", "labels")}
    assert (document["spec"], document["metadata"]) == (expected, about)
    # Two editors do not overwrite each other: it counts for the version that was read.
    assert manifest.expect_version == 7


@pytest.mark.seed(172)
def test_update_tells_what_is_in_its_way(cluster: Any, toban: Toban) -> None:
    code, _, err = toban("schedule", "set", "nightly")
    assert code == 65 and "nothing to change" in err
    code, _, err = toban("schedule", "set", "nightly", "--every", "5m", "--cron", "0 3 * * *")
    assert code == 65 and "--every and --cron are 2 rules" in err
    assert cluster.control.requests == cluster.reader.requests == []
    cluster.reader.answers["GetSchedule"] = TobanError(
        ErrorCode.SCHEDULE_NOT_FOUND, "there is no schedule 'nightli'; did you mean 'nightly'?"
    )
    code, _, err = toban("schedule", "set", "nightli", "--every", "5m")
    assert code == 66 and "did you mean 'nightly'?" in err
    cluster.reader.answers["GetSchedule"] = schedule()
    cluster.control.answers["Apply"] = TobanError(ErrorCode.CONFLICT, "schedule 'nightly' is at version 8 now, not 7")
    assert toban("schedule", "set", "nightly", "--every", "5m")[0] == 75


def test_dry_run_is_handed_on(cluster: Any, toban: Toban) -> None:
    cluster.control.answers["Apply"] = applied("created")
    code, out, _ = toban("schedule", "add", "x", "--job", "a", "--every", "5m", "--dry-run", "--reason", "why")
    assert code == 0 and out.startswith("schedule x created (dry run)\n") and cluster.control.requests[0].dry_run
    assert cluster.control.requests[0].reason == "why"
    assert json.loads(toban("schedule", "add", "x", "--job", "a", "--every", "5m", "-o", "json")[1])["version"] == 8


def test_pause_resume_remove(cluster: Any, toban: Toban) -> None:
    cluster.control.answers["PauseSchedule"] = schedule(status="paused")
    code, out, _ = toban("schedule", "pause", "nightly", "--reason", "a move")
    assert (code, out) == (0, "schedule nightly paused; resume it with `toban schedule resume nightly`\n")
    assert cluster.control.requests[-1] == pb.PauseScheduleRequest(name="nightly", reason="a move")
    code, out, _ = toban("schedule", "pause", "nightly", "--until", "2096-12-01T08:00+01:00")
    assert (
        code == 0
        and out.startswith("schedule nightly paused until 2096-12-01 ")
        and "next at" not in out
        and "resume it earlier" in out
    )
    cluster.control.answers["PauseSchedule"] = schedule(status="paused", next_run_at=at("2096-12-02T02:00:00"))
    assert ", next at 2096-12-02 " in toban("schedule", "pause", "nightly", "--until", "2096-12-01T08:00+01:00")[1]
    assert cluster.control.requests[-1] == pb.PauseScheduleRequest(name="nightly", until=at("2096-12-01T07:00:00"))
    code, _, error = toban("schedule", "pause", "nightly", "--until", "2020-12-01T08:00Z")
    assert code == 65 and "--until: '2020-12-01T08:00Z' is in the past" in error
    cluster.control.answers["ResumeSchedule"] = schedule(next_run_at=at("2096-11-22T02:00:00"))
    code, out, _ = toban("schedule", "resume", "nightly", "--reason", "it is over")
    assert cluster.control.requests[-1] == pb.ResumeScheduleRequest(name="nightly", reason="it is over")
    assert code == 0 and out.startswith("schedule nightly is active again, next at 2096-11-22 02:00:00 (in ")
    cluster.control.answers["ResumeSchedule"] = schedule()
    assert toban("schedule", "resume", "nightly")[1] == "schedule nightly is active again, it has no further slots\n"
    for taken, words in (
        (0, ""),
        (1, "; 1 run of future slots withdrawn"),
        (3, "; 3 runs of future slots withdrawn"),
    ):
        cluster.control.answers["DeleteSchedule"] = pb.DeleteScheduleResponse(withdrawn_runs=taken)
        assert toban("schedule", "delete", "nightly")[1] == f"schedule nightly deleted{words}\n"
    assert toban("schedule", "delete", "nightly", "-o", "name")[1] == "nightly\n"


def test_list_says_why_a_schedule_does_nothing(cluster: Any, toban: Toban) -> None:
    cluster.reader.answers["ListSchedules"] = pb.ListSchedulesResponse(
        schedules=[
            schedule(status="paused", status_reason="a move"),
            schedule(name="back", status="paused", paused_until=at("2096-12-01T07:00:00")),
            schedule(name="off", enabled=False),
            schedule(name="bad", status="failed", status_reason="no payload"),
            schedule(name="idle", job_disabled=True),
            schedule(name="both", status="paused", job_disabled=True, job_disabled_until=at("2096-12-01T07:00:00")),
        ]
    )
    code, out, _ = toban("schedule", "list", "--job", "report")
    rows = [" ".join(re.sub(r"in \d+d", "in …", line).split()) for line in out.splitlines()]
    assert code == 0 and rows == [
        "NAME JOB RULE STATUS NEXT LAST WHY",
        "nightly report daily at 03:00 Europe/Berlin paused - - a move",
        "back report daily at 03:00 Europe/Berlin paused until 12-01 07:00 (in …) - - -",
        "off report daily at 03:00 Europe/Berlin disabled - - -",
        "bad report daily at 03:00 Europe/Berlin failed - - no payload",
        "idle report daily at 03:00 Europe/Berlin job disabled - - -",
        "both report daily at 03:00 Europe/Berlin paused, job disabled until 12-01 07:00 (in …) - - -",
    ]
    cluster.reader.answers["ListSchedules"] = pb.ListSchedulesResponse()
    assert "toban schedule add" in toban("schedule", "list")[1]


@pytest.mark.seed(149)
def test_get_tells_everything(cluster: Any, toban: Toban) -> None:
    cluster.reader.answers["GetSchedule"] = schedule(status="paused", status_reason="a move", status_actor="ada")
    cluster.reader.answers["NextSlots"] = pb.NextSlotsResponse(slots=[SLOT], note="paused by ada: a move")
    fire = pb.Fire(
        first_slot=at("2026-11-21T02:00:00"), last_slot=at("2026-11-21T02:00:00"), slots=1, outcome="fired", run_id=12
    )
    cluster.reader.answers["ListFires"] = pb.ListFiresResponse(fires=[fire])
    code, out, _ = toban("schedule", "get", "nightly")
    printed = [" ".join(line.split()) for line in out.splitlines()]
    for line in (
        "Name: nightly",
        "Job: report",
        "Rule: daily at 03:00 Europe/Berlin",
        "DST: gap skip",
        "Status: paused by ada: a move",
        "Note: paused by ada: a move",
        'Payload: {"name": "Ada", "n": 1}',
        "2026-10-25T02:30:00+02:00 2026-10-25T00:30:00Z fold: first of two 02:30",
        "2026-11-21T02:00:00Z 1 fired 12 -",
    ):
        assert line in printed
    assert code == 0
    found = json.loads(toban("schedule", "get", "nightly", "-o", "json")[1])
    assert (found["status"], found["spec"]["daily_at"], found["fires"][0]["run_id"]) == ("paused", "03:00", 12)
    assert found["next_slots"][0]["local"] == SLOT.local
    assert toban("schedule", "get", "nightly", "-o", "name")[1] == "nightly\n"


def test_next_of_a_schedule_and_of_a_job(cluster: Any, toban: Toban) -> None:
    def answer(request: Any) -> pb.NextSlotsResponse:
        if request.name == "report":
            raise TobanError(ErrorCode.SCHEDULE_NOT_FOUND, "there is no schedule 'report'")
        note = "paused: a move" if request.name == "weekly" else ""
        return pb.NextSlotsResponse(slots=[SLOT] * request.count, rule="daily at 03:00", note=note)

    cluster.reader.answers["NextSlots"] = answer
    code, out, _ = toban("schedule", "next", "nightly", "--count", "2")
    assert code == 0 and [" ".join(line.split()) for line in out.splitlines()] == [
        "nightly: daily at 03:00",
        "LOCAL UTC RULE OF DST",
        *["2026-10-25T02:30:00+02:00 2026-10-25T00:30:00Z fold: first of two 02:30"] * 2,
    ]
    both = [schedule(), schedule(name="weekly")]
    cluster.reader.answers["ListSchedules"] = pb.ListSchedulesResponse(schedules=both)
    code, out, _ = toban("schedule", "next", "report")
    assert code == 0 and "nightly: daily at 03:00\n" in out and "\nweekly: daily at 03:00 · paused: a move\n" in out
    found = json.loads(toban("schedule", "next", "report", "-n", "1", "-o", "json")[1])
    assert [(one["schedule"], len(one["slots"])) for one in found] == [("nightly", 1), ("weekly", 1)]
    assert toban("schedule", "next", "report", "-o", "name")[1] == "nightly\nweekly\n"


@pytest.mark.parametrize(
    ("text", "after"),
    [
        ("2027-03-28T00:00:00+01:00", "2027-03-27T23:00:00"),
        ("2020-01-01T00:00:00Z", "2020-01-01T00:00:00"),
        ("1970-01-01T00:00:00Z", "1970-01-01T00:00:00"),
    ],
)
def test_next_after_a_time(cluster: Any, toban: Toban, text: str, after: str) -> None:
    asked = []

    def answer(request: Any) -> pb.NextSlotsResponse:
        asked.append(request)
        return pb.NextSlotsResponse(slots=[SLOT], rule="daily at 03:00")

    cluster.reader.answers["NextSlots"] = answer
    assert toban("schedule", "next", "nightly", "--after", text)[0] == 0
    assert asked[0].HasField("after") and asked[0].after.ToDatetime().isoformat() == after
    assert toban("schedule", "next", "nightly")[0] == 0
    assert not asked[1].HasField("after")


def test_next_after_a_span_counts_from_now(cluster: Any, toban: Toban) -> None:
    asked = []

    def answer(request: Any) -> pb.NextSlotsResponse:
        asked.append(request.after.ToDatetime(tzinfo=UTC))
        return pb.NextSlotsResponse(slots=[SLOT], rule="daily at 03:00")

    cluster.reader.answers["NextSlots"] = answer
    begin = SystemClock().wall()
    toban("schedule", "next", "nightly", "--after", "+2d")
    toban("schedule", "next", "nightly", "--after", "2d")
    ahead, ago = asked
    assert timedelta(days=2) <= ahead - begin < timedelta(days=2, minutes=5)
    assert timedelta(days=-2) <= ago - begin < timedelta(days=-2, minutes=5)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("soon", "--after: 'soon' is not a time; write +10m (from now), 10m (ago)"),
        ("2027-02-30", "--after: '2027-02-30' is not a time; write +10m"),
        ("+10", "--after: '+10' is not a time; write +10m"),
        ("+99999999w", "--after: '+99999999w' is too far ahead; write +10m"),
        ("9999-12-31", "--after: '9999-12-31' is not within the years 1970 to 2199; write +10m"),
        ("1969-12-30", "--after: '1969-12-30' is not within the years 1970 to 2199; write +10m"),
    ],
)
def test_next_after_what_is_no_time(toban: Toban, text: str, words: str) -> None:
    code, out, err = toban("schedule", "next", "nightly", "--after", text)
    assert (code, out) == (65, "") and words in err


def test_next_of_nothing(cluster: Any, toban: Toban) -> None:
    cluster.reader.answers["NextSlots"] = TobanError(
        ErrorCode.SCHEDULE_NOT_FOUND, "there is no schedule 'x'", detail={"schedule": "x", "near": "y"}
    )
    cluster.reader.answers["ListSchedules"] = pb.ListSchedulesResponse()
    cluster.reader.answers["GetJob"] = TobanError(ErrorCode.JOB_NOT_FOUND, "there is no job 'x'")
    code, _, err = toban("schedule", "next", "x")
    assert code == 66 and err == "error: there is no schedule or job 'x'; did you mean 'y'?\n"
    cluster.reader.answers["GetJob"] = pb.Job(name="x")
    code, _, err = toban("schedule", "next", "x")
    assert code == 66 and "job 'x' has no schedules; make one with `toban schedule add" in err
    code, _, err = toban("schedule", "next")
    assert code == 65 and "name a schedule or a job" in err


def test_next_of_a_file_needs_no_cluster(toban: Toban, tmp_path: Path) -> None:
    file = tmp_path / "s.yaml"
    file.write_text(
        "apiVersion: toban/v1\nkind: Schedule\nmetadata: {name: a}\n"
        'spec: {job: j, cron: "30 2 * 3 SUN", timezone: Europe/Berlin}\n'
        "---\napiVersion: toban/v1\nkind: Schedule\nmetadata: {name: b}\n"
        "spec: {job: j, every_n_minutes: 5, enabled: false}\n"
        "---\napiVersion: toban/v1\nkind: Job\nmetadata: {name: j}\nspec: {steps: [{argv: ['true']}]}\n"
    )
    code, out, _ = toban("schedule", "next", "-f", str(file), "-n", "9")
    assert code == 0 and "a: cron 30 2 * 3 SUN Europe/Berlin\n" in out
    # The last Sunday of some March among them.
    assert "gap: 02:30 does not exist, shifted to 03:30" in out
    assert "b: every 5 minutes · disabled" in out
    out = toban("schedule", "next", "a", "-f", str(file), "-n", "1", "--after", "2027-03-28T00:00:00+01:00")[1]
    assert "2027-03-28T03:30:00+02:00" in out and "gap: 02:30 does not exist, shifted to 03:30" in out
    assert toban("schedule", "next", "b", "-f", str(file), "-o", "name")[1] == "b\n"
    code, _, err = toban("schedule", "next", "c", "-f", str(file))
    assert code == 66 and "no schedule or job 'c'; there are: a, b" in err
    file.write_text(file.read_text().replace("SUN", "MOON"))
    code, _, err = toban("schedule", "next", "-f", str(file))
    assert code == 67 and "'MOON' is not a day of week" in err
