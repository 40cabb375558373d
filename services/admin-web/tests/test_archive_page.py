"""Where output is stored, as people see it."""

from __future__ import annotations

import re
from typing import Any

import pytest

from toban_admin_web.ports.people import SignedIn
from toban_domain.errors import ErrorCode, TobanError
from toban_proto.v1 import coordinator_pb2 as pb
from toban_testing.site_messages import archive_message


def rows(text: str) -> dict[str, list[str]]:
    """The texts of the cells of each day, in the order of the page."""
    found = re.findall(r'<tr id="([\d-]+)">(.*?)</tr>', text, re.DOTALL)
    cells = {day: re.findall("<td.*?</td>", row) for day, row in found}
    return {
        day: [re.sub("<[^>]+>", "", cell) for cell in row if "/verify" not in cell][:7] for day, row in cells.items()
    }


def test_the_newest_day_is_first_and_one_that_is_overdue_is_marked(web: Any) -> None:
    text = web.page("/archive")
    assert rows(text) == {
        "2026-11-21": ["database", "2", "512 Bytes", "5", "–", "–", "–"],
        "2026-11-20": ["database, overdue", "9", "2.0 MiB", "40", "–", "–", "–"],
        "2026-11-19": ["database and archive", "–", "4.0 KiB", "–", "2", "3.0 MiB", "–"],
        "2026-11-18": ["archive", "–", "–", "–", "3", "5.0 MiB", "1"],
    }
    for seen in (
        "3.0 GiB of 50.0 GiB",
        "s3://toban-logs</span> 8.0 MiB",
        "since 2026-11-20, 40 chunks",
        "the object store does not answer",
    ):
        assert seen in text
    assert 'href="/archive"' in web.page("/cluster")


def test_without_an_object_store_and_before_the_first_run(web: Any) -> None:
    empty = {"days": [], "bucket": "", "oldest_not_archived": "", "last_error": "", "last_pass_at": None}
    web.cluster.reader.responses["GetArchive"] = archive_message(**empty)
    text = web.page("/archive")
    for seen in ("No object store is configured", "No output is stored yet", "<dd>none</dd>", "none yet", "no limit"):
        assert seen in text


@pytest.mark.parametrize("code", [ErrorCode.UNAVAILABLE, ErrorCode.UNIMPLEMENTED])
def test_no_log_archiver_or_an_older_coordinator(web: Any, code: ErrorCode) -> None:
    web.cluster.reader.responses["GetArchive"] = TobanError(code, "nobody <there>")
    text = web.page("/archive")
    assert "The state of the archive is unavailable" in text and "nobody &lt;there&gt;" in text


def test_a_pass_is_asked_for_with_a_reason(web: Any) -> None:
    assert 'href="/archive/run"' in web.page("/archive")
    response = web.post("/archive/run", reason="disk is full")
    assert response.location == "/archive?done=archive_asked"
    assert [one.reason for one in web.asked(pb.RunArchiveNowRequest)] == ["disk is full"]
    assert "makes a pass now" in web.page(response.location)
    web.cluster.reader.responses["RunArchive"] = TobanError(ErrorCode.UNAVAILABLE, "no <log-archiver>")
    assert "no &lt;log-archiver&gt;" in web.post("/archive/run", reason="x").get_data(as_text=True)
    assert web.post("/archive/run", reason="").status_code == 400


def test_a_day_is_verified_part_after_part(web: Any) -> None:
    text = web.page("/archive")
    assert re.findall(r'href="/archive/verify\?day=([\d-]+)"', text) == ["2026-11-19", "2026-11-18"]
    first = pb.VerifyArchiveDayResponse(objects=2, chunks=5, bytes=2048, next_cursor="41")
    web.cluster.reader.responses["VerifyArchive"] = first
    text = web.post("/archive/verify", day="2026-11-19", reason="drill").get_data(as_text=True)
    assert "2 objects, 5 chunks, 2.0 KiB" in text and "there is more to check" in text
    assert ">Go on with the next objects</button>" in text
    assert 'name="cursor" value="41"' in text and ">drill</textarea>" in text
    text = web.post("/archive/verify", day="2026-11-19", reason="", cursor="41", broken="3").get_data(as_text=True)
    assert 'name="cursor" value="41"' in text and 'name="broken" value="3"' in text, (
        "a form that was refused goes on, too"
    )
    broken = pb.BrokenObject(key="a/<b>", problem="the object is not there")
    web.cluster.reader.responses["VerifyArchive"] = pb.VerifyArchiveDayResponse(objects=1, broken=[broken])
    text = web.post("/archive/verify", day="2026-11-19", reason="drill", cursor="41").get_data(as_text=True)
    assert "Broken objects: 1" in text and "a/&lt;b&gt;" in text and 'name="cursor"' not in text
    assert "1 object, 0 chunks, " in text
    [asked] = web.asked(pb.VerifyArchiveDayRequest)
    assert (asked.log_day, asked.cursor, asked.reason) == ("2026-11-19", "41", "drill")


