"""Where output is stored, as people see it."""

from __future__ import annotations

import re
from typing import Any

import pytest

from toban_domain.errors import ErrorCode, TobanError
from toban_testing.site_messages import archive_message


def rows(text: str) -> dict[str, list[str]]:
    """The texts of the cells of each day, in the order of the page."""
    found = re.findall(r'<tr id="([\d-]+)">(.*?)</tr>', text, re.DOTALL)
    return {day: [re.sub("<[^>]+>", "", cell) for cell in re.findall("<td.*?</td>", row)] for day, row in found}


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
