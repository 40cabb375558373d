"""Run now with a form, pause and resume with a reason, delete; the picture of the durations."""

from __future__ import annotations

import json
import re
from datetime import timedelta
from typing import Any

import pytest

from toban_admin_web.ports.people import SignedIn
from toban_domain.errors import ErrorCode, TobanError
from toban_proto.v1 import coordinator_pb2 as pb
from toban_runtime.clock import SystemClock

SPEC = {
    "name": "hello",
    "default_payload": {"name": "world", "times": 2},
    "payload_schema": {
        "required": ["name"],
        "properties": {"name": {"type": "string"}, "times": {"type": "integer"}},
        "additionalProperties": False,
    },
}
FORM = {"payload.name": "world", "payload.times": "2"}


def sent(web: Any, kind: type) -> list[Any]:
    """The requests of one kind."""
    return [one for one in web.cluster.reader.requests if isinstance(one, kind)]


@pytest.fixture
def job(web: Any) -> Any:
    """A site with a job whose payload has a schema, and that starts run 12."""
    web.cluster.reader.responses |= {
        "GetJob": web.job(spec_json=json.dumps(SPEC)),
        "StartRuns": pb.StartRunsResponse(runs=[pb.StartedRun(run_id=12, created=True)]),
        "PauseSchedule": web.schedule(status="paused"),
        "ResumeSchedule": web.schedule(),
    }
    return web


def test_a_run_starts_with_the_payload_of_the_form(job: Any) -> None:
    assert 'name="payload.name" value="world"' in job.page("/jobs/hello/run")
    assert job.post("/jobs/hello/run", **FORM).location == "/runs/12?done=started"
    [request] = sent(job, pb.StartRunsRequest)
    [run] = request.runs
    assert (run.job, run.payload_json, run.priority, run.HasField("scheduled_for")) == ("hello", "{}", 0, False)
    assert re.fullmatch(r"site-[0-9a-f]{24}", run.idempotency_key)
    changes = {"payload.name": "moon", "payload.times": "", "at": "2026-12-24T18:00", "priority": "7"}
    assert job.post("/jobs/hello/run", **(FORM | changes)).status_code == 303
    [run] = sent(job, pb.StartRunsRequest)[0].runs
    assert (run.payload_json, run.priority) == ('{"name": "moon"}', 7)
    assert run.scheduled_for.ToJsonString() == "2026-12-24T18:00:00Z"


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"payload.times": "two"}, "not a whole number"),
        ({"at": "tomorrow"}, "2026-12-24T18:00"),
        ({"priority": "x"}, "The priority is not"),
        ({"priority": "9" * 12}, "The priority is not"),
    ],
)
def test_what_cannot_be_read_is_shown_beside_the_form(job: Any, changes: dict[str, str], words: str) -> None:
    response = job.post("/jobs/hello/run", **(FORM | changes))
    text = response.get_data(as_text=True)
    assert response.status_code == 400 and words in text and sent(job, pb.StartRunsRequest) == []
    assert f'value="{next(iter(changes.values()))}"' in text, "the form is as it was filled in"


def test_a_payload_that_the_schema_refuses_is_shown_beside_the_form(job: Any) -> None:
    job.refuse("StartRuns", ErrorCode.INVALID_ARGUMENT, "payload.times: 0 is less than <1>")
    response = job.post("/jobs/hello/run", **FORM)
    text = response.get_data(as_text=True)
    assert response.status_code == 400 and "0 is less than &lt;1&gt;" in text


def test_a_disabled_job_says_why_it_does_not_run(job: Any) -> None:
    job.cluster.reader.responses["GetJob"].enabled = False
    assert "The job is disabled" in job.page("/jobs/hello/run")


