"""Every page over a cluster with given responses: content, language, and escaping."""

from __future__ import annotations

import json
import re
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from toban_domain.errors import ErrorCode
from toban_proto.v1 import coordinator_pb2 as pb
from toban_proto.v1.common_pb2 import ErrorLine
from toban_runtime.clock import SystemClock
from toban_testing.site_messages import PAGES
from toban_transport.tls import TlsFiles
from toban_transport.tls_reload import certificate_check

# They refresh a part of themselves.
LIVE = PAGES[:13]


@pytest.mark.parametrize("language", ["en", "ja", "zh-Hant"])
def test_every_page_in_every_language(web: Any, language: str, subtests: pytest.Subtests) -> None:
    for path in PAGES:
        with subtests.test(path):
            text = web.page(path, Accept_Language=language)
            assert f'<html lang="{language}">' in text
            assert not re.search(
                r"\b(nav|run|cluster|job|schedule|log|state|filter)\.[a-z_]{3,}\b", re.sub(r'="[^"]*"', "", text)
            )


@pytest.mark.parametrize("path", LIVE)
def test_a_part_has_the_ids_of_its_page(web: Any, path: str) -> None:
    part = web.page(path + "?part=1")
    ids = re.findall(r'<div id="([a-z-]+)" data-part', part)
    assert ids and "<html" not in part
    whole = web.page(path)
    assert all(f'id="{one}"' in whole for one in ids)


def test_the_cluster(web: Any) -> None:
    text = web.page("/cluster")
    assert str(web.cluster.reader.responses["GetCluster"].epoch) in text, "an epoch is shown digit by digit"
    for seen in (
        "127.0.0.1:5000",
        "127.0.0.1:5001",
        "executor-1",
        "zone=north",
        "4 / 16",
        "Slots in use: 4 of 16",
    ):
        assert seen in text
    assert re.search(r"Redis</span>\s*<span class=\"value\">no</span>", text) and "warning" in text


@pytest.mark.parametrize(
    ("given", "words"),
    [({"last_beat_at": None, "leader_address": ""}, "no leader"), ({"last_beat_at": 20}, "not responding")],
)
def test_a_cluster_without_an_active_leader(web: Any, given: dict[str, Any], words: str) -> None:
    if given["last_beat_at"]:
        given = {"last_beat_at": web.stamp(given["last_beat_at"])}
    web.cluster.reader.responses["GetCluster"] = web.whole(**given)
    assert words in web.page("/cluster")


def test_a_run_with_all_its_fields(web: Any) -> None:
    web.cluster.reader.responses["GetRun"] = web.run(
        1,
        "FAILED",
        exit_code=3,
        finished_at=web.stamp(25),
        error_summary="exit code 3",
        progress_json='{"percentage": 40, "summary": "half way"}',
        created_by="admin-cli",
        idempotency_key="k1",
        rerun_of=9,
        reruns=[11],
        after_run=8,
        reason="exit_code",
        last_line="ValueError: no <b>",
        attempts=[
            pb.Attempt(
                token=web.token,
                state="FAILED",
                error_lines=[ErrorLine(seq=7, text="Traceback"), ErrorLine(seq=9, text="ValueError: no <b>")],
            )
        ],
    )
    text = web.page("/runs/1")
    assert text.index("ValueError: no &lt;b&gt;") < text.index("exit code 3") < text.index('<a href="#L9">')
    assert '<a class="seq" href="#L7">7</a> <span>Traceback</span>' in text
    for seen in (
        "exit code 3",
        "half way",
        'value="40.0"',
        "admin-cli",
        "k1",
        "/runs/9",
        "/runs/11",
        "/runs/8",
        str(web.token),
        "&#34;name&#34;: &#34;world&#34;",
    ):
        assert seen in text
    assert "line 1" in text and "line 2" in text and f'data-cursor="{web.token}:2"' in text
    assert "data-refresh" not in text, "an ended run is not refreshed"
    assert "data-final" in web.page("/runs/1?part=1")


