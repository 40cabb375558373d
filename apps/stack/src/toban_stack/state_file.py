"""stack.json: processes of a stack and facts about it, replaced atomically after each change."""

import json
import os
import threading
from collections.abc import Mapping
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from toban_stack.errors import StackError
from toban_stack.processes import ProcessRecord, Program, alive, spawn


class StateFile:
    """The process records of one stack and the facts beside them, stored in a JSON file. Thread-safe.

    Each call reads the file, since the supervisor changes records too. The writer holds the lock of the stack.
    """

    def __init__(self, *, path: Path) -> None:
        """Raises StackError when the file is damaged."""
        self._path = path
        self._lock = threading.Lock()
        self._read()

    def all(self) -> list[ProcessRecord]:
        """Every record, in the order in which the processes were first started."""
        return list(self._read()[0].values())

    def get(self, name: str) -> ProcessRecord | None:
        """The record of `name`, alive or not."""
        return self._read()[0].get(name)

    def running(self, name: str) -> ProcessRecord | None:
        """The record of `name` when that process still runs."""
        record = self.get(name)
        return record if record is not None and alive(record) else None

    def add(self, record: ProcessRecord) -> None:
        """Stores `record` in place of an older one of the same name."""
        with self._lock:
            processes, facts = self._read()
            self._write({**processes, record.name: record}, facts)

    def remove(self, name: str) -> None:
        """Removes the record of `name`; without one, nothing changes."""
        with self._lock:
            processes, facts = self._read()
            processes.pop(name, None)
            self._write(processes, facts)

    def launch(self, program: Program) -> ProcessRecord:
        """The process of that name when it runs, else a new one."""
        record = self.running(program.name)
        if record is None:
            record = spawn(program)
            self.add(record)
        return record

    def fact(self, name: str, default: Any = None) -> Any:
        """A value beside the processes, such as `tls_dir`."""
        return self._read()[1].get(name, default)

    def set_facts(self, **facts: Any) -> None:
        """Stores values beside the processes, at the top level of stack.json."""
        with self._lock:
            processes, known = self._read()
            self._write(processes, {**known, **facts})

    def _read(self) -> tuple[dict[str, ProcessRecord], dict[str, Any]]:
        facts = _content(self._path)
        return {row["name"]: read_record(row) for row in facts.pop("processes", [])}, facts

    def _write(self, processes: Mapping[str, ProcessRecord], facts: Mapping[str, Any]) -> None:
        content = {**facts, "processes": [asdict(record) for record in processes.values()]}
        draft = self._path.with_name(f".{self._path.name}.{os.getpid()}")
        draft.write_text(json.dumps(content, indent=1) + "\n")
        draft.replace(self._path)


def _content(path: Path) -> dict[str, Any]:
    if not path.exists():
        return {}
    try:
        content: dict[str, Any] = json.loads(path.read_text())
    except ValueError as error:
        raise StackError(
            f"{path} is damaged ({error}): stop the processes that still run by hand and remove the file"
        ) from error
    return content


def read_record(row: Mapping[str, Any]) -> ProcessRecord:
    """Accepts records of other releases: fields that this one does not know are ignored."""
    known = {field.name for field in fields(ProcessRecord)}
    known_values = {name: value for name, value in row.items() if name in known}
    return ProcessRecord(**{**known_values, "leftovers": tuple(row.get("leftovers", ()))})