@pytest.mark.parametrize(
    ("verb", "kind", "done"),
    [("pause", pb.PauseScheduleRequest, "paused"), ("resume", pb.ResumeScheduleRequest, "resumed")],
)
def test_a_schedule_is_paused_and_resumed_with_a_reason(job: Any, verb: str, kind: type, done: str) -> None:
    path = f"/schedules/hello-often/{verb}"
    assert job.post(path, reason="holiday").location == f"/schedules/hello-often?done={done}"
    assert [(one.name, one.reason) for one in sent(job, kind)] == [("hello-often", "holiday")]
    assert job.post(f"{path}?back=job", reason="holiday").location == f"/jobs/hello?done={done}&of=hello-often"
    assert job.post(path, reason=" ").status_code == 400 and sent(job, kind) == []


def test_a_pause_ends_at_the_time_of_the_form(job: Any, subtests: Any) -> None:
    job.cluster.reader.responses["DisableJob"] = disabled(job)
    for path, kind in (
        ("/schedules/hello-often/pause", pb.PauseScheduleRequest),
        ("/jobs/hello/disable", pb.DisableJobRequest),
    ):
        with subtests.test(path):
            assert 'name="until" type="datetime-local" value=""' in job.page(path)
            assert job.post(path, reason="holiday", until="2026-12-01T07:00").status_code == 303
            assert [one.until.ToJsonString() for one in sent(job, kind)] == ["2026-12-01T07:00:00Z"]
            assert job.post(path, reason="holiday", until="").status_code == 303
            assert [one.HasField("until") for one in sent(job, kind)] == [False]
            wrong = job.post(path, reason="holiday", until="soon")
            assert wrong.status_code == 400 and sent(job, kind) == []
            text = wrong.get_data(as_text=True)
            assert 'value="soon"' in text and "2026-12-24T18:00" in text, "it is as it was filled in"


def test_a_pause_that_skips_nothing_says_so(job: Any, subtests: Any) -> None:
    """The next slot is at 19:01:00."""
    slot = job.schedule().next_run_at.ToDatetime()
    job.cluster.reader.responses["DisableJob"] = disabled(job)
    for path, page, done in (
        ("/schedules/hello-often/pause", "/schedules/hello-often", "paused"),
        ("/jobs/hello/disable", "/jobs/hello", "job_disabled"),
    ):
        for until, idle in ((slot, True), (slot + timedelta(minutes=1), False)):
            with subtests.test(path, idle=idle):
                answer = job.post(path, reason="holiday", until=f"{until:%Y-%m-%dT%H:%M:%S}")
                assert answer.location == f"{page}?done={done}{'_idle' if idle else ''}"
        assert "skips nothing" in (text := job.page(f"{page}?done={done}_idle")) or "none is skipped" in text
        assert ">Undo…<" in text


def test_a_schedule_with_a_rule_that_cannot_be_read_is_paused(job: Any) -> None:
    job.refuse("NextSlots", ErrorCode.SCHEDULE_INVALID, "schedule 'hello-often': cron: is not known")
    answer = job.post("/schedules/hello-often/pause", reason="holiday", until="2026-12-01T07:00")
    assert answer.location == "/schedules/hello-often?done=paused"
    assert [one.until.ToJsonString() for one in sent(job, pb.PauseScheduleRequest)] == ["2026-12-01T07:00:00Z"]


def test_a_schedule_of_a_disabled_job_is_not_active(job: Any, subtests: Any) -> None:
    end = {"seconds": 4_000_000_000}
    for status, until, expected in (
        ("active", None, ["job_disabled"]),
        ("active", end, ["job_disabled"]),
        ("paused", None, ["paused", "job_disabled"]),
    ):
        schedule = job.schedule(status=status, job_disabled=True, job_disabled_until=until, next_run_at=None)
        job.cluster.reader.responses |= {
            "GetSchedule": schedule,
            "GetJob": disabled(job, schedules=[schedule]),
            "ListSchedules": pb.ListSchedulesResponse(schedules=[schedule]),
        }
        for path in ("/schedules", "/schedules/hello-often", "/jobs/hello"):
            with subtests.test(path, status=status, until=until):
                text = job.page(path)
                # The badge of the job comes first.
                own = ["paused"] if path == "/jobs/hello" else []
                shown = text.partition("triggers-title")[0]
                assert re.findall(r'<span class="badge [a-z]+" title="(job_disabled|paused|active)">', shown) == [
                    *own,
                    *expected,
                ]
                assert ("until <time" in text) == (until is not None)


