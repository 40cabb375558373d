"""Reads unit files: those that are named, those in folders, their drop-ins, and the services of timers beside them."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from toban_cli.importers.files import check_text, read_file
from toban_cli.importers.systemd.unit_file import Unit, read_unit, template_of
from toban_domain.errors import ErrorCode, TobanError

REMEDY = "give unit files (*.timer, *.service), or a folder such as /etc/systemd/system"
_ENDINGS = (".timer", ".service")


def load_units(names: Sequence[str]) -> dict[str, Unit]:
    """The units by name; the first of a name counts. Raises NOT_FOUND or INVALID_ARGUMENT with the file."""
    units: dict[str, Unit] = {}
    for path in (path for name in names for path in _files(Path(name))):
        first = units.get(path.name)
        if first is None:
            units[path.name] = _load(path)
        elif Path(first.path) != path:
            first.problems.append(f"{path} has the same name: left out, since the first one counts")
    for timer in [unit for unit in units.values() if unit.name.endswith(".timer")]:
        wanted = timer.last("Timer", "Unit") or f"{timer.stem}.service"
        for name in filter(None, (wanted, template_of(wanted))):
            beside = Path(timer.path).with_name(Path(name).name)
            if name not in units and beside.is_file():
                units[name] = _load(beside)
    return units


def _files(path: Path) -> Iterator[Path]:
    if not path.is_dir():
        if path.suffix not in _ENDINGS:
            raise TobanError(ErrorCode.INVALID_ARGUMENT, f"{path} is neither a .timer nor a .service; {REMEDY}")
        yield path
        return
    found = sorted(file for file in path.iterdir() if file.suffix in _ENDINGS and file.is_file())
    if not any(file.suffix == ".timer" for file in found):
        raise TobanError(ErrorCode.NOT_FOUND, f"{path}: no *.timer in this folder; {REMEDY}")
    yield from found


def _load(path: Path) -> Unit:
    folder = path.with_name(f"{path.name}.d")
    files = [path, *(sorted(folder.glob("*.conf")) if folder.is_dir() else ())]
    texts = []
    for file in files:
        content = read_file(os.fspath(file), REMEDY)
        check_text(content, os.fspath(file), REMEDY)
        texts.append(content)
    return read_unit(path.name, os.fspath(path), texts)