def test_the_time_that_a_run_was_in_each_state(web: Any) -> None:
    events = [
        pb.RunEvent(type="created", to_state="PENDING", at=web.stamp(100)),
        pb.RunEvent(type="assigned", from_state="PENDING", to_state="ASSIGNED", at=web.stamp(40)),
        pb.RunEvent(type="noted", at=web.stamp(35), message="a remark"),
        pb.RunEvent(type="finished", from_state="ASSIGNED", to_state="FAILED", at=web.stamp(30)),
    ]
    web.cluster.reader.responses["GetRun"] = web.run(
        1, "FAILED", finished_at=web.stamp(30), scheduled_for=web.stamp(100), events=events
    )
    text = web.page("/runs/1")
    assert 'aria-label="Life of the run: waiting 1 m 00 s · assigned 10.0 s"' in text
    bar = re.findall(r'<rect class="(\w+)" x="([\d.]+)" width="([\d.]+)" height="12"><title>([^<]+)</title>', text)
    assert [(tone, title) for tone, _, _, title in bar] == [("wait", "waiting 1 m 00 s"), ("sent", "assigned 10.0 s")]
    assert float(bar[0][2]) == pytest.approx(float(bar[1][2]) * 6, rel=0.01)
    assert float(bar[1][1]) == pytest.approx(float(bar[0][2]), abs=0.1)
    stays = re.findall(r"· ([^·<]+) in this state", text)
    assert stays == ["1 m 00 s", "10.0 s"], "neither the remark nor the end begins a stay"


def test_the_page_of_a_run_shows_only_what_there_is(web: Any) -> None:
    given = {"attempt": 1, "max_attempts": 1, "started_at": None, "executor": "", "attempts": [], "events": []}
    web.cluster.reader.responses["GetRun"] = web.run(1, "PENDING", **given)
    text = web.page("/runs/1")
    facts = text[text.index('<div id="run-facts"') : text.index("</aside>")]
    assert re.findall(r"<dt>([^<]+)</dt>", facts) == ["State", "Job", "Due", "Started by"]
    assert "1 of 1" not in text and "–</dd>" not in text and 'class="life"' not in text and "attempts-title" not in text


def test_each_time_of_a_run_is_shown_once_and_rare_facts_are_folded(web: Any) -> None:
    run = web.run(1, "SUCCEEDED", finished_at=web.stamp(25), exit_code=0, idempotency_key="k1", leader_epoch=7)
    web.cluster.reader.responses["GetRun"] = run
    text = web.page("/runs/1")
    facts = text[text.index('<div id="run-facts"') : text.index("</aside>")]
    # Its page is not read again, so a distance from now would grow wrong.
    assert facts.count("UTC") == facts.count("<time ") == 3 and " ago" not in facts
    fold = text[text.index('<details id="run-technical"') :]
    fold = fold[: fold.index("</details>")]
    for seen in ("Technical", "k1", str(web.token), "Definition version</dt><dd>3", "Term"):
        assert seen in fold and seen not in text.replace(fold, "").replace(f'"{web.token}', ""), seen
    assert text.index('id="run-news"') < text.index('id="log"') < text.index('id="run-facts"'), "as a phone shows them"


def test_a_run_with_steps_and_output(web: Any) -> None:
    eta = web.stamp(-(10**9)).ToDatetime().isoformat() + "+00:00"
    run = web.run(
        result_json='{"rows": 3}',
        phase="pack",
        has_checkpoint=True,
        progress_json=f'{{"percentage": 25, "steps": {{"done": 3, "total": 12}}, "eta": "{eta}"}}',
    )
    run.steps.add(id="load", name="Load <rows>", state="succeeded", exit_code=0, seq_from=1, seq_to=20)
    run.steps.add(id="pack", name="Pack it", state="running")
    first = run.attempts.add(token=1, attempt=1, state="LOST")
    first.steps.add(number=2, id="pack", state="lost", seq_from=7, seq_to=9)
    run.attempts.add(token=2, attempt=2, state="RUNNING")
    web.cluster.reader.responses["GetRun"] = run
    text = web.page("/runs/1")
    for seen in (
        "&#34;rows&#34;: 3",
        "3 of 12",
        "expected to end",
        "Load &lt;rows&gt;",
        "1–20",
        '<dd>Pack it <span class="muted">pack</span></dd>',
        '<td data-label="Name">Pack it <span class="muted">pack</span></td>',
        "kept for the next attempt",
    ):
        assert seen in text
    assert "7–9" not in text and "7–9" in web.page("/runs/1?dispatch=2")
    passed = web.stamp(10).ToDatetime().isoformat() + "+00:00"
    run.progress_json = run.progress_json.replace(eta, passed)
    text = web.page("/runs/1")
    assert "later than expected" in text and "expected to end" not in text


