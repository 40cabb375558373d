"""A crontab to documents and an entry for each line that is neither blank nor a comment."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from toban_cli.importers.crontab.account_column import Layout, detect, split_account
from toban_cli.importers.crontab.command import Command, CommandError, invocation, read_command
from toban_cli.importers.crontab.description import description
from toban_cli.importers.crontab.environment import Surroundings, assign
from toban_cli.importers.crontab.line_parser import BLANKS, Kind, Line, read_lines, template_reason
from toban_cli.importers.crontab.manifest import Planned, documents
from toban_cli.importers.crontab.schedule_rule import Timing, TimingError, read_timing, split_timing
from toban_cli.importers.names import Names, slug, title
from toban_cli.importers.result import Entry, Fate, Imported, Origin, Place, wrong

_ALWAYS = (
    "cron starts a run beside one that still goes on; carried over as concurrency.policy: allow (forbid keeps them apart)",
    "cron forgets times at which it did not run; carried over as catch_up: skip (one runs the latest of them)",
    "cron mails output; here it is the log of the run (toban run logs RUN)",
)
_HOME = "cron begins in the account's home; here a job begins in a folder of the executor unless working_dir is set"
_NO_CONTINUATION = "the line before ends with a backslash, but a crontab has no continuation lines: write both as one"


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How to read. `system` None = find out; `timezone` holds where no CRON_TZ does; `accounts` are those of this machine.

    `origin` tells this crontab from all others, and becomes a label ("" = none). `zone_note` is the reason for `timezone`.
    """

    source: str
    system: bool | None = None
    timezone: str = "UTC"
    prefix: str = ""
    origin: str = ""
    zone_note: str = ""
    accounts: Collection[str] = ()


def convert(content: bytes, options: Options) -> Imported:
    """Never raises for the content of a file: a line that cannot be carried over is an entry with the reason."""
    lines, notes = read_lines(content)
    layout = _layout(lines, options)
    reader = _Reader(options, layout.system)
    entries = [entry for line in lines if (entry := reader.read(line))]
    kind = "a system crontab (with a column for the account)" if layout.system else "a user's crontab"
    return Imported(
        entries=entries,
        notes=[f"{options.source}: {note}" for note in (f"{kind}: {layout.reason}", *notes)],
        for_all=_for_all(entries, options.zone_note),
        counted=("line with commands", "lines with commands"),
    )


def _for_all(entries: list[Entry], zone_note: str) -> list[str]:
    """What holds for every job that comes from a crontab; docs/crontab.md has more."""
    jobs = [entry.documents[0]["spec"] for entry in entries if entry.documents]
    home = [] if all("working_dir" in job for job in jobs) else [_HOME]
    return [*_ALWAYS, *filter(None, [zone_note]), *home]


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
            return self._entry(line, Fate.LOST, problem)
        if line.kind is Kind.ASSIGNMENT:
            done = assign(self._around, line.text, line.number)
            self._around = done.after
            fate = Fate.LOST if done.lost else Fate.LABEL if done.label_only else Fate.KEPT
            return self._entry(line, fate, done.outcome)
        try:
            return self._job(line, description(comments))
        except (TimingError, CommandError) as error:
            outcome = f"{error}; {_NO_CONTINUATION}" if self._continues else str(error)
            return self._entry(line, Fate.LOST, outcome)
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
        if problem := wrong(made):
            return self._entry(line, Fate.LOST, problem)
        notes += [*timing.notes, *_remarks(command, plan)]
        fate = Fate.UNTIMED if timing.time_lost else Fate.CONVERTED
        return self._entry(line, fate, _outcome(plan, timing), notes, made)

    def _entry(
        self,
        line: Line,
        fate: Fate,
        outcome: str,
        notes: Sequence[str] = (),
        made: tuple[dict[str, Any], ...] = (),
    ) -> Entry:
        return Entry(
            place=Place("line", str(line.number), self._options.source, line.text),
            is_job=line.kind is Kind.JOB,
            fate=fate,
            outcome=outcome,
            notes=tuple(notes),
            documents=made,
        )

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
            origin=Origin("crontab", self._options.origin),
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