def test_a_check_that_goes_on_stays_with_its_day(web: Any) -> None:
    editable = '<input id="day" type="date" name="day" value="2026-11-19" required>'
    assert editable in web.page("/archive/verify?day=2026-11-19")
    web.cluster.reader.responses["VerifyArchive"] = pb.VerifyArchiveDayResponse(objects=2, next_cursor="41")
    text = web.post("/archive/verify", day="2026-11-19", reason="drill").get_data(as_text=True)
    assert 'type="date"' not in text and "<dd>2026-11-19</dd>" in text
    assert '<input type="hidden" name="day" value="2026-11-19">' in text
    web.cluster.reader.responses["VerifyArchive"] = pb.VerifyArchiveDayResponse(objects=2)
    assert editable in web.post("/archive/verify", day="2026-11-19", reason="drill", cursor="41").get_data(as_text=True)


def test_what_the_parts_of_a_check_found_is_added_up(web: Any) -> None:
    broken = [pb.BrokenObject(key=key, problem="gone") for key in ("a", "b")]
    web.cluster.reader.responses["VerifyArchive"] = pb.VerifyArchiveDayResponse(
        objects=2, broken=broken, next_cursor="41"
    )
    text = web.post("/archive/verify", day="2026-11-19", reason="r", cursor="7", broken="3").get_data(as_text=True)
    assert "Broken objects: 5." in text and "Found in the parts before: 3." in text
    assert 'name="broken" value="5"' in text
    web.cluster.reader.responses["VerifyArchive"] = pb.VerifyArchiveDayResponse(objects=4)
    text = web.post("/archive/verify", day="2026-11-19", reason="r", cursor="41", broken="5").get_data(as_text=True)
    assert "message bad" in text and "Broken objects: 5." in text and "as it was written" not in text
    text = web.post("/archive/verify", day="2026-11-19", reason="r", cursor="41", broken="x").get_data(as_text=True)
    assert "message good" in text and "Everything is as it was written." in text


def test_nothing_to_check_is_not_a_good_result_except_at_the_end(web: Any) -> None:
    web.cluster.reader.responses["VerifyArchive"] = pb.VerifyArchiveDayResponse()
    text = web.post("/archive/verify", day="2026-11-19", reason="r").get_data(as_text=True)
    assert "This day has no archived objects." in text and "message good" not in text and "Read again" not in text
    text = web.post("/archive/verify", day="2026-11-19", reason="r", cursor="41").get_data(as_text=True)
    assert "Everything is as it was written." in text and "Read again" not in text


def test_a_check_occupies_a_place_for_long_responses(web: Any) -> None:
    slots = web.worker.context.stream_slots
    held = [slots.acquire(f"person {number}", stream=False) for number in range(slots.size)]
    response = web.post("/archive/verify", day="2026-11-19", reason="r")
    assert response.status_code == 429 and "are in use" in response.get_data(as_text=True)
    for release in held:
        release()
    assert web.post("/archive/verify", day="2026-11-19", reason="r").status_code == 200
    assert slots.in_use == 0


def test_only_administrators_act_on_the_archive(web: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    people = web.worker.context.gate.people
    monkeypatch.setattr(people, "person", lambda *_args, **_named: SignedIn(user="ed", role="editor"))
    assert "/archive/run" not in web.page("/archive") and "/archive/verify" not in web.page("/archive")
    assert web.get("/archive/run").status_code == web.get("/archive/verify").status_code == 403