@pytest.mark.seed(115)
def test_a_live_run_is_refreshed_and_its_log_followed(web: Any) -> None:
    text = web.page("/runs/1?lang=ja")
    assert 'data-refresh="/runs/1?lang=ja&amp;part=1"' in text
    assert 'data-stream="/runs/1/log/stream?lang=ja"' in text


def test_a_run_that_ended_long_ago_has_no_stream(web: Any) -> None:
    web.cluster.reader.responses["GetRun"] = web.run(1, "SUCCEEDED", finished_at=web.stamp(3600))
    text = web.page("/runs/1")
    assert "data-stream" not in text and "end of the output" in text


def test_streams_are_labelled_and_long_lines_joined(web: Any) -> None:
    web.cluster.logs.lines[web.token] = [
        web.line(1, "one ", partial=True),
        web.line(2, "two"),
        web.line(3, "bad", stream=2),
        web.line(4, "cut", stream=3),
    ]
    text = web.page("/runs/1")
    assert "one two" in text
    assert re.search(r'class="row stderr"[^>]*>.*?class="stream">err<.*?bad', text)
    assert re.search(r'class="row system"[^>]*>.*?class="stream">toban<.*?cut', text)


def test_a_slow_log_archiver_delays_a_page_by_two_seconds(web: Any) -> None:
    web.cluster.logs.silent = True
    text = web.page("/runs/1")
    assert "The output is unavailable" in text and "Payload" in text


def test_a_page_without_a_log_archiver(web: Any) -> None:
    web.cluster.stop_archiver()
    text = web.page("/runs/1")
    assert "no log-archiver answers" in text and "Payload" in text


def test_runs_by_filter_and_page(web: Any) -> None:
    web.cluster.reader.responses["ListRuns"] = pb.ListRunsResponse(runs=[web.run(7)], next_cursor="7")
    text = web.page("/runs?job=hello&state=unsuccessful&limit=25")
    [asked] = web.asked(pb.ListRunsRequest)
    assert (asked.job, asked.page.limit, asked.include_ahead) == ("hello", 25, False)
    assert sorted(asked.states) == ["CANCELED", "EXPIRED", "FAILED", "TIMED_OUT"]
    assert '"/runs?job=hello&amp;state=unsuccessful&amp;limit=25&amp;cursor=7"' in text
    assert '"/runs?state=unsuccessful&amp;limit=25"' in text, "a chip removes one filter"
    web.page("/runs?cursor=7&state=nonsense&limit=9999&cursor=x")
    asked = web.asked(pb.ListRunsRequest)[-1]
    assert list(asked.states) == [] and asked.page.limit == 50


def test_a_line_of_filters_leads_to_the_list_and_says_what_is_wrong(web: Any) -> None:
    response = web.get("/runs?q=state:failed+job:nightly*+label:team%3Ddata")
    assert response.status_code == 303
    assert response.headers["Location"].endswith("/runs?job=nightly*&state=FAILED&label=team%3Ddata")
    text = web.page("/runs?job=nightly*&state=FAILED")
    assert 'name="q" value="job:nightly* state:failed"' in text and "Filter (2)" in text
    text = web.page("/runs?q=state:failed+<x>+foo:bar")
    assert "There is no key “foo”" in text and "“&lt;x&gt;” has no key" in text and 'aria-invalid="true"' in text
    assert list(web.asked(pb.ListRunsRequest)[-1].states) == ["FAILED"], "what was understood counts"
    assert 'value="state:failed &lt;x&gt; foo:bar"' in text and "More filters" in web.page("/runs")


def test_only_the_first_page_is_refreshed(web: Any) -> None:
    assert "data-refresh" in web.page("/runs") and "data-refresh" not in web.page("/runs?cursor=7")


