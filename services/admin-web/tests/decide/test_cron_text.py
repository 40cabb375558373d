"""Cron expressions in words: what the words say is what matches, and what they cannot say has none."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from toban_admin_web.decide.cron_text import cron_words
from toban_admin_web.decide.translations import Translations

LOCALES = Path(__file__).resolve().parents[4] / "web" / "locales"
TEXTS = Translations(
    {one: json.loads((LOCALES / f"{one}.json").read_text(encoding="utf-8")) for one in ("en", "ja", "zh-Hant")}
)


def words(cron: str, language: str = "en") -> str:
    return cron_words(cron, "nightly", lambda key, **values: TEXTS.text(language, key, **values))


def test_words_say_what_matches(subtests: pytest.Subtests) -> None:
    for cron, expected in {
        "0 3 * * *": "daily at 03:00",
        "@daily": "daily at 00:00",
        "15 30 4,16 * * *": "daily at 04:30:15, 16:30:15",
        "0 3 * * MON-FRI": "weekly on Mon, Tue, Wed, Thu, Fri at 03:00",
        "0 3 ? * 0,7": "weekly on Sun at 03:00",
        "0 3 * * FRI-SUN": "weekly on Fri, Sat, Sun at 03:00",
        "0 0 * * 1/3": "weekly on Mon, Thu, Sun at 00:00",
        "0 0 1,15 * *": "on day 1, 15 of the month, at 00:00",
        "30 2 L * *": "on the last day of the month, at 02:30",
        "@yearly": "in Jan, on day 1 of the month, at 00:00",
        "0 0 1-31 * MON": "daily at 00:00",
        "* * * * *": "every 1 min",
        "*/15 * * * *": "every 15 min",
        "*/15 8-18 * * *": "every 15 min, from 08:00 to 18:45",
        "* 3 * * *": "every 1 min, from 03:00 to 03:59",
        "*/45 * * * *": "hourly at minute 00, 45",
        "20 * * * *": "hourly at minute 20",
        "20 9-17 * * *": "hourly at minute 20, from 09:20 to 17:20",
        "0 */2 * * *": "every 2 h",
        "5 */2 * * 6": "on Sat, every 2 h, at minute 05",
        "*/10 * * * * *": "every 10 s",
        "H 3 * * *": "daily at 03:07",
    }.items():
        with subtests.test(cron):
            assert words(cron) == expected
    assert words("*/30 8-18 * * MON,TUE", "ja") == "毎週 月・火、30 分ごと、08:00 から 18:30 まで"
    assert words("0 3 1 * *", "ja") == "毎月 1 日、03:00"
    assert words("*/15 8-18 * 1 *", "zh-Hant") == "1 月，每 15 分鐘，從 08:00 到 18:45"


@pytest.mark.parametrize(
    "cron",
    [
        "0 0 1 * MON",
        "0 0 */2 * MON",
        "0 9 15W * *",
        "0 9 LW * *",
        "0 9 L,15 * *",
        "0 9 * * MON#1",
        "0 9 * * 5L",
        "1-40 * * * *",
        "*/10 3 * * * *",
        "*/5 1,5 * * *",
        "0 0 */2 * *",
        "0 25 * * *",
        "nothing",
    ],
)
def test_what_words_would_not_say_well_has_none(cron: str) -> None:
    assert words(cron) == ""
