"""The report of an import and the YAML of its documents, as text."""

from __future__ import annotations

from typing import Any

from toban_cli.formatting import count
from toban_cli.importers.parts import parts
from toban_cli.importers.result import Entry, Fate, Imported
from toban_cli.sanitize import clean

_SHOWN = 100
_BETWEEN = "---\n"


def report_lines(done: Imported) -> list[str]:
    """The report, printable whatever the files hold: notes on files, the result of each definition, notes on all jobs."""
    out = list(done.notes)
    for entry in done.entries:
        out += _entry(entry)
    if done.documents and done.for_all:
        out += ["for all jobs:", *(f"  - {text}" for text in done.for_all)]
    # Every line of this is one line: text of the files is in reasons and notes, too.
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

    heading = f"# {_head(entry)}\n"
    return heading + _BETWEEN.join(to_yaml(document) for document in entry.documents)


def shown(text: str) -> str:
    """A line of a file as one printable line, cut when it is long."""
    printable = clean(text.strip())
    return printable if len(printable) <= _SHOWN else printable[: _SHOWN - 1] + "…"


def _entry(entry: Entry) -> list[str]:
    verb = f"{entry.fate}{' because' if entry.fate is Fate.LOST else ''}"
    return [_head(entry), f"  {verb}: {entry.outcome}", *(f"  - {note}" for note in entry.notes)]


def _head(entry: Entry) -> str:
    text = shown(entry.place.text)
    return f"{clean(str(entry.place))}: {text}" if text else clean(str(entry.place))


def _summary(done: Imported) -> str:
    jobs = sum(entry.is_job for entry in done.entries)
    made: list[Any] = done.documents
    schedules = sum(document["kind"] == "Schedule" for document in made)
    fates = ((Fate.LOST, ""), (Fate.UNTIMED, "the time of "), (Fate.PARTIAL, "parts of "))
    lost = " and ".join(filter(None, (_places(done, fate, before) for fate, before in fates)))
    tail = f"; NOT carried over: {lost}" if lost else "; nothing was left out"
    one, several = done.counted
    found = f"{jobs} {one if jobs == 1 else several}"
    return f"{found}: {count(len(made) - schedules, 'job')}, {count(schedules, 'schedule')}{tail}"


def _places(done: Imported, fate: Fate, before: str) -> str:
    """The definitions with this fate: "lines 3, 7"; "" when there is none."""
    places: dict[str, list[str]] = {}
    for entry in done.entries:
        if entry.fate is fate:
            places.setdefault(entry.place.what, []).append(entry.place.key)
    return ", ".join(f"{before}{what}{'s' if len(keys) > 1 else ''} {', '.join(keys)}" for what, keys in places.items())
