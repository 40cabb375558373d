"""Examples and documents are what the command accepts and does."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import yaml

from toban_cli.exit_status import NOT_STARTED, RESULT_CODES

Toban = Callable[..., tuple[int, str, str]]
ROOT = Path(__file__).parents[3]


def test_the_examples_are_valid(toban: Toban) -> None:
    code, out, err = toban("validate", "-f", str(ROOT / "examples"))
    assert (code, err) == (0, "")
    assert re.fullmatch(r"\d+ documents are valid\n", out)


def test_the_manifest_in_the_documents_is_valid(toban: Toban, tmp_path: Path) -> None:
    text = (ROOT / "docs" / "manifests.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```yaml\n(.*?)```", text, re.DOTALL)
    assert blocks
    (tmp_path / "doc.yaml").write_text("---\n".join(blocks))
    assert toban("validate", "-f", str(tmp_path / "doc.yaml"))[0] == 0


def test_every_script_of_an_example_is_there() -> None:
    for file in (ROOT / "examples").glob("*.yaml"):
        for body in yaml.safe_load_all(file.read_text(encoding="utf-8")):
            for step in body["spec"].get("steps", []):
                for word in step.get("argv", []):
                    assert not word.endswith(".py") or (file.parent / word).is_file(), word
                for folder in step.get("python_path", []):
                    assert (file.parent / folder).is_dir(), folder
                if "project" in step:
                    assert (file.parent / step["project"] / "manage.py").is_file(), step["project"]


def test_exit_codes_of_results_are_documented() -> None:
    text = (ROOT / "docs" / "errors.md").read_text(encoding="utf-8")
    for state, code in (*RESULT_CODES.items(), ("FAILED", NOT_STARTED)):
        assert re.search(rf"^\| {code} \| .*{state}", text, re.MULTILINE), state
