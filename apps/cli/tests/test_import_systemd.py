"""`toban import systemd`: times, commands and settings of units as systemd reads them; what does not carry over is named."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toban_cli.importers.result import Entry, Fate, Options
from toban_cli.importers.systemd.calendar import CalendarError, read_calendar
from toban_cli.importers.systemd.convert import convert
from toban_cli.importers.systemd.exec_line import read_exec, split_words
from toban_cli.importers.systemd.time_span import seconds
from toban_cli.importers.systemd.unit_file import read_unit
from toban_manifests.read import Document, find_problems
from toban_manifests.yaml_text import parse_yaml
from toban_schedule import problems

Toban = Callable[..., tuple[int, str, str]]


# Times that `systemd-analyze calendar` agrees with.
CALENDARS = {
    "daily": "0 0 * * *",
    "weekly": "0 0 * * 1",
    "quarterly": "0 0 1 */3 *",
    "hourly": "0 * * * *",
    "03:30": "30 3 * * *",
    "*:0/15": "*/15 * * * *",
    "*:7/30": "7,37 * * * *",
    "Mon..Fri 9..17:00": "0 9-17 * * 1-5",
    "Mon-Wed,sunday 08:05:40": "40 5 8 * * 0-3",
    "Sat,Sun 12-* 08:05": "5 8 * 12 0,6",
    "*-*-* 0:0:0/20": "*/20 0 0 * * *",
    "*-*-1/2 4:00": "0 4 */2 * *",
    "Fri *-*-1/2 4:00": "0 4 */2 * 5",
    "Mon *-*-8..14 4:00": "0 4 * * 1#2",
    "*-*~01 23:00": "0 23 L * *",
    "Fri *-*~07/1 23:00": "0 23 * * 5L",
    "Sat,Mon..Sun 4:00": "0 4 * * *",
}
REFUSED = {
    "Mon *-*-13 4:00": "restricts weekdays and days of the month",
    "*-*~03 4:00": "from the end of the month",
    "2026,2028-01-01": "not one range",
    "@1493187147": "one point in time",
    "*:*:0.5": "fraction",
    "25:00": "not within 0 and 23",
    "Fri..Mon 1:00": "not a range of weekdays",
    "Mon 4:00 Mars/Base": "no zone 'Mars/Base'",
    "*:44/30": "repeats nothing",
    "*/2:00": "has a form",
    "7": "neither a date nor a time",
    "": "empty",
}


def test_calendars_are_read_as_systemd_reads_them(subtests: pytest.Subtests) -> None:
    for text, cron in CALENDARS.items():
        with subtests.test(text):
            assert read_calendar(text, "UTC") == {"cron": cron, "timezone": "UTC"}
    for text, reason in REFUSED.items():
        with subtests.test(text), pytest.raises(CalendarError, match=reason):
            read_calendar(text, "UTC")


def test_zones_and_years_belong_to_the_schedule() -> None:
    schedule = read_calendar("2026..2027-07-01 2:30 Europe/Berlin", "UTC")
    assert schedule == {
        "cron": "30 2 1 7 *",
        "timezone": "Europe/Berlin",
        "start": "2026-01-01T00:00:00+01:00",
        "end": "2028-01-01T00:00:00+01:00",
        "dst": {"gap": "skip"},
    }
    assert "dst" not in read_calendar("*:30", "Europe/Berlin")
    assert read_calendar("4:00 UTC", "Europe/Berlin")["timezone"] == "UTC"


def test_spans_of_time(subtests: pytest.Subtests) -> None:
    rows = {"90": 90, "5min 20s": 320, "1h30m": 5400, "1.5 hours": 5400, "2M": 5_259_600, "infinity": float("inf")}
    for text, expected in {**rows, "": None, "5 parsecs": None, "h": None}.items():
        with subtests.test(text):
            assert seconds(text) == expected


def test_words_are_split_as_systemd_splits_them(subtests: pytest.Subtests) -> None:
    rows = {
        "a  'b c' \"d e\"": ["a", "b c", "d e"],
        "a b'c d'e": ["a", "bc de"],
        r"a \x41\101B\s": ["a", "AAB "],
        r"'it\'s' ''": ["it's", ""],
        r"sed s/\./x/": ["sed", r"s/\./x/"],
        "a > b | c": ["a", ">", "b", "|", "c"],
    }
    for text, words in rows.items():
        with subtests.test(text):
            assert split_words(text) == words


def test_commands_have_prefixes_separators_and_variables(subtests: pytest.Subtests) -> None:
    env = {"A": "x y", "B": ""}
    rows: dict[str, list[tuple[list[str], str]]] = {
        "/a $A ${A} p${A}s $B $$A": [(["/a", "x", "y", "x y", "px ys", "$A"], "")],
        r"/a ; /b \; ';'": [(["/a"], ""), (["/b", ";", ";"], "")],
        "-@/a name b": [(["/a", "b"], "-@")],
        ":/a $A": [(["/a", "$A"], ":")],
    }
    for text, expected in rows.items():
        with subtests.test(text):
            assert [(list(line.argv), line.prefixes) for line in read_exec(text, env)] == expected
    [unknown] = read_exec("/a $C ${D}", env)
    assert (unknown.argv, unknown.unknown) == (("/a", "$C", "${D}"), ("$C", "${D}"))


def imported(timer: str, service: str, name: str = "x") -> Entry:
    units = [
        read_unit(f"{name}.{kind}", kind, [text.encode()]) for kind, text in (("timer", timer), ("service", service))
    ]
    [entry] = convert({unit.name: unit for unit in units}, Options()).entries
    return entry


TIMER = "[Timer]\nOnCalendar=daily\n"


def job_of(service: str) -> tuple[dict[str, Any], Entry]:
    entry = imported(TIMER, f"[Service]\nType=oneshot\n{service}")
    return entry.documents[0]["spec"], entry


def test_settings_of_the_service_are_keys_of_the_job(subtests: pytest.Subtests) -> None:
    rows: dict[str, dict[str, Any]] = {
        "Environment=A=1 'B=2 3'\nEnvironment=C=": {"env": {"A": "1", "B": "2 3", "C": ""}},
        "Environment=A=1\nEnvironment=\nEnvironment=B=2": {"env": {"B": "2"}},
        "WorkingDirectory=/srv": {"working_dir": "/srv"},
        "TimeoutStartSec=1min 30s": {"timeout_seconds": 90},
        "TimeoutStartSec=infinity": {},
        "Type=simple\nRuntimeMaxSec=1h\nTimeoutStartSec=5": {"timeout_seconds": 3600},
        "TimeoutStopSec=20": {"cancel": {"grace_seconds": 20.0}},
        "Restart=on-failure\nRestartSec=5\nStartLimitBurst=4": {"retry": {"max_retries": 3, "backoff_seconds": [5.0]}},
    }
    for text, expected in rows.items():
        with subtests.test(text):
            spec, entry = job_of(f"ExecStart=/bin/a\n{text}")
            assert entry.fate is Fate.CONVERTED
            rest = {key: value for key, value in spec.items() if key not in ("steps", "concurrency")}
            assert rest == expected
            assert spec["concurrency"] == {"policy": "forbid"}


def test_a_job_without_a_part_that_it_needs_is_not_scheduled(subtests: pytest.Subtests) -> None:
    rows = {
        "EnvironmentFile=/etc/default/x": "EnvironmentFile=/etc/default/x: its variables",
        "ExecCondition=/bin/test": "ExecCondition=/bin/test: a condition",
        "Environment=A=%h": "Environment= has the specifier %h",
        "WorkingDirectory=~": "home of the account",
        "Restart=always": "it is a daemon",
        "Restart=on-abort": "after a signal only, and retries follow every failure",
        "Restart=on-abnormal": "after a signal, a timeout or the watchdog only",
        "Restart=on-watchdog": "after the watchdog only",
        "Restart=sometimes": "is no setting of systemd",
        "Type=forking": "stays in the foreground",
        "ExecStartPost=/bin/b $MAINPID": "$MAINPID without a value",
        "[Unit]\nConditionPathExists=/srv": "ConditionPathExists=/srv is a condition",
    }
    for text, reason in rows.items():
        with subtests.test(text):
            _, entry = job_of(f"ExecStart=/bin/a\n{text}")
            assert entry.fate is Fate.PARTIAL
            assert any(note.startswith("MISSING: ") and reason in note for note in entry.notes)
            assert entry.documents[1]["spec"]["enabled"] is False


def test_what_has_no_counterpart_is_named() -> None:
    _, entry = job_of("ExecStart=-/bin/a\nUser=www\nPrivateTmp=yes\nNice=5")
    text = "\n".join(entry.notes)
    assert entry.fate is Fate.CONVERTED
    for part in ("/bin/a: systemd ignores its failure", "not as www", "NOT carried over: PrivateTmp=yes; Nice=5"):
        assert part in text
    assert entry.documents[0]["metadata"]["labels"]["systemd/user"] == "www"


def test_times_of_a_timer(subtests: pytest.Subtests) -> None:
    rows: dict[str, tuple[Fate, list[dict[str, Any]]]] = {
        "OnCalendar=daily\nPersistent=yes": (
            Fate.CONVERTED,
            [{"cron": "0 0 * * *", "timezone": "UTC", "catch_up": "one"}],
        ),
        "OnUnitActiveSec=1h\nOnBootSec=5min": (Fate.CONVERTED, [{"interval_seconds": 3600, "catch_up": "skip"}]),
        "OnUnitInactiveSec=1s": (Fate.CONVERTED, [{"interval_seconds": 1, "catch_up": "skip"}]),
        "OnBootSec=5min": (Fate.UNTIMED, []),
        "OnUnitActiveSec=500ms": (Fate.UNTIMED, []),
        "OnCalendar=hourly\nOnCalendar=nonsense": (
            Fate.UNTIMED,
            [{"cron": "0 * * * *", "timezone": "UTC", "catch_up": "skip"}],
        ),
        "OnCalendar=hourly\nOnCalendar=": (Fate.UNTIMED, []),
    }
    for text, (fate, schedules) in rows.items():
        with subtests.test(text):
            entry = imported(f"[Timer]\n{text}", "[Service]\nExecStart=/bin/a")
            assert entry.fate is fate
            assert [document["spec"] for document in entry.documents[1:]] == [
                {"job": "x", **spec} for spec in schedules
            ]
    delayed = imported(f"{TIMER}RandomizedDelaySec=15min", "[Service]\nExecStart=/bin/a")
    assert any("RandomizedDelaySec=15min spreads starts" in note for note in delayed.notes)


def test_instances_take_the_service_of_their_template(tmp_path: Path, toban: Toban) -> None:
    (tmp_path / "x@.timer").write_text(TIMER)
    (tmp_path / "x@b.timer").symlink_to("x@.timer")
    (tmp_path / "x@.service").write_text("# comment\n[Service]\nExecStart=/bin/a \\\n# within\n  %i 100%% %n\n")
    drop_in = tmp_path / "x@b.timer.d"
    drop_in.mkdir()
    (drop_in / "time.conf").write_text("[Timer]\nOnCalendar=\nOnCalendar=4:00\n")
    code, out, err = toban("import", "systemd", str(tmp_path), "--timezone", "UTC")
    assert code == 65
    assert "it is a template: import an instance, such as x@NAME.timer" in err
    assert "        - b\n        - 100%\n        - x@b.service\n" in out
    assert "cron: 0 4 * * *" in out


def test_drop_ins_are_read_from_all_folders_and_for_all_names_of_a_unit(tmp_path: Path, toban: Toban) -> None:
    own, vendor = tmp_path / "etc", tmp_path / "lib"
    files = {
        vendor / "foo.timer": TIMER,
        vendor / "foo.timer.d/a.conf": "[Timer]\nOnCalendar=\nOnCalendar=3:00\n",
        own / "foo.timer.d/override.conf": "[Timer]\nOnCalendar=\nOnCalendar=4:00\n",
        vendor / "foo.timer.d/override.conf": "[Timer]\nOnCalendar=\nOnCalendar=5:00\n",
        vendor / "foo.service": "[Service]\nExecStart=/bin/foo\n",
        own / "x@b.timer": TIMER,
        own / "x@.timer.d/time.conf": "[Timer]\nOnCalendar=\nOnCalendar=6:00\n",
        own / "x@.service": "[Service]\nExecStart=/bin/x\n",
        own / "x@.service.d/a.conf": "[Service]\nEnvironment=A=1 B=1\n",
        own / "x@b.service.d/b.conf": "[Service]\nEnvironment=B=2\n",
        own / "gone.service.d/a.conf": "[Service]\nEnvironment=A=1\n",
        own / "service.d/all.conf": "[Service]\nWorkingDirectory=/srv\n",
    }
    for file, text in files.items():
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    (own / "foo.timer.d/a.conf").symlink_to("/dev/null")
    code, out, err = toban("import", "systemd", str(own), str(vendor), "--timezone", "UTC")
    assert code == 0
    bodies: list[Any] = list(parse_yaml("x", out.encode()))
    specs = {(body["kind"], body["metadata"]["name"]): body["spec"] for body in bodies}
    assert specs["Schedule", "foo"]["cron"] == "0 4 * * *"
    assert specs["Schedule", "x-b"]["cron"] == "0 6 * * *"
    assert specs["Job", "x-b"]["env"] == {"A": "1", "B": "2"}
    assert [specs["Job", name]["working_dir"] for name in ("foo", "x-b")] == ["/srv", "/srv"]
    assert f"{own}/gone.service.d: no unit that was read has these drop-ins" in err
    assert err.count("no unit that was read") == 1
    (own / "x@b.timer").unlink()
    assert toban("import", "systemd", str(own), str(vendor))[0] == 0


def test_a_timer_finds_its_service_beside_it(tmp_path: Path, toban: Toban) -> None:
    (tmp_path / "a.timer").write_text(f"{TIMER}Unit=b.service\n")
    assert toban("import", "systemd", str(tmp_path / "a.timer"))[0] == 65
    (tmp_path / "b.service").write_text("[Service]\nExecStart=/bin/b\n")
    (tmp_path / "idle.service").write_text("[Service]\nExecStart=/bin/c\n")
    assert toban("import", "systemd", str(tmp_path / "a.timer"))[0] == 0
    assert "no timer starts idle.service: left out" in toban("import", "systemd", str(tmp_path))[2]
    other = tmp_path / "other"
    other.mkdir()
    (other / "a.timer").write_text(TIMER)
    _, _, err = toban("import", "systemd", str(tmp_path / "a.timer"), str(other))
    assert f"{other}/a.timer has the same name: left out" in err


def test_what_is_no_unit_is_refused_in_one_line(tmp_path: Path, toban: Toban) -> None:
    (tmp_path / "a.socket").write_text("")
    for name, reason in (
        ("a.socket", "neither a .timer nor a .service"),
        ("b.timer", "cannot be read"),
        ("", "no *.timer"),
    ):
        code, out, err = toban("import", "systemd", str(tmp_path / name))
        assert (code != 0, out, err.count("\n")) == (True, "", 1)
        assert reason in err


@given(
    timer=st.text(alphabet="OnCalendar=*:-~/.,0123456789MonFri []\n\\", max_size=80),
    service=st.text(alphabet="ExecStart=/-@+ '\"\\$%{}A;\n#", max_size=80),
)
def test_any_unit(timer: str, service: str) -> None:
    entry = imported(f"{TIMER}OnCalendar={timer}", f"[Service]\nExecStart={service}")
    assert entry.outcome
    assert bool(entry.documents) == (entry.fate is not Fate.LOST)
    _, found = find_problems([Document("x", document) for document in entry.documents], check_rule=problems)
    assert found == []
