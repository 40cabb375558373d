"""The report of an import and the YAML of its documents, as text."""

from __future__ import annotations

from typing import Any

from toban_cli.crontab.convert import Entry, Fate, Imported
from toban_cli.crontab.line_parser import Kind
from toban_cli.crontab.parts import parts
from toban_cli.formatting import count
from toban_cli.sanitize import clean

_SHOWN = 100
_BETWEEN = "---\n"
# What holds for every job that comes from a crontab; docs/crontab.md has more.
_ALWAYS = (
    "cron starts a run beside one that still goes on; carried over as concurrency.policy: allow (forbid keeps them apart)",
    "cron forgets times at which it did not run; carried over as catch_up: skip (one runs the latest of them)",
    "cron mails output; here it is the log of the run (toban run logs RUN)",
)
_HOME = "cron begins in the account's home; here a job begins in a folder of the executor unless working_dir is set"


def report_lines(done: Imported, *, source: str, zone: str) -> list[str]:
    """The report, printable whatever the crontab holds: the kind of the file, the result of each line, notes on all jobs."""
    kind = "a system crontab (with a column for the account)" if done.layout.system else "a user's crontab"
    out = [f"{source}: {kind}: {done.layout.reason}", *(f"{source}: {note}" for note in done.notes)]
    for entry in done.entries:
        out += _entry(entry)
    jobs = [entry for entry in done.entries if entry.documents]
    if jobs:
        out += [
            "for all jobs:",
            *(f"  - {text}" for text in (*_ALWAYS, zone, *((_HOME,) if _without_home(jobs) else ()))),
        ]
    # Every line of this is one line: text of the crontab is in reasons and notes, too.
    return [clean(line) for line in (*out, _summary(done))]


def yaml_texts(done: Imported) -> list[str]:
    """All documents, each job below a comment with its line, in as many texts as `toban apply` needs; each is one file for it."""
    from toban_manifests.yaml_text import MAX_BYTES

    pieces = [(entry, _yaml(entry)) for entry in done.entries if entry.documents]
    split = parts(
        pieces,
        documents=lambda piece: len(piece[0].documents),
        size=lambda piece: len(_BETWEEN) + len(piece[1].encode()),
        max_bytes=MAX_BYTES,
    )
    return [_BETWEEN.join(text for _, text in part) for part in split]


def _yaml(entry: Entry) -> str:
    from toban_cli.yaml_dump import to_yaml

    heading = f"# line {entry.line.number}: {shown(entry.line.text)}\n"
    return heading + _BETWEEN.join(to_yaml(document) for document in entry.documents)


def shown(text: str) -> str:
    """A line of a crontab as one printable line, cut when it is long."""
    printable = clean(text.strip())
    return printable if len(printable) <= _SHOWN else printable[: _SHOWN - 1] + "…"


def _entry(entry: Entry) -> list[str]:
    head = f"line {entry.line.number}: {shown(entry.line.text)}"
    verb = f"{entry.fate}{' because' if entry.fate is Fate.LOST else ''}"
    return [head, f"  {verb}: {entry.outcome}", *(f"  - {note}" for note in entry.notes)]


def _without_home(jobs: list[Entry]) -> bool:
    return any("working_dir" not in entry.documents[0]["spec"] for entry in jobs)


def _summary(done: Imported) -> str:
    jobs = sum(entry.line.kind is Kind.JOB for entry in done.entries)
    made: list[Any] = done.documents
    schedules = sum(document["kind"] == "Schedule" for document in made)
    left_out = [_lines_of(done, Fate.LOST, "line"), _lines_of(done, Fate.UNTIMED, "the time of line")]
    lost = " and ".join(filter(None, left_out))
    tail = f"; NOT carried over: {lost}" if lost else "; nothing was left out"
    return f"{count(jobs, 'line')} with commands: {count(len(made) - schedules, 'job')}, {count(schedules, 'schedule')}{tail}"


def _lines_of(done: Imported, fate: Fate, what: str) -> str:
    """The numbers of the lines with this fate: "lines 3, 7"; "" when there is none."""
    numbers = [str(entry.line.number) for entry in done.entries if entry.fate is fate]
    return f"{what}{'s' if len(numbers) > 1 else ''} {', '.join(numbers)}" if numbers else ""