def test_empty_lists_name_a_command(web: Any) -> None:
    web.cluster.reader.responses |= {
        "ListRuns": pb.ListRunsResponse(),
        "ListJobs": pb.ListJobsResponse(),
        "ListSchedules": pb.ListSchedulesResponse(),
        "ListExecutors": pb.ListExecutorsResponse(),
    }
    assert "toban run start" in web.page("/runs") and "toban apply" in web.page("/jobs")
    assert "toban apply" in web.page("/schedules") and "No executor is registered" in web.page("/executors")
    assert "No run matches" in web.page("/runs?job=x")


def test_jobs_and_schedules_are_filtered_by_a_part_of_the_name(web: Any) -> None:
    web.cluster.reader.responses |= {
        "ListJobs": pb.ListJobsResponse(jobs=[web.job()], next_cursor="hello"),
        "ListSchedules": pb.ListSchedulesResponse(schedules=[web.schedule()], next_cursor="hello-often"),
    }
    for path, kind in (("/jobs", pb.ListJobsRequest), ("/schedules", pb.ListSchedulesRequest)):
        text = web.page(f"{path}?name=+hel%22lo")
        assert [one.name for one in web.asked(kind)] == ['hel"lo']
        assert 'name="name" value="hel&#34;lo"' in text and f'href="{path}?name=hel%22lo&amp;cursor=hello' in text
    web.cluster.reader.responses |= {"ListJobs": pb.ListJobsResponse(), "ListSchedules": pb.ListSchedulesResponse()}
    for path in ("/jobs", "/schedules"):
        assert "No name has this part." in web.page(f"{path}?name=x")


def test_a_schedule_with_its_next_and_last_slots(web: Any) -> None:
    text = web.page("/schedules/hello-often")
    assert "2026-11-21 03:00:00+01:00" in text and "fold first" in text and "run created" in text and "/runs/7" in text
    assert "change of the clocks" not in text


def test_a_schedule_says_what_the_next_change_of_the_clocks_does(web: Any) -> None:
    said = "2027-03-28: 02:30 does not exist, runs as much later as the clock jumps (gap: shift)"
    web.cluster.reader.responses["NextSlots"].clock_change = said
    assert f"The next change of the clocks that matters: {said}" in web.page("/schedules/hello-often")


def test_the_cluster_page_warns_when_no_executor_accepts_runs(web: Any) -> None:
    assert "No executor accepts new runs" not in web.page("/")
    executor = web.cluster.reader.responses["GetCluster"].executors[0]
    executor.state = "detached"
    text = web.page("/")
    assert "No executor accepts new runs" in text and "undrain" not in text
    executor.state, executor.drained = "draining", True
    assert "toban executor undrain" in web.page("/")


def test_the_reason_of_waiting_has_a_translated_label(web: Any) -> None:
    web.cluster.reader.responses["GetRun"] = web.run(7, "PENDING", waiting="every slot is taken")
    assert "Waiting: every slot is taken" in web.page("/runs/7")
    assert '等待原因: <span lang="en">every slot is taken</span>' in web.page("/runs/7?lang=zh-Hant")


def test_what_a_service_says_is_in_the_language_of_the_page(web: Any) -> None:
    waiting = "limit pool:gpu is reached (2 of 2 are taken)"
    web.cluster.reader.responses["GetRun"] = web.run(7, "PENDING", waiting=waiting)
    assert f"Waiting: {waiting}" in web.page("/runs/7")
    assert "リミット pool:gpu に達しています (2 中 2 を使用)" in web.page("/runs/7?lang=ja")


def test_a_time_in_what_a_service_says_is_shown_as_other_times(web: Any) -> None:
    shown = '<time datetime="2026-12-01T08:00:00.000Z">2026-12-01 08:00:00 UTC</time>'
    web.cluster.reader.responses["GetRun"] = web.run(7, "PENDING", waiting="it was due at 2026-12-01 08:00:00 UTC")
    assert f"Waiting: it was due at {shown}" in web.page("/runs/7")
    assert shown in web.page("/runs/7?lang=ja")


