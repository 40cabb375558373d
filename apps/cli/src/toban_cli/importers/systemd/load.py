"""Reads unit files: those that are named, those in folders, their drop-ins in all these folders, and the services of timers beside them."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from toban_cli.importers.files import check_text, read_file
from toban_cli.importers.systemd.unit_file import Unit, drop_in_folders, read_unit, template_of
from toban_domain.errors import ErrorCode, TobanError

REMEDY = "give unit files (*.timer, *.service), or a folder such as /etc/systemd/system"
_ENDINGS = (".timer", ".service")


def load_units(names: Sequence[str]) -> tuple[dict[str, Unit], list[str]]:
    """The units by name, and notes about folders of drop-ins that belong to none of them.

    The first unit of a name counts. Raises NOT_FOUND or INVALID_ARGUMENT with the file.
    """
    given = [Path(name) for name in names]
    folders = list(dict.fromkeys(path if path.is_dir() else path.parent for path in given))
    units: dict[str, Unit] = {}
    for path in (file for one in given for file in _files(one)):
        first = units.get(path.name)
        if first is None:
            units[path.name] = _load(path, path.name, folders)
        elif Path(first.path) != path:
            first.problems.append(f"{path} has the same name: left out, since the first one counts")
    timers = [unit for unit in units.values() if unit.name.endswith(".timer")]
    searched = [path for path in given if path.is_dir()]
    if searched and not timers:
        raise TobanError(ErrorCode.NOT_FOUND, f"{', '.join(map(str, searched))}: no *.timer in this folder; {REMEDY}")
    for timer in timers:
        wanted = timer.last("Timer", "Unit") or f"{timer.stem}.service"
        template = template_of(wanted)
        for name in filter(None, (wanted, template)):
            beside = Path(timer.path).with_name(Path(name).name)
            if name not in units and beside.is_file():
                units[name] = _load(beside, name, folders)
        if wanted not in units and template in units:
            # An instance has drop-ins of its own.
            units[wanted] = _load(Path(units[template].path), wanted, folders)
    return units, _unused(searched, units)


def _files(path: Path) -> Iterator[Path]:
    if path.is_dir():
        yield from sorted(file for file in path.iterdir() if file.suffix in _ENDINGS and file.is_file())
    elif path.suffix in _ENDINGS:
        yield path
    else:
        raise TobanError(ErrorCode.INVALID_ARGUMENT, f"{path} is neither a .timer nor a .service; {REMEDY}")


def _load(path: Path, name: str, folders: Sequence[Path]) -> Unit:
    texts = []
    for file in (path, *_drop_ins(name, folders)):
        content = read_file(os.fspath(file), REMEDY)
        check_text(content, os.fspath(file), REMEDY)
        texts.append(content)
    return read_unit(name, os.fspath(path), texts)


def _drop_ins(name: str, folders: Iterable[Path]) -> list[Path]:
    """The drop-ins of a unit by their file name; of the same one, the first counts, and a link to /dev/null takes it away."""
    *own, of_all = drop_in_folders(name)
    found: dict[str, Path] = {}
    for place in (*(folder / one for folder in folders for one in own), *(folder / of_all for folder in folders)):
        for file in place.glob("*.conf"):
            found.setdefault(file.name, file)
    return [found[one] for one in sorted(found) if not found[one].is_char_device()]


def _unused(folders: Iterable[Path], units: Iterable[str]) -> list[str]:
    used = {one for name in units for one in drop_in_folders(name)}
    found = [place for folder in folders for end in _ENDINGS for place in sorted(folder.glob(f"*{end}.d"))]
    return [f"{place}: no unit that was read has these drop-ins: left out" for place in found if place.name not in used]
