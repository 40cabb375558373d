"""Whatever a file holds: nothing crashes, no line is lost, the documents are valid, and a second import gives the same."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import islice

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toban_cli.importers.crontab.convert import Options, convert
from toban_cli.importers.crontab.time_fields import FieldError, write_fields
from toban_cli.importers.report import report_lines, yaml_texts
from toban_cli.importers.result import Fate
from toban_cli.manifest_files import read_documents
from toban_domain.schedule import RuleSpec
from toban_manifests.read import Document, find_problems
from toban_schedule import Rule, problems
from toban_testing import cron_oracle

START = datetime(2026, 1, 5, tzinfo=UTC)

names = st.sampled_from(["mon", "SUN", "sat", "jan", "Dec", "friday", "x", "H", "L", "?", ""])
numbers = st.one_of(st.integers(0, 75).map(str), names)
items = st.one_of(
    st.just("*"),
    numbers,
    st.builds("{}-{}".format, numbers, numbers),
    st.builds("{}/{}".format, st.one_of(st.just("*"), numbers), numbers),
    st.builds("{}-{}/{}".format, numbers, numbers, numbers),
    st.builds("{}~{}".format, numbers, numbers),
)
fields = st.lists(items, min_size=1, max_size=3).map(",".join)
# These are good in every field.
small = st.integers(1, 7).map(str)
sound = st.lists(
    st.one_of(
        small,
        st.builds("{}-{}".format, small, small),
        st.builds("{}-{}/{}".format, small, small, small),
        st.builds("{}/{}".format, st.one_of(st.just("*"), small), small),
    ),
    min_size=1,
    max_size=3,
).map(",".join)
blanks = st.sampled_from([" ", "\t", "  ", " \t "])
times = st.one_of(
    st.builds(lambda texts, gap: gap.join(texts), st.lists(fields, min_size=4, max_size=6), blanks),
    st.sampled_from(["@daily", "@reboot", "@every 5m", "@300", "@x", "@", "&", "%daily", "-*/5 * * * *", "* * * * *"]),
)
commands = st.one_of(
    st.text(max_size=40),
    st.text(alphabet="ab /%\\'\"$|&;<>=#-*\t", max_size=30),
    st.sampled_from(["root /bin/x", "/bin/x --y", "-ns x", "ID=a AFTER=b x", "cat%a%b", "cd /x && y"]),
)
lines = st.one_of(
    st.builds("{}{}{}".format, times, blanks, commands),
    st.builds(
        "{}={}".format,
        st.sampled_from(["A", "MAILTO", "CRON_TZ", "SHELL", "HOME", '"B"', "é", ""]),
        st.text(max_size=20),
    ),
    st.text(max_size=60),
    st.builds("# {}".format, st.text(max_size=20)),
    st.just(""),
)
crontabs = st.lists(lines, max_size=12).flatmap(
    lambda made: st.sampled_from(["\n", "\r\n"]).map(lambda end: end.join(made).encode("utf-8", "surrogatepass"))
)


@given(
    content=st.one_of(crontabs, st.binary(max_size=200)),
    system=st.sampled_from([None, True, False]),
    zone=st.sampled_from(["UTC", "Europe/Berlin"]),
)
def test_any_file(content: bytes, system: bool | None, zone: str) -> None:
    options = Options(source="x", system=system, timezone=zone, accounts=("root",))
    done = convert(content, options)
    outcome = report_lines(done)
    body = content.removeprefix(b"\xef\xbb\xbf")
    for number, raw in enumerate(body.split(b"\n"), start=1):
        bare = raw.strip(b" \t\r\f\v")
        if bare and not bare.startswith(b"#"):
            assert sum(line.startswith(f"line {number}: ") for line in outcome) == 1
    assert all(bool(entry.documents) == (entry.fate in (Fate.CONVERTED, Fate.UNTIMED)) for entry in done.entries)
    assert all(entry.outcome for entry in done.entries)
    manifests, found = find_problems([Document("x", document) for document in done.documents], check_rule=problems)
    assert not found
    assert len(manifests) == len(done.documents)
    assert convert(content, options).documents == done.documents


@given(content=crontabs)
def test_the_yaml_of_any_file_reads_back(content: bytes, tmp_path_factory: pytest.TempPathFactory) -> None:
    done = convert(content, Options(source="x"))
    file = tmp_path_factory.getbasetemp() / "any-crontab.yaml"
    file.write_text("".join(yaml_texts(done)), encoding="utf-8")
    read = read_documents([str(file)]) if done.documents else []
    assert [document.body for document in read] == done.documents


@given(
    texts=st.lists(st.one_of(st.just("*"), sound, sound), min_size=5, max_size=5)
    | st.lists(fields, min_size=5, max_size=5),
    seed=st.integers(0, 10_000),
)
def test_any_expression_runs_when_cron_would_run_it(texts: list[str], seed: int) -> None:
    try:
        expression, _ = write_fields(texts, lambda _what, size: seed % size)
    except FieldError:
        return
    if any("~" in text and "," in text for text in texts):
        return
    spec = RuleSpec.from_json({"cron": expression})
    expected = list(islice(cron_oracle.walls(texts, START.replace(tzinfo=None), expression.split()), 5))
    if problems(spec):
        assert not expected
        return
    assert [slot.replace(tzinfo=None) for slot in islice(Rule.of(spec).slots_after(START), 5)] == expected