def test_a_run_that_was_just_confirmed_says_so(web: Any) -> None:
    run = web.run(7, "RUNNING", continuation_state="CONFIRMING")
    web.cluster.reader.responses["GetRun"] = run
    assert "Continuation" in web.page("/runs/7")
    run.continuation_state = "NONE"
    assert "Continuation" not in web.page("/runs/7")


def test_the_certificate_check_is_translated(web: Any, tls: Path) -> None:
    check = certificate_check(TlsFiles(tls / "admin-web"), SystemClock().wall())
    result = {"status": check.status, "value": check.value}
    web.cluster.reader.responses["GetCluster"].health_json = json.dumps(
        {"status": "ok", "checks": {"certificate": result}}
    )
    assert isinstance(check.value, dict)
    text = web.page("/")
    assert [name for name in check.value if "_" in name and name in text] == []


def test_a_schedule_has_a_calendar_of_a_month(web: Any) -> None:
    text = web.page("/schedules/hello-often?month=2199-11")
    month = text.partition('<section id="month"')[2]
    assert "Calendar of Nov 2199" in month and month.count("17280 slots") == 30 and 'scope="col">Mon<' in month
    assert "month=2199-10#month" in month and "month=2199-12#month" in month
    assert "1:00" not in month and [one.page.limit for one in web.asked(pb.ListFiresRequest)] == [20]
    web.cluster.reader.requests.clear()
    month = web.page("/schedules/hello-often?month=soon").partition('<section id="month"')[2]
    assert 'aria-current="date"' in month and "run created" in month
    assert [one.page.limit for one in web.asked(pb.ListFiresRequest)] == [20, 500]
    assert 'id="month"' not in web.page("/schedules/hello-often?part=1")
    note = "paused until 2199-12-01T08:00:00Z by user ada; its slots pass without runs until then, or `toban schedule resume hello-often`"
    web.cluster.reader.responses["NextSlots"] = pb.NextSlotsResponse(note=note)
    month = web.page("/schedules/hello-often?lang=ja").partition('<section id="month"')[2]
    assert "user ada" in month and "its slots pass" not in month


def test_cron_rules_have_words_in_each_language(web: Any) -> None:
    def stored(cron: str) -> None:
        one = web.schedule(spec_json=json.dumps({"name": "hello-often", "cron": cron}))
        web.cluster.reader.responses |= {"GetSchedule": one, "ListSchedules": pb.ListSchedulesResponse(schedules=[one])}

    stored("0 3 * * 0")
    for path in ("/schedules", "/schedules/hello-often"):
        assert 'cron 0 3 * * 0 <span class="ago">weekly on Sun at 03:00</span>' in web.page(f"{path}?lang=en")
        assert '<span class="ago">毎週 日 03:00</span>' in web.page(f"{path}?lang=ja")
    stored("0 3 1 * 0")
    assert "cron 0 3 1 * 0</td>" in web.page("/schedules?lang=en")


def test_a_schedule_in_utc_has_one_column_of_times(web: Any) -> None:
    assert 'class="list one-zone"' in web.page("/schedules/hello-often")
    web.cluster.reader.responses["GetSchedule"].timezone = "Asia/Tokyo"
    assert "one-zone" not in web.page("/schedules/hello-often")


def test_a_schedule_of_coordinators_of_an_older_release(web: Any) -> None:
    web.refuse("NextSlots", ErrorCode.UNIMPLEMENTED)
    web.refuse("ListFires", ErrorCode.UNIMPLEMENTED)
    assert web.page("/schedules/hello-often").count("does not support") == 2


@pytest.mark.parametrize("path", ["/executors", "/cluster"])
def test_the_class_of_an_executor_and_what_isolates_its_jobs(web: Any, path: str) -> None:
    given = [web.executor(), web.executor(worker_id=4, isolation="", isolation_details=[])]
    web.cluster.reader.responses |= {
        "ListExecutors": pb.ListExecutorsResponse(executors=given),
        "GetCluster": web.whole(executors=given),
    }
    cells = re.findall(r'<td data-label="Class">(.*?)</td>', web.page(path))
    shown = '<summary>isolated</summary><span class="muted">uids 61000-61003, pid namespace</span>'
    assert cells == [f'<details id="class-3">{shown}</details>', "shared"]