def test_slots_before_the_end_of_a_pause_are_said_to_get_no_run(job: Any, subtests: Any) -> None:
    """Coordinators of an earlier release give no next run of what is off, whether that has an end or not."""
    soon, late = job.stamp(-60), job.stamp(-120)
    job.cluster.reader.responses["NextSlots"] = pb.NextSlotsResponse(
        slots=[pb.NextSlot(at=job.stamp(-seconds), local="x") for seconds in (30, 90, 150)]
    )
    both = {"status": "paused", "paused_until": soon, "job_disabled": True}
    for name, given, without in (
        ("active", {"next_run_at": job.stamp(-30)}, 0),
        ("the next run is known", {"status": "paused", "paused_until": soon, "next_run_at": job.stamp(-90)}, 1),
        ("paused", {"status": "paused"}, 3),
        ("paused with an end", {"status": "paused", "paused_until": soon}, 1),
        ("the job disabled with an end", {"job_disabled": True, "job_disabled_until": late}, 2),
        ("both with an end", {**both, "job_disabled_until": late}, 2),
        ("one without an end", both, 3),
        ("switched off", {"enabled": False, "status": "paused", "paused_until": soon}, 3),
    ):
        job.cluster.reader.responses["GetSchedule"] = job.schedule(**{"next_run_at": None, **given})
        with subtests.test(name):
            assert job.page("/schedules/hello-often").count(">no run<") == without


def test_pages_say_when_a_pause_ends(job: Any, subtests: Any) -> None:
    end = {"seconds": 4_000_000_000}
    schedule = job.schedule(status="paused", paused_until=end)
    found = disabled(job, disabled_until=end, schedules=[schedule])
    job.cluster.reader.responses |= {
        "GetSchedule": schedule,
        "GetJob": found,
        "ListJobs": pb.ListJobsResponse(jobs=[found]),
        "ListSchedules": pb.ListSchedulesResponse(schedules=[schedule]),
    }
    shown = 'until <time datetime="2096-10-02T07:06:40.000Z">'
    for path, times in (
        ("/schedules/hello-often", 1),
        ("/schedules", 1),
        ("/schedules/hello-often/resume", 1),
        ("/jobs", 1),
        ("/jobs/hello", 2),
        ("/jobs/hello/enable", 1),
    ):
        with subtests.test(path):
            assert job.page(path).count(shown) == times
    assert 'href="/schedules/hello-often/pause"' in job.page("/schedules/hello-often/resume"), "to change the time"
    assert 'href="/jobs/hello/disable"' in job.page("/jobs/hello/enable")


def test_what_was_done_can_be_undone(job: Any, subtests: Any) -> None:
    for page, undo in (
        ("/schedules/hello-often?done=paused", "/schedules/hello-often/resume?reason=Undo:+The+schedule+is+paused."),
        ("/schedules/hello-often?done=resumed", "/schedules/hello-often/pause?reason="),
        ("/jobs/hello?done=paused&of=hello-often", "/schedules/hello-often/resume?reason="),
        ("/jobs/hello?done=job_disabled", "/jobs/hello/enable?reason="),
        ("/jobs/hello?done=job_enabled", "/jobs/hello/disable?reason="),
        ("/executors?done=drained&of=3", "/executors/3/undrain?reason="),
        ("/users/bob?done=user_disabled", "/users/bob/enable?reason="),
    ):
        with subtests.test(page):
            [link] = re.findall(r'<a class="button" href="([^"]+)">Undo…</a>', job.page(page))
            assert link.startswith(undo)
            form = job.page(link.replace("&amp;", "&"))
            assert re.search(r'<textarea id="reason"[^>]*>Undo: The [^<]+\.</textarea>', form)
    for page in (
        "/jobs/hello?done=job_deleted",
        "/jobs/hello?done=paused",
        "/executors?done=drained&of=x",
        "/jobs/hello",
    ):
        assert ">Undo…<" not in job.page(page), page


