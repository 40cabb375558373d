"""What imports read and write: the files of other schedulers, the YAML, the cluster."""

from __future__ import annotations

import errno
import os
import shlex
import stat
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from toban_cli import report
from toban_cli.client import connect
from toban_cli.sanitize import clean
from toban_domain.errors import ErrorCode, TobanError

if TYPE_CHECKING:
    from toban_cli.importers.result import Imported

MAX_BYTES = 4 * 1024 * 1024
# Control characters that no text has. Compressed data, where every byte is as likely as any other, is a tenth of them.
_CONTROLS = bytes(set(range(32)) - set(b"\t\n\v\f\r\x1b"))
_ODD_ALLOWED = 3
_ODD_SHARE = 0.05
_LIMITS = "2000 documents and 1 MiB"
# Some definition, or its time, could not be carried over completely; the rest was.
EXIT_INCOMPLETE = 65

Prefix = Annotated[str, typer.Option("--name-prefix", help="Prefix of each name, such as web1-.")]
Out = Annotated[str, typer.Option("--out", help="Write the YAML to this new file instead of stdout.")]
Force = Annotated[bool, typer.Option("--force", help="With --out: overwrite an existing file.")]
Apply = Annotated[bool, typer.Option("--apply", help="Apply the jobs and schedules at once instead of printing them.")]


@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """Where an import goes: the values of --out, --force, --apply and --replace."""

    out: str
    force: bool
    apply: bool
    replace: bool


def deliver(done: Imported, output: Output, *, kind: str) -> int:
    """The report to stderr, the YAML to its place or the documents to the cluster; the exit code. `kind` is that of the label `origin`."""
    from toban_cli.importers.report import report_lines, yaml_texts

    for line in report_lines(done):
        report.note(line)
    if output.out or not output.apply:
        _put_out(yaml_texts(done), output.out, force=output.force)
    if output.apply and done.documents:
        from toban_cli.importers.apply import apply_imported

        with connect() as client:
            apply_imported(client, done, kind=kind, replace=output.replace)
    return EXIT_INCOMPLETE if done.lost else 0


def read_file(name: str, remedy: str) -> bytes:
    """The content of a file, or of stdin for "-". Raises NOT_FOUND with the remedy, INVALID_ARGUMENT for a file larger than MAX_BYTES."""
    try:
        if name == "-":
            content = sys.stdin.buffer.read(MAX_BYTES + 1)
        else:
            with Path(name).open("rb") as opened:
                content = opened.read(MAX_BYTES + 1)
    except OSError as error:
        raise TobanError(ErrorCode.NOT_FOUND, f"{name} cannot be read ({error.strerror}); {remedy}") from None
    if len(content) > MAX_BYTES:
        raise TobanError(ErrorCode.INVALID_ARGUMENT, f"{name} is larger than {MAX_BYTES} bytes; split it")
    return content


def check_text(content: bytes, source: str, remedy: str) -> None:
    """Refuses what is no text at all; in a text, unreadable lines are reported one by one."""
    odd = len(content) - len(content.translate(None, _CONTROLS))
    if odd > max(_ODD_ALLOWED, len(content) * _ODD_SHARE):
        raise TobanError(ErrorCode.INVALID_ARGUMENT, f"{source} is not text in UTF-8; {remedy}")


def check_prefix(prefix: str) -> None:
    """Raises INVALID_ARGUMENT for a prefix that no name can begin with."""
    from toban_manifests.values import NAME

    if prefix and (len(prefix) > 60 or not NAME.fullmatch(f"{prefix}x")):
        raise TobanError(
            ErrorCode.INVALID_ARGUMENT,
            f"--name-prefix is {prefix!r}; use at most 60 of a-z, 0-9, '.', '_', '-', beginning with a letter or digit",
        )