def test_executors_that_are_off_on_request(web: Any) -> None:
    web.page("/executors")
    web.page("/executors?gone=1")
    asked = web.asked(pb.ListExecutorsRequest)
    assert [one.include_off for one in asked] == [False, True]


def test_languages_are_chosen_and_kept(web: Any) -> None:
    text = web.page("/runs?job=x&lang=ja", Accept_Language="en")
    assert '<html lang="ja">' in text and 'href="/jobs?lang=ja"' in text
    assert 'href="/runs?job=x&amp;lang=zh-Hant"' in text, "changing the language keeps the filters"
    assert 'href="/jobs"' in web.page("/runs", Accept_Language="ja")


def test_times_are_machine_readable_and_in_utc(web: Any) -> None:
    assert re.search(r'<time datetime="[\d-]+T[\d:.]+Z">[\d-]+ [\d:]+ UTC</time>', web.page("/schedules"))


def test_the_audit_refreshes_itself_only_without_a_filter(web: Any) -> None:
    assert "data-refresh" in web.page("/audit")
    assert "data-refresh" not in web.page("/audit?actor=user+ada")
    assert "data-refresh" not in web.page("/audit?cursor=9")


@pytest.mark.usefixtures("production_waits")
def test_the_audit_has_more_time_than_another_page(web: Any) -> None:
    web.page("/audit")
    # gRPC rounds deadlines up.
    assert 15 < web.cluster.reader.seconds[0] < 26
    web.cluster.reader.seconds.clear()
    web.page("/jobs")
    assert web.cluster.reader.seconds[0] < 2.5


def test_required_fields_say_so(web: Any, subtests: Any) -> None:
    for path in (*PAGES, "/account", "/new/job", "/jobs/hello/edit"):
        with subtests.test(path):
            text = web.page(path)
            labels = dict(re.findall(r'<label for="([^"]*)"[^>]*>(.*?)</label>', text, re.DOTALL))
            fields = re.findall(r"<(?:input|textarea|select) ([^>]*)>", text)
            required = {match[1] for one in fields if " required" in one and (match := re.search(r'id="([^"]*)"', one))}
            # A form of one field needs no mark.
            for name in required - {"view-name", "limit-name", "before"}:
                assert '<span class="required">required</span>' in labels[name], name
            assert "reason" in required or "Reason (kept" not in labels.get("reason", "")


def test_the_check_of_the_epoch_shows_the_term_as_the_leader_does(web: Any) -> None:
    found = web.cluster.reader.responses["GetCluster"]
    found.health_json = json.dumps({"checks": {"epoch": {"status": "ok", "value": str(found.epoch)}}})
    shown = re.findall(r'<span title="[^"]*' + str(found.epoch) + '">([^<]*)</span>', web.page("/cluster"))
    assert len(shown) >= 2 and len(set(shown)) == 1


def test_pictures_let_their_links_be_reached_and_landmarks_have_names_of_their_own(web: Any, subtests: Any) -> None:
    web.cluster.reader.responses["GetJobDays"] = pb.JobDays(
        days=[pb.JobDay(day=(SystemClock().wall() - timedelta(days=60)).date().isoformat(), succeeded=1)]
    )
    web.cluster.reader.responses["ListRuns"].next_cursor = "5"
    web.cluster.reader.responses["CountRuns"] = lambda asked: pb.RunCounts(
        since=asked.filter.active_from,
        until=asked.filter.active_until,
        groups=[pb.RunGroup(name="executor-1", intervals=[pb.RunInterval(at=web.stamp(), runs={"FAILED": 1})])],
    )
    pictures = 0
    for path in PAGES:
        with subtests.test(path):
            text = web.page(path)
            for attributes, inside in re.findall(r"<svg ([^>]*)>(.*?)</svg>", text, re.DOTALL):
                pictures += "<a " in inside
                assert "<a " not in inside or 'role="group"' in attributes, "an image hides what is inside"
            labels = re.findall(r'<nav [^>]*aria-label="([^"]*)"', text)
            assert len(labels) == len(set(labels))
    assert pictures == 5