@pytest.mark.parametrize(
    ("status", "enabled", "offered"),
    [("active", True, ["pause"]), ("paused", True, ["resume"]), ("failed", True, ["resume"]), ("active", False, [])],
)
def test_what_is_offered_for_a_schedule(job: Any, status: str, enabled: bool, offered: list[str]) -> None:
    schedule = job.schedule(status=status, enabled=enabled)
    job.cluster.reader.responses |= {
        "GetSchedule": schedule,
        "GetJob": job.job(schedules=[schedule]),
        "ListSchedules": pb.ListSchedulesResponse(schedules=[schedule]),
    }
    for path, also in (("/schedules/hello-often", ["edit"]), ("/schedules", []), ("/jobs/hello", [])):
        assert re.findall(r'href="/schedules/hello-often/([a-z]+)[?"]', job.page(path)) == [*also, *offered]


def disabled(web: Any, **given: Any) -> pb.Job:
    """The job, as a person disabled it."""
    fields = {"disabled_by": "user ada", "disabled_reason": "the <source> moves", "disabled_at": web.stamp(60)}
    job: pb.Job = web.job(spec_json=json.dumps(SPEC), **(fields | given))
    job.enabled = False
    return job


def test_a_job_is_disabled_with_a_reason(job: Any) -> None:
    job.cluster.reader.responses["DisableJob"] = disabled(job)
    assert 'href="/jobs/hello/disable"' in job.page("/jobs/hello")
    assert job.post("/jobs/hello/disable", reason="a move").location == "/jobs/hello?done=job_disabled"
    assert [(one.name, one.reason) for one in sent(job, pb.DisableJobRequest)] == [("hello", "a move")]
    assert job.post("/jobs/hello/disable", reason=" ").status_code == 400 and sent(job, pb.DisableJobRequest) == []
    job.refuse("DisableJob", ErrorCode.RESOURCE_INVALID_STATE, "job 'hello' is disabled already")
    response = job.post("/jobs/hello/disable", reason="a move")
    assert response.status_code == 409 and "is disabled already" in response.get_data(as_text=True)


def test_a_disabled_job_says_by_whom_and_why(job: Any) -> None:
    found = disabled(job)
    job.cluster.reader.responses |= {"GetJob": found, "ListJobs": pb.ListJobsResponse(jobs=[found])}
    for path in ("/jobs/hello", "/jobs", "/jobs/hello/run", "/jobs/hello/enable"):
        assert "the &lt;source&gt; moves" in job.page(path), path
    text = job.page("/jobs/hello")
    assert "by user ada" in text and 'href="/jobs/hello/enable"' in text and 'href="/jobs/hello/disable"' not in text
    assert '<a class="button" href="/jobs/hello/run"' in text, "what would be refused is not the first choice"
    assert 'href="/jobs/hello/enable">Enable…</a>' in job.page("/jobs/hello/run")


def test_a_job_is_enabled_as_it_was_seen(job: Any) -> None:
    found = disabled(job)
    found.disabled_at.nanos = 123456000
    job.cluster.reader.responses |= {"GetJob": found, "EnableJob": job.job()}
    assert job.post("/jobs/hello/enable", reason="it is back").location == "/jobs/hello?done=job_enabled"
    [request] = sent(job, pb.EnableJobRequest)
    assert (request.name, request.reason, request.disabled_at) == ("hello", "it is back", found.disabled_at)
    job.cluster.reader.responses["EnableJob"] = job.job(enabled=False)
    assert job.post("/jobs/hello/enable", reason="x").location == "/jobs/hello?done=job_stays_disabled"
    for seen in ("", "yesterday", "2026-11-23T19:00:00"):
        assert job.post("/jobs/hello/enable", reason="x", seen=seen).status_code == 400
        assert sent(job, pb.EnableJobRequest) == []
    job.refuse("EnableJob", ErrorCode.CONFLICT, "job 'hello' was disabled again meanwhile by user bob")
    response = job.post("/jobs/hello/enable", reason="x")
    assert response.status_code == 409 and "disabled again meanwhile" in response.get_data(as_text=True)


