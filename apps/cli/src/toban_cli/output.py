"""How every command prints its result: `-o table|wide|json|yaml|name`, from messages and columns.

A listing calls `show`, a command that gets one thing `show_one`, one that changes something `show_done`. Nothing else in the commands
looks at the format.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from toban_cli import report
from toban_cli.options import Format
from toban_cli.sanitize import clean

if TYPE_CHECKING:
    from google.protobuf.message import Message

__all__ = ["Column", "Format", "name_of", "show", "show_data", "show_done", "show_one"]

# Fields that name a message, the first that it has: what other commands take as their argument.
_NAMES = ("name", "id", "run_id", "worker_id", "event_id")


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table: its header, the cell of a message, and whether it may be cut with … to fit a terminal.

    What other commands take as their argument is a `name`: it is cut when nothing else is left to be cut.
    """

    header: str
    cell: Callable[[Any], str]
    loose: bool = False
    name: bool = False


def show(
    output: Format,
    messages: Iterable[Message],
    *,
    table: Sequence[Column],
    wide: Sequence[Column] = (),
    empty: str = "",
    name: Callable[[Any], str] | None = None,
) -> None:
    """A list of messages; `wide` columns follow those of `table` with -o wide. `empty` is printed in place of a table without rows."""
    listed = list(messages)
    if output.is_data:
        from toban_cli.proto_json import plain_list

        show_data(output, plain_list(listed))
    elif output is Format.NAME:
        _names(listed, name)
    else:
        from toban_cli.tables import table as print_table

        columns = [*table, *(wide if output is Format.WIDE else ())]
        rows = [[column.cell(message) for column in columns] for message in listed]
        loose = [column.header for column in columns if column.loose]
        names = [column.header for column in columns if column.name]
        print_table([column.header for column in columns], rows, loose=loose, names=names, empty=empty)


def show_one(
    output: Format,
    message: Message,
    *,
    page: Callable[[bool], None],
    name: Callable[[Any], str] | None = None,
) -> None:
    """One message; `page` prints it for people; its argument is True with -o wide."""
    if output.is_data:
        from toban_cli.proto_json import plain

        show_data(output, plain(message))
    elif output is Format.NAME:
        _names([message], name)
    else:
        page(output is Format.WIDE)


def show_done(
    output: Format, message: Message, line: str | Sequence[str], *, name: Callable[[Any], str] | None = None
) -> None:
    """What a command did: the line (or lines) for people, the response of the server for programs."""
    lines = [line] if isinstance(line, str) else list(line)

    def page(_: bool) -> None:
        for text in lines:
            report.echo(clean(text))

    show_one(output, message, page=page, name=name)


def show_data(output: Format, value: Any) -> None:
    """Plain data, for results that are not one message: as YAML with -o yaml, else as JSON."""
    if output is Format.YAML:
        from toban_cli.yaml_dump import to_yaml

        report.echo(to_yaml(value).rstrip("\n"))
    else:
        report.data(value)


def name_of(message: Message) -> str:
    """The name or number by which other commands take this thing."""
    fields = {field.name for field in message.DESCRIPTOR.fields}
    return next((str(getattr(message, name)) for name in _NAMES if name in fields), "")


def _names(messages: Iterable[Message], name: Callable[[Any], str] | None) -> None:
    for message in messages:
        report.echo(clean((name or name_of)(message)))
