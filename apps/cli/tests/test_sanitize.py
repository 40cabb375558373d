"""Texts from outside cannot draw on a terminal, whichever way they are printed; JSON and YAML keep them whole."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from toban_cli import report
from toban_cli.sanitize import clean, clean_lines, cut_words, escaped
from toban_cli.tables import render
from toban_cli.yaml_dump import to_yaml
from toban_domain.errors import ErrorCode, TobanError
from toban_proto.v1 import coordinator_pb2 as pb

Toban = Callable[..., tuple[int, str, str]]
TEXTS = st.text(
    st.characters(exclude_categories=["Cs"]) | st.sampled_from("\x1b\x9b\x85\u202e\u2066\u2028\r\n\t\x07\U000e0001")
)
EVIL = "a\x1b[2J\x9b31m\u202eb\r\nerror: all is well"


@given(TEXTS)
def test_what_is_cleaned_can_be_printed(text: str) -> None:
    assert clean(text).isprintable()
    assert clean_lines(text).replace("\n", "").replace("\t", "").isprintable()


@given(
    st.recursive(
        TEXTS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3), max_leaves=6
    )
)
def test_data_is_printable_and_the_same(value: Any) -> None:
    for text, read in ((report.json_text(value), json.loads), (to_yaml(value), yaml.safe_load)):
        assert text.replace("\n", "").isprintable()
        assert read(text) == value


@pytest.mark.parametrize("as_json", [False, True])
@pytest.mark.parametrize("detail", [{}, {"errors": [{"source": EVIL, "path": EVIL, "message": EVIL, "hint": EVIL}]}])
def test_an_error_is_one_printable_line(
    capsys: pytest.CaptureFixture[str], as_json: bool, detail: dict[str, Any]
) -> None:
    report.error(TobanError(ErrorCode.NOT_FOUND, EVIL, detail=detail), as_json=as_json)
    err = capsys.readouterr().err
    assert err.endswith("\n") and err[:-1].isprintable()
    if as_json:
        assert json.loads(err)["error"]["message"] == EVIL


def test_a_file_name_cannot_draw(toban: Toban, tmp_path: Path) -> None:
    file = tmp_path / "\x1b[31m\nred.yaml"
    file.write_text("kind: Job\n")
    code, _, err = toban("validate", "-f", str(file))
    assert code == 65
    assert all(line.startswith("error: ") and line.isprintable() for line in err.splitlines())


def test_servers_cannot_draw(cluster: Any, toban: Toban) -> None:
    cluster.reader.answers["ListJobs"] = pb.ListJobsResponse(jobs=[pb.Job(name=EVIL, description=EVIL)])
    for output in ("table", "wide", "name", "json", "yaml"):
        _, out, _ = toban("job", "list", "-o", output)
        assert out.replace("\n", "").isprintable()
    cluster.control.answers["CancelRun"] = TobanError(ErrorCode.CONFLICT, EVIL)
    err = toban("run", "cancel", "1")[2]
    assert err[:-1].isprintable()


def test_crontabs_cannot_draw(toban: Toban, tmp_path: Path) -> None:
    file = tmp_path / "crontab"
    file.write_bytes("# \x1b[2J\n0 1 * * * echo '\x1b]0;x\x07\u202e'\nA\x1b[1m=\x9b2\n0 99\x1b[2J * * * x\n".encode())
    _, out, err = toban("import", "crontab", str(file))
    assert out.replace("\n", "").isprintable()
    assert err.replace("\n", "").isprintable()


def test_a_doctors_lines_are_lines(toban: Toban, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOBAN_COORDINATORS", "\x1b[2J\nall is ok")
    out = toban("doctor")[1]
    assert out.replace("\n", "").isprintable()
    assert "\nall is ok" not in out


def test_endless_words_are_cut() -> None:
    assert cut_words(f"'{'9' * 600}' is out of range") == f"'{'9' * 59}…' is out of range"
    assert cut_words("a" * 300 + " b") == "a" * 300 + " b"


def test_escapes_of_large_characters() -> None:
    assert json.loads(escaped('"\U000e0001"')) == "\U000e0001"


def test_a_very_long_cell_does_not_pad_every_row() -> None:
    rows = [["x" * 1000, "a", "y" * 1000], ["z", "b", "c"]]
    lines = render(["WHY", "N", "LAST"], rows, loose=["WHY", "LAST"], width=None, colour=False).splitlines()
    assert len(lines[2]) < 130
    assert lines[1].endswith("y" * 1000)
