"""Texts of the cluster that would be markup, or move a terminal: no page has them as they are."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from toban_proto.v1 import coordinator_pb2 as pb
from toban_testing.site_flows import hostile_flows
from toban_testing.site_messages import PAGES, archive_message, limit_message, setting_message

EVIL = "<script>alert('x')</script><img src=x onerror=alert(1)>\"'"


def evil_operations(text: str) -> dict[str, Any]:
    """What a coordinator answers about limits, settings and the archive, with `text` for each text."""
    names = ("name", "reason", "updated_by", "breaker", "breaker_by", "breaker_reason", "signal", "signal_by")
    limit = limit_message(**dict.fromkeys((*names, "signal_reason"), text))
    fields = ("value_json", "default_json", "unit", "description", "updated_by", "takes_effect")
    setting = setting_message(**dict.fromkeys(fields, text))
    run = {"job": text, "state": text, "scope": text, "scope_id": text, "executor": text}
    return {
        "GetArchive": archive_message(bucket=text, holder=text, last_error=text, last_pass=text),
        "ListLimits": pb.ListLimitsResponse(limits=[limit]),
        "ListSettings": pb.ListSettingsResponse(settings=[setting]),
        "GetLimit": pb.GetLimitResponse(limit=limit, holders=[pb.LimitRun(**run)], waiting=[pb.LimitRun(**run)]),
    }


def say_everywhere(web: Any, text: str) -> None:
    """Every text of the cluster is `text`."""
    evil_run = web.run(
        1,
        "FAILED",
        job=text,
        schedule=text,
        executor=text,
        error_summary=text,
        reason=text,
        waiting=text,
        last_line=text,
        payload_json=text,
        progress_json='{"summary": "<b>x</b>"}',
        created_by=text,
        cancel_reason=text,
        cancel_requested_at=web.stamp(1),
        trigger=text,
        idempotency_key=text,
        events=[pb.RunEvent(at=web.stamp(1), type=text, from_state=text, to_state=text, message=text, actor=text)],
        attempts=[pb.Attempt(token=web.token, attempt=1, state=text, executor=text, error_summary=text)],
    )
    evil_schedule = web.schedule(
        name=text, job=text, rule=text, timezone=text, spec_json=text, status=text, last_error=text
    )
    web.cluster.logs.lines[web.token] = [web.line(1, text), web.line(2, text, stream=2)]
    web.cluster.reader.responses |= {
        "GetRun": evil_run,
        "ListRuns": pb.ListRunsResponse(runs=[evil_run], next_cursor=text),
        "GetJob": web.job(
            name=text,
            description=text,
            spec_json=text,
            schedules=[evil_schedule],
            disabled_by=text,
            disabled_reason=text,
        ),
        "ListJobVersions": pb.ListJobVersionsResponse(
            versions=[pb.JobVersion(version=n, spec_json=json.dumps({text: n}), created_by=text) for n in (3, 2)]
        ),
        "GetOverview": pb.Overview(
            server_time=web.stamp(),
            alerts=[pb.ActiveAlert(name=text, severity=text, unit=text)],
            failures=[pb.FailedRuns(job=text, scope=text, runs=1, last_run_id=1, last_state=text, error_summary=text)],
            waiting=[pb.WaitingRuns(kind=text, runs=1)],
            missed=[pb.MissedSlots(schedule=text, outcome=text, slots=1, last_slot=web.stamp(), message=text)],
            coming=[pb.ComingFire(schedule=text, job=text, at=web.stamp(-60), timezone=text)],
        ),
        "ListJobs": pb.ListJobsResponse(jobs=[web.job(name=text, description=text)], next_cursor=text),
        "GetSchedule": evil_schedule,
        "ListSchedules": pb.ListSchedulesResponse(schedules=[evil_schedule]),
        "ListExecutors": pb.ListExecutorsResponse(
            executors=[web.executor(node_id=text, labels={text: text}, off_reason=text)]
        ),
        **evil_operations(text),
        **hostile_flows(text),
        "GetCluster": web.whole(
            leader_address=text, health_json='{"status": "<b>", "checks": {"<b>": {"status": "<b>", "value": "<b>"}}}'
        ),
    }


def test_nothing_from_outside_becomes_markup(web: Any) -> None:
    say_everywhere(web, EVIL)
    for path in [*PAGES, "/runs?job=" + EVIL, "/jobs/%3Cscript%3E", "/nothing/" + EVIL]:
        text = web.get(path).get_data(as_text=True)
        assert "<script>" not in text and "<img src=x" not in text and "<b>" not in text, path
        assert not re.search(r"""=(["'])[^"']*\1[^>\s/?]*onerror""", text), path


UNPRINTABLE = "\x1b[31mr\x9b\u202eevil\u2066\x07\u2028"


def test_no_page_has_control_characters_or_changes_of_direction(web: Any, subtests: pytest.Subtests) -> None:
    say_everywhere(web, UNPRINTABLE)
    payload = json.dumps({UNPRINTABLE: UNPRINTABLE}, ensure_ascii=False)
    web.cluster.reader.responses["GetRun"].payload_json = payload
    spec = {
        "default_payload": json.loads(payload),
        "payload_schema": {"properties": {UNPRINTABLE: {"title": UNPRINTABLE}}},
    }
    web.cluster.reader.responses["GetJob"].spec_json = json.dumps(spec, ensure_ascii=False)
    web.cluster.reader.responses["ListAudit"].entries[0].reason = UNPRINTABLE
    web.cluster.reader.responses["ListAudit"].entries[0].after_json = payload
    for path in [*PAGES, f"/runs?job={UNPRINTABLE}", f"/jobs/{UNPRINTABLE}", f"/nothing/{UNPRINTABLE}"]:
        with subtests.test(path):
            text = web.get(path).get_data(as_text=True)
            found = re.findall(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]", text)
            assert not found
            assert "<html" in text
