"""Documents name only files that exist, and no tracked file knows the machine that it was written on."""

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
# A path in backquotes or as a link's target: below a folder of the repository, with nothing to fill in.
FOLDERS = "proto|services|libs|web|deploy|scripts|tests|docs|examples|requirements"
IN_BACKQUOTES = re.compile(rf"`((?:{FOLDERS})/[A-Za-z0-9_./-]*)`")
LINK = re.compile(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)")
# Folders of the tools that make and run sessions or build machines; examples of installed paths are fine.
MACHINE = re.compile("|".join([r"/wo" + r"rk/", r"/ro" + r"ot/", r"\.py" + "env/"]))


def tracked(*patterns: str) -> list[Path]:
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "--", *patterns]
    names = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
    return [ROOT / name for name in sorted(set(names)) if (ROOT / name).is_file()]


DOCUMENTS = tracked("*.md")


@pytest.mark.parametrize("document", DOCUMENTS, ids=[str(path.relative_to(ROOT)) for path in DOCUMENTS])
def test_every_path_in_a_document_exists(document: Path) -> None:
    text = document.read_text(encoding="utf-8")
    missing = [name for name in IN_BACKQUOTES.findall(text) if not (ROOT / name).exists()]
    missing += [name for name in LINK.findall(text) if not (document.parent / name).exists()]
    assert missing == []


def test_no_file_names_the_machine_it_was_written_on() -> None:
    found: list[str] = []
    for path in tracked():
        try:
            lines = path.read_text(encoding="utf-8").splitlines()
        except UnicodeDecodeError:
            continue
        found += [f"{path.relative_to(ROOT)}:{n}: {line}" for n, line in enumerate(lines, 1) if MACHINE.search(line)]
    assert found == []