def test_a_job_is_deleted_with_what_was_chosen(job: Any) -> None:
    assert job.post("/jobs/hello/delete", reason="old", cancel_runs="1").location == "/jobs?done=job_deleted"
    [request] = sent(job, pb.DeleteJobRequest)
    assert (request.name, request.reason) == ("hello", "old")
    assert (request.with_schedules, request.with_triggers, request.cancel_runs) == (False, False, True)
    job.refuse("DeleteJob", ErrorCode.RESOURCE_INVALID_STATE, "job hello has schedules; delete them too")
    response = job.post("/jobs/hello/delete", reason="old", cancel_runs="1")
    text = response.get_data(as_text=True)
    assert response.status_code == 409 and "has schedules" in text and 'name="cancel_runs" value="1" checked' in text


def test_an_operator_starts_runs_and_edits_nothing(job: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    people = job.worker.context.gate.people
    monkeypatch.setattr(people, "person", lambda *_args, **_named: SignedIn(user="op", role="operator"))
    text = job.page("/jobs/hello")
    assert "/jobs/hello/run" in text and "/delete" not in text and "/pause" not in text
    assert ">Undo…<" not in job.page("/jobs/hello?done=job_disabled")
    for path in ("/jobs/hello/delete", "/schedules/hello-often/pause", "/schedules/hello-often/resume"):
        assert job.get(path).status_code == 403


def test_the_durations_of_the_last_runs_are_a_picture(job: Any) -> None:
    runs = [
        job.run(9, "RUNNING", started_at=job.stamp(5, SystemClock().wall())),
        job.run(8, "FAILED", started_at=job.stamp(100), finished_at=job.stamp(40)),
        job.run(7, "SUCCEEDED", started_at=job.stamp(200), finished_at=job.stamp(200)),
    ]
    job.cluster.reader.responses["ListRuns"] = pb.ListRunsResponse(runs=runs)
    text = job.page("/jobs/hello")
    bars = re.findall(r'<rect class="([a-z]+)" x="([0-9.]+)" y="([0-9.]+)" width="24.0" height="([0-9.]+)"', text)
    assert [(one[0], one[1]) for one in bars] == [("good", "64.0"), ("bad", "90.0"), ("busy", "116.0")]
    assert bars[0][2:] == ("178.0", "2.0") and bars[1][2:] == ("16.0", "164.0")
    assert "at most 1 m 00 s, p50 0.00 s, p95 1 m 00 s" in text and text.count('<path class="failed"') == 1
    assert re.findall(r'<text class="tick"[^>]*>([^<]*)', text) == ["0", "15.0 s", "30.0 s", "45.0 s", "1 m 00 s"]
    assert len(re.findall(r'class="share"', text)) == 2 and 'class="times"' in text
    job.cluster.reader.responses["ListRuns"] = pb.ListRunsResponse(runs=[pb.Run(id=1, state="PENDING")])
    assert '<figure class="durations">' not in job.page("/jobs/hello"), "none has started"


def test_a_form_keeps_its_key_when_the_fate_of_its_run_is_not_known(job: Any) -> None:
    """The run may have started, so the same form must not start a second one."""
    job.cluster.reader.responses["StartRuns"] = TobanError(ErrorCode.DEADLINE_EXCEEDED, "too slow")
    key = "site-" + "a" * 24
    response = job.post("/jobs/hello/run", **(FORM | {"key": key}))
    assert response.status_code >= 400 and f'name="key" value="{key}"' in response.get_data(as_text=True)
