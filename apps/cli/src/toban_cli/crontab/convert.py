"""A crontab to documents and an entry for each line that is neither blank nor a comment."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Collection
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from toban_cli.crontab.account_column import Layout, detect, split_account
from toban_cli.crontab.command import Command, CommandError, invocation, read_command
from toban_cli.crontab.description import description
from toban_cli.crontab.environment import Surroundings, assign
from toban_cli.crontab.job_names import Names, slug, title
from toban_cli.crontab.line_parser import BLANKS, Kind, Line, read_lines, template_reason
from toban_cli.crontab.manifest import Planned, documents
from toban_cli.crontab.schedule_rule import Timing, TimingError, read_timing, split_timing
from toban_manifests.read import Document, find_problems
from toban_schedule import problems

# An executor starts nothing whose command and variables are larger.
_MAX_BYTES = 192 * 1024
_NO_CONTINUATION = "the line before ends with a backslash, but a crontab has no continuation lines: write both as one"


class Fate(StrEnum):
    """The result of a line."""

    CONVERTED = "converted"
    UNTIMED = "converted without its time"
    KEPT = "carried over"
    LABEL = "kept as a label only"
    LOST = "NOT carried over"


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How to read. `system` None = find out; `timezone` holds where no CRON_TZ does; `accounts` are those of this machine.

    `origin` tells this crontab from all others, and becomes a label ("" = none).
    """

    source: str
    system: bool | None = None
    timezone: str = "UTC"
    prefix: str = ""
    origin: str = ""
    accounts: Collection[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One line of the report. `documents` are what was made of it; `outcome` is the fate as text."""

    line: Line
    fate: Fate
    outcome: str
    notes: tuple[str, ...] = ()
    documents: tuple[dict[str, Any], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Imported:
    """The whole crontab."""

    layout: Layout
    entries: list[Entry]
    notes: list[str] = field(default_factory=list)

    @property
    def lost(self) -> int:
        """How many lines with a command were not carried over, or not their time."""
        left_out = (Fate.LOST, Fate.UNTIMED)
        return sum(entry.fate in left_out and entry.line.kind is Kind.JOB for entry in self.entries)

    @property
    def documents(self) -> list[dict[str, Any]]:
        """All documents in the order of their lines."""
        return [document for entry in self.entries for document in entry.documents]


def convert(content: bytes, options: Options) -> Imported:
    """Never raises for the content of a file: a line that cannot be carried over is an entry with the reason."""
    lines, notes = read_lines(content)
    layout = _layout(lines, options)
    reader = _Reader(options, layout.system)
    return Imported(layout=layout, entries=[entry for line in lines if (entry := reader.read(line))], notes=notes)


def _layout(lines: list[Line], options: Options) -> Layout:
    if options.system is not None:
        return Layout(options.system, "by option")
    return detect(
        source=options.source,
        comments=[line.text for line in lines if line.kind is Kind.COMMENT],
        jobs=[_job_text(line)[0] for line in lines if line.kind is Kind.JOB and not template_reason(line)],
        accounts=options.accounts,
    )


class _Reader:
    """Reads line after line; assignments and comments hold for what follows them."""

    def __init__(self, options: Options, system: bool) -> None:
        self._options = options
        self._system = system
        self._around = Surroundings()
        self._names = Names(options.prefix)
        self._comments: list[str] = []
        # Whether the job before ends with a backslash.
        self._continues = False

    def read(self, line: Line) -> Entry | None:
        """The entry of a line; None for a blank one and a comment."""
        if line.kind is Kind.COMMENT:
            self._comments.append(line.text)
            return None
        comments, self._comments = self._comments, []
        if line.kind is Kind.BLANK:
            return None
        if problem := line.problem or template_reason(line):
            return Entry(line=line, fate=Fate.LOST, outcome=problem)
        if line.kind is Kind.ASSIGNMENT:
            done = assign(self._around, line.text, line.number)
            self._around = done.after
            fate = Fate.LOST if done.lost else Fate.LABEL if done.label_only else Fate.KEPT
            return Entry(line=line, fate=fate, outcome=done.outcome)
        try:
            return self._job(line, description(comments))
        except (TimingError, CommandError) as error:
            outcome = f"{error}; {_NO_CONTINUATION}" if self._continues else str(error)
            return Entry(line=line, fate=Fate.LOST, outcome=outcome)
        finally:
            self._continues = line.text.endswith("\\")

    def _job(self, line: Line, described: str) -> Entry:
        text, notes = _job_text(line)
        when, rest = split_timing(text)
        timing = read_timing(when, rest, lambda what, size: _draw(f"{rest}\0{what}", size))
        account = ""
        if self._system:
            account, rest = _account(rest)
            notes.append(
                f"runs as the executor's own account, not as {account}: run_as is not available in this version; kept as label cron/user"
            )
        command = read_command(rest)
        if self._around.bad_zone and "cron" in timing.rule:
            raise TimingError(f"its zone is not known, since CRON_TZ of line {self._around.bad_zone} is no zone")
        plan = self._plan(command, timing, account, described)
        made = documents(plan)
        if wrong := _wrong(made):
            return Entry(line=line, fate=Fate.LOST, outcome=wrong)
        notes += [*timing.notes, *_remarks(command, plan)]
        fate = Fate.UNTIMED if timing.time_lost else Fate.CONVERTED
        return Entry(line=line, fate=fate, outcome=_outcome(plan, timing), notes=tuple(notes), documents=tuple(made))

    def _plan(self, command: Command, timing: Timing, account: str, described: str) -> Planned:
        around = self._around
        wanted = command.tags.get("ID") or title(command.line)
        content = "\0".join((account, timing.text, command.line, command.stdin or ""))
        labels = dict(around.labels)
        if account:
            labels["cron/user"] = account
        labels |= {f"cron/{tag.lower()}": value for tag, value in command.tags.items()}
        return Planned(
            name=self._names.name(slug(wanted), content),
            invocation=invocation(command, around.shell or "/bin/sh"),
            rule=timing.rule,
            timezone=around.timezone or self._options.timezone,
            names_hours=timing.names_hours,
            alone=timing.alone or "s" in command.flags,
            working_dir=around.home,
            description=described,
            origin=self._options.origin,
            env=around.env,
            labels=labels,
        )


def _job_text(line: Line) -> tuple[str, list[str]]:
    """The line without blanks around it and without SUSE's dash, and a note about that."""
    text = line.text.strip(BLANKS)
    if re.match(r"-[ \t]*[\d*@]", text):
        return text[1:].lstrip(BLANKS), ["the - before the time (do not write to syslog) means nothing here"]
    return text, []


def _account(rest: str) -> tuple[str, str]:
    account, rest_behind = split_account(rest)
    if account:
        return account, rest_behind
    word = rest.partition(" ")[0] or "nothing"
    raise CommandError(
        f"{word!r} stands where the account should be: write one, or use --user if there is no such column"
    )


def _draw(what: str, size: int) -> int:
    return int.from_bytes(hashlib.sha256(what.encode()).digest()[:8], "big") % size


def _wrong(made: list[dict[str, Any]]) -> str:
    """Why `toban validate` would refuse these documents or no executor could start them, "" when there is nothing."""
    size = len(json.dumps(made, ensure_ascii=False).encode())
    if size > _MAX_BYTES:
        return f"its command, variables and labels have {size} bytes, the limit is {_MAX_BYTES}: put some into a file"
    _, found = find_problems([Document("crontab", body) for body in made], check_rule=problems)
    return "; ".join(
        f"{item.path.removeprefix('spec.')}: {item.message}" + (f" ({item.hint})" if item.hint else "")
        for item in found
    )


def _remarks(command: Command, plan: Planned) -> list[str]:
    remarks = [plan.invocation.how]
    if "s" in command.flags:
        remarks.append("-s (one at a time) is concurrency.policy: forbid")
    if set(command.flags) & set("nq"):
        remarks.append(
            f"-{''.join(sorted(set(command.flags) & set('nq')))} (less mail, less syslog) means nothing here"
        )
    for tag in ("AFTER", "WAIT", "FREQ"):
        if tag in command.tags:
            remarks.append(
                f"{tag}={command.tags[tag]} is dcron's and NOT carried over (kept as label cron/{tag.lower()}): runs at each time of its"
                f" schedule; {'put both commands into one job as steps' if tag != 'FREQ' else 'write its interval by hand'}"
            )
    if re.match(r"\.{1,2}/", plan.invocation.argv[0]) and not plan.working_dir:
        remarks.append(
            "the program is relative to the account's home in cron: write an absolute path or set working_dir"
        )
    return remarks


def _outcome(plan: Planned, timing: Timing) -> str:
    if not plan.rule:
        return f"job {plan.name} WITHOUT a schedule: {timing.why_none}; start it with `toban run start {plan.name}`{timing.remedy}"
    [(key, value)] = plan.rule.items()
    zone = f" {plan.timezone}" if key == "cron" else ""
    return f"job and schedule {plan.name} ({key}: {value}{zone})"
