"""Crontabs of every style: no line is lost without a word, what is converted runs at cron's times, and the documents are valid."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from toban_cli.importers.crontab.convert import Options, convert
from toban_cli.importers.report import report_lines, yaml_texts
from toban_cli.importers.result import Entry, Fate, Imported
from toban_cli.manifest_files import read_documents
from toban_domain.schedule import RuleSpec
from toban_schedule import Rule
from toban_schedule.zones import load_zone
from toban_testing import cron_oracle

Toban = Callable[..., tuple[int, str, str]]
FOLDER = Path(__file__).parent / "crontabs"
CRONTABS = sorted(FOLDER.glob("*.crontab"))
# A winter's day: no zone of the files changes its clocks within the slots that are looked at, but for those years apart, at midnight.
START = datetime(2026, 1, 5, 0, 0, tzinfo=UTC)
ACCOUNTS = ("root", "ada")


def imported(path: Path) -> Imported:
    return convert(path.read_bytes(), Options(source=path.name, timezone="UTC", accounts=ACCOUNTS))


def summary(done: Imported) -> str:
    """What became of each line, short enough to be looked through."""
    rows = ["system" if ": a system crontab" in done.notes[0] else "user"]
    for entry in done.entries:
        words = [entry.place.key, str(entry.fate)]
        if entry.documents:
            words.append(entry.documents[0]["metadata"]["name"])
            argv = entry.documents[0]["spec"]["steps"][0]["argv"]
            words.append("shell" if argv[1:2] == ["-c"] else "argv")
        if len(entry.documents) > 1:
            spec = entry.documents[1]["spec"]
            words.append(
                f"{spec['cron']} {spec['timezone']}" if "cron" in spec else f"every {spec['interval_seconds']} s"
            )
        elif entry.documents:
            words.append("no schedule")
        if entry.fate is Fate.LOST:
            words.append(entry.outcome[:60])
        rows.append(" | ".join(words))
    return "\n".join(rows) + "\n"


def test_there_are_crontabs_enough() -> None:
    assert len(CRONTABS) >= 60


def test_each_crontab_becomes_what_is_expected(subtests: pytest.Subtests) -> None:
    for path in CRONTABS:
        with subtests.test(path.stem):
            assert summary(imported(path)) == path.with_suffix(".expected").read_text(encoding="utf-8")


def test_no_line_is_lost_without_a_word(subtests: pytest.Subtests) -> None:
    for path in CRONTABS:
        with subtests.test(path.stem):
            assert_lines_are_kept(path)


def assert_lines_are_kept(path: Path) -> None:
    done = imported(path)
    outcome = report_lines(done)
    for number, raw in enumerate(path.read_bytes().removeprefix(b"\xef\xbb\xbf").split(b"\n"), start=1):
        if not raw.strip() or raw.lstrip().startswith(b"#"):
            continue
        [place] = [index for index, line in enumerate(outcome) if line.startswith(f"line {number}: ")]
        assert re.match(
            r"  (converted|converted without its time|carried over|kept as a label only|NOT carried over because): \S",
            outcome[place + 1],
        )
        [entry] = [entry for entry in done.entries if entry.place.key == str(number)]
        assert bool(entry.documents) == (entry.fate in (Fate.CONVERTED, Fate.UNTIMED))
        if entry.fate is Fate.CONVERTED:
            assert_command_is_kept(entry, raw.decode())
    assert outcome[-1].startswith(f"{sum(entry.is_job for entry in done.entries)} line")


def assert_command_is_kept(entry: Entry, raw: str) -> None:
    """What the step runs is what stands in the line (test_crontab_command.py looks at the input after %)."""
    spec = entry.documents[0]["spec"]
    argv = spec["steps"][0]["argv"]
    text = raw.rstrip().replace("\\%", "%")
    if "CRON_STDIN" in spec.get("env", {}):
        assert argv[-1]
        assert argv[-1] in text or argv[-1] in raw
    elif argv[:2] == [spec.get("env", {}).get("SHELL", "/bin/sh"), "-c"]:
        assert text.endswith(argv[-1])
    else:
        assert shlex.split(text)[-len(argv) :] == argv


def test_schedules_are_due_when_cron_would_run_the_line(subtests: pytest.Subtests) -> None:
    for path in CRONTABS:
        for entry in imported(path).entries:
            for schedule in entry.documents[1:]:
                with subtests.test(f"{path.stem}: {entry.place.text}"):
                    assert slots_of(schedule["spec"]) == expected_slots(entry.place.text, schedule["spec"])


def slots_of(spec: dict[str, Any]) -> list[datetime]:
    rule = Rule.of(RuleSpec.from_json({**spec, "timezone": spec.get("timezone", "UTC")}))
    return list(islice(rule.slots_after(START), 5))


def expected_slots(line: str, spec: dict[str, Any]) -> list[datetime]:
    text = re.sub(r"^-\s*", "", line.strip())
    word = " ".join(text.split()[: 2 if text.lower().startswith("@every ") else 1]).lower()
    if word in cron_oracle.PERIODS:
        period = cron_oracle.PERIODS[word]
        first = (int(START.timestamp()) // period + 1) * period
        return [datetime.fromtimestamp(first + period * step, UTC) for step in range(5)]
    fields = cron_oracle.NICKNAMES[word].split() if word.startswith("@") else text.split()[:5]
    drawn = fields if word.startswith("@") else spec["cron"].split()
    zone = load_zone(spec["timezone"])
    after = START.astimezone(zone).replace(tzinfo=None)
    walls = islice(cron_oracle.walls(fields, after, drawn), 5)
    return [wall.replace(tzinfo=zone).astimezone(UTC) for wall in walls]


def test_the_yaml_is_valid_and_says_the_same_again(toban: Toban, tmp_path: Path, subtests: pytest.Subtests) -> None:
    for path in CRONTABS:
        with subtests.test(path.stem):
            assert_yaml_is_valid(path, toban, tmp_path / "out.yaml")


def assert_yaml_is_valid(path: Path, toban: Toban, file: Path) -> None:
    done = imported(path)
    again = imported(path)
    assert again.documents == done.documents
    names = [document["metadata"]["name"] for document in done.documents if document["kind"] == "Job"]
    assert len(set(names)) == len(names)
    if not names:
        return
    file.write_text("".join(yaml_texts(done)), encoding="utf-8")
    assert [document.body for document in read_documents([str(file)])] == done.documents
    assert toban("validate", "-f", str(file))[0] == 0


def test_a_line_more_leaves_the_names_of_the_others(tmp_path: Path) -> None:
    text = "0 9 * * * /usr/bin/same --one\n0 9 * * * /usr/bin/same --two\n"
    before = [document["metadata"]["name"] for document in convert(text.encode(), Options(source="x")).documents]
    after = convert((text + "0 9 * * * /usr/bin/same --three\n").encode(), Options(source="x")).documents
    assert [document["metadata"]["name"] for document in after][:4] == before
