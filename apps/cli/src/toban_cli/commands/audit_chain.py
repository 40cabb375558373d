"""`toban audit export` and `toban audit verify`: the audit as a file, and whether its hash chain is whole."""

from __future__ import annotations

import csv
import io
import json
import sys
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from toban_cli import report
from toban_cli.client import connect
from toban_cli.commands.audit import FILTER_SECONDS, Action, Actor, From, Since, Target, Until, audit_request
from toban_cli.formatting import count, to_time
from toban_cli.messages import common_pb, pb
from toban_domain.errors import ErrorCode, TobanError

if TYPE_CHECKING:
    from toban_domain.audit_chain import Link, Problem

EXIT_BROKEN = 1
PAGE = 500
VERIFY_SECONDS = 60.0
COLUMNS = ("seq", "id", "at", "actor", "action", "target", "before", "after", "reason", "address", "service", "hash")
# Spreadsheets take a cell that begins so for a formula.
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


class FileFormat(StrEnum):
    """Format of an export."""

    JSONL = "jsonl"
    CSV = "csv"


Form = Annotated[
    FileFormat,
    typer.Option("--format", help="jsonl: one JSON object a line, which can be verified; csv: for spreadsheets."),
]
Head = Annotated[
    str, typer.Option("--head", metavar="SEQ:HASH", help="An end of the chain that an earlier verification printed.")
]
File = Annotated[
    str,
    typer.Option(
        "--file", "-f", metavar="FILE", help="Check this export (jsonl, without a filter; - = stdin) and no cluster."
    ),
]


def export(
    form: Form = FileFormat.JSONL,
    actor: Actor = "",
    action: Action = "",
    target: Target = "",
    address: From = "",
    since: Since = "",
    until: Until = "",
) -> None:
    """Print the audit, oldest first, with the hashes of its chain.

    Examples:
    toban audit export > audit.jsonl
    toban audit export --format csv --action run.cancel --since 30d
    """
    wanted = audit_request(actor, action, target, address, since, until)
    wanted.oldest_first = True
    if form is FileFormat.CSV:
        report.echo(",".join(COLUMNS))
    for entry in _entries(wanted):
        report.echo(_csv_line(entry) if form is FileFormat.CSV else json.dumps(_values(entry)))


def verify(head: Head = "", file: File = "") -> int:
    """Check that no row of the audit was changed, removed or inserted. Exit code 1 when one was.

    Keep the printed head elsewhere: with it, a later verification also finds a chain that was written again as a whole.

    Examples:
    toban audit verify
    toban audit verify --file audit.jsonl
    zcat audit.jsonl.gz | toban audit verify --file -
    """
    return _verify_file(Path(file), head) if file else _verify_cluster(head)


def _verify_cluster(head: str) -> int:

    rows, broken, cursor = 0, 0, ""
    with connect() as client:
        while True:
            request = pb.VerifyAuditRequest(cursor=cursor, known_head="" if cursor else head)
            part = client.call("Operations.VerifyAudit", request, timeout=VERIFY_SECONDS)
            rows += part.rows
            broken += len(part.problems)
            for problem in part.problems:
                report.echo(f"{problem.kind}: {problem.message}")
            cursor = part.next_cursor
            if not cursor:
                break
    _conclude(rows, broken, part.head)
    if (deleted := part.anchor.partition(":")[0]) not in ("", "0"):
        report.echo(f"Rows up to {deleted} were deleted after audit_retention_days.")
    if part.unchained:
        report.echo(f"Not chained yet: {count(part.unchained, 'row')}, the oldest since {part.unchained_seconds:.0f} s")
    return EXIT_BROKEN if broken else 0


def _verify_file(path: Path, head: str) -> int:
    from toban_domain.audit_chain import START, Problem, check_links

    # An export is in the order of ids; a row that was committed late is later in the chain.
    links = sorted(_links(path), key=lambda link: link.seq)
    problems: list[Problem] = []
    if links:
        # Of an export whose oldest rows were past their retention the first row is taken as it is.
        start, rest = (START, links) if links[0].seq == 1 else (links[0].mark, links[1:])
        problems = check_links(start, rest, head=links[-1].mark, complete=True)
    if head and _mark(head) not in {link.mark for link in links}:
        problems.append(Problem("changed", 0, 0, f"no row has the number and hash of the head {head}"))
    for problem in problems:
        report.echo(f"{problem.kind}: {problem.message}")
    _conclude(len(links), len(problems), str(links[-1].mark) if links else "none")
    return EXIT_BROKEN if problems else 0


def _conclude(rows: int, broken: int, head: str) -> None:
    report.echo(
        f"{count(broken, 'problem')} in {count(rows, 'row')}" if broken else f"{count(rows, 'row')}: the chain is whole"
    )
    report.echo(f"Head: {head}")


def _entries(wanted: Any) -> Iterator[Any]:

    with connect() as client:
        cursor = ""
        while True:
            wanted.page.CopyFrom(common_pb.Page(limit=PAGE, cursor=cursor))
            answer = client.call("Operations.ListAudit", wanted, timeout=FILTER_SECONDS)
            yield from answer.entries
            cursor = answer.next_cursor
            if not cursor:
                return


def _values(entry: Any) -> dict[str, Any]:
    """A row with JSON as the text that its hash covers."""
    at = to_time(entry.at)
    return {
        **{name: getattr(entry, name, "") for name in COLUMNS},
        "at": at.isoformat(timespec="microseconds") if at else "",
        "before": entry.before_json,
        "after": entry.after_json,
    }


def _csv_line(entry: Any) -> str:
    cells = [str(value) for value in _values(entry).values()]
    line = io.StringIO()
    csv.writer(line, lineterminator="").writerow(f"'{cell}" if cell.startswith(_FORMULA) else cell for cell in cells)
    return line.getvalue()


def _links(path: Path) -> Iterator[Link]:
    """The chained rows of an export. Raises INVALID_ARGUMENT, naming the line, for a file that is none."""
    from datetime import datetime

    from toban_domain.audit_chain import Link

    try:
        lines = (sys.stdin.read() if str(path) == "-" else path.read_text()).splitlines()
    except (OSError, ValueError) as error:
        raise TobanError(
            ErrorCode.INVALID_ARGUMENT, f"{path} cannot be read ({error}); give a file of `toban audit export`"
        ) from None
    for number, line in enumerate(lines, 1):
        try:
            row = json.loads(line)
            at, digest = datetime.fromisoformat(row.pop("at")), bytes.fromhex(row.pop("hash"))
            if not all(isinstance(value, int if name in ("seq", "id") else str) for name, value in row.items()):
                raise ValueError("a value of another type")
            link = Link(**row, at=at, hash=digest)
        except (ValueError, TypeError, KeyError, AttributeError):
            message = f"{path}, line {number} is no row of the audit; give a file of `toban audit export`"
            raise TobanError(ErrorCode.INVALID_ARGUMENT, message) from None
        if link.seq:
            yield link


def _mark(text: str) -> Any:
    from toban_domain.audit_chain import Mark

    try:
        return Mark.parse(text)
    except ValueError:
        message = f"--head {text[:100]!r} is not of the form SEQ:HASH, as `toban audit verify` prints it"
        raise TobanError(ErrorCode.INVALID_ARGUMENT, message) from None
