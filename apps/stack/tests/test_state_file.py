"""stack.json is readable by other releases; a damaged one is an error."""

import json
from pathlib import Path

import pytest

from toban_stack.errors import StackError
from toban_stack.processes import ProcessRecord
from toban_stack.state_file import StateFile

RECORD = ProcessRecord(name="redis", role="coordination", pid=1, started=2, boot="b", log="l")


def test_records_and_facts_are_read_again(tmp_path: Path) -> None:
    records = StateFile(path=tmp_path / "stack.json")
    records.add(RECORD)
    records.set_facts(coordinators=["127.0.0.1:1"])
    again = StateFile(path=tmp_path / "stack.json")
    assert again.all() == [RECORD]
    assert again.fact("coordinators") == ["127.0.0.1:1"]
    assert again.running("redis") is None
    again.remove("redis")
    assert StateFile(path=tmp_path / "stack.json").get("redis") is None


def test_a_field_of_another_release_is_left_out(tmp_path: Path) -> None:
    StateFile(path=tmp_path / "stack.json").add(RECORD)
    content = json.loads((tmp_path / "stack.json").read_text())
    content["processes"][0]["colour"] = "green"
    (tmp_path / "stack.json").write_text(json.dumps(content))
    assert StateFile(path=tmp_path / "stack.json").all() == [RECORD]


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "stack.json").write_text("{")
    with pytest.raises(StackError, match=r"stack\.json is damaged"):
        StateFile(path=tmp_path / "stack.json")