def zone_of(wanted: str, unlabelled: str) -> tuple[str, str]:
    """The zone of the schedules, and the sentence about it. Raises SCHEDULE_INVALID for a zone that is none.

    `wanted` "" = that of this machine; `unlabelled` names the times that have no zone of their own.
    """
    from toban_schedule.spec import ScheduleError
    from toban_schedule.zones import load_zone

    name, why = (wanted, "by --timezone") if wanted else _local_zone()
    try:
        load_zone(name)
    except ScheduleError as error:
        if wanted:
            raise TobanError(ErrorCode.SCHEDULE_INVALID, f"--timezone: {error.message}; {error.hint}") from None
        name, why = "UTC", f"since this machine's {name!r} is no IANA name"
    return name, f"{unlabelled} are local times of {name} ({why}); --timezone names another zone"


def _local_zone() -> tuple[str, str]:
    if given := os.environ.get("TZ", "").removeprefix(":"):
        return given, "from TZ of this shell"
    localtime = Path("/etc/localtime")
    _, found, name = (os.fspath(localtime.resolve()) if localtime.is_symlink() else "").partition("/zoneinfo/")
    if found:
        return {"Etc/UTC": "UTC"}.get(name, name), "this machine's, from /etc/localtime"
    return "UTC", "this machine names no zone"


def origin_of(name: str) -> str:
    """What distinguishes a file from others: the machine and the path, or the account for what comes through a pipe."""
    import getpass
    import socket

    try:
        who = getpass.getuser()
    except (KeyError, OSError):
        who = str(os.getuid())
    where = f"{who}'s" if name == "-" else os.fspath(Path(name).resolve())
    return clean(f"{socket.gethostname()}:{where}")


def _put_out(texts: list[str], out: str, *, force: bool) -> None:
    """The YAML to stdout or to new files. Raises INVALID_ARGUMENT before anything is printed or written."""
    if not out:
        if len(texts) > 1:
            raise _too_large(len(texts))
        if texts:
            report.echo(texts[0].rstrip("\n"))
        return
    first = Path(out)
    paths = [first.with_stem(f"{first.stem}-{number}") if number > 1 else first for number in range(1, len(texts) + 1)]
    for path in paths:
        _check_free(path, force=force)
    for path, text in zip(paths, texts, strict=True):
        _write(path, text, force=force)
    names = [shlex.quote(os.fspath(path)) for path in paths]
    if len(names) == 1:
        report.note(f"written to {first}; apply it with `toban apply -f {names[0]}`")
    elif names:
        report.note(
            f"one apply takes at most {_LIMITS}: written to {len(names)} files; apply them one after the other:"
        )
        for name in names:
            report.note(f"  toban apply -f {name}")


def _too_large(files: int) -> TobanError:
    return TobanError(
        ErrorCode.INVALID_ARGUMENT,
        f"the YAML needs {files} files, since one apply takes at most {_LIMITS}; write them with --out FILE,"
        " or apply at once with --apply",
    )


def _check_free(path: Path, *, force: bool) -> None:
    if not force and os.path.lexists(path):
        raise _taken(path)


def _taken(path: Path) -> TobanError:
    return TobanError(
        ErrorCode.ALREADY_EXISTS, f"--out {path} exists already; name another file, or overwrite it with --force"
    )


def _write(path: Path, text: str, *, force: bool) -> None:
    """To a new file that only its owner reads, since commands of crontabs hold passwords. Follows no symbolic link."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | (0 if force else os.O_EXCL)
    try:
        opened = os.open(path, flags, 0o600)
        with os.fdopen(opened, "w", encoding="utf-8") as file:
            if not stat.S_ISREG(os.fstat(opened).st_mode):
                raise OSError(errno.EINVAL, "not a file")
            os.fchmod(opened, 0o600)
            file.truncate()
            file.write(text)
    except FileExistsError:
        raise _taken(path) from None
    except OSError as error:
        why = "a symbolic link" if error.errno == errno.ELOOP else error.strerror
        raise TobanError(
            ErrorCode.INVALID_ARGUMENT, f"--out {path} cannot be written ({why}); name another file"
        ) from None
