"""Documents name only files that exist and link to what exists, and no tracked file knows the machine that it was written on."""

import re
import subprocess
from collections import Counter
from pathlib import Path

from toban_testing.documents import dead_links

ROOT = Path(__file__).resolve().parents[2]
# A path in backquotes: below a folder of the repository, with nothing to fill in.
FOLDERS = "proto|apps|services|libs|web|deploy|scripts|tests|docs|examples|requirements"
IN_BACKQUOTES = re.compile(rf"`((?:{FOLDERS})/[A-Za-z0-9_./-]*)`")
# An entry of the navigation of mkdocs.yml.
IN_NAVIGATION = re.compile(r"^ +- (\S+\.md)$", re.MULTILINE)
# Folders of the tools that make and run sessions or build machines; examples of installed paths are fine.
MACHINE = re.compile("|".join([r"/wo" + r"rk/", r"/ro" + r"ot/", r"\.py" + "env/"]))


def tracked(*patterns: str) -> list[Path]:
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "--", *patterns]
    names = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
    return [ROOT / name for name in sorted(set(names)) if (ROOT / name).is_file()]


def missing_paths(document: Path, root: Path = ROOT) -> list[str]:
    """The paths in backquotes in a document that do not exist below `root`."""
    text = document.read_text(encoding="utf-8")
    return [name for name in IN_BACKQUOTES.findall(text) if not (root / name).exists()]


def machine_lines(path: Path, root: Path = ROOT) -> list[str]:
    """The lines of a text file that have a path of the machine it was written on."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except UnicodeDecodeError:
        return []
    return [f"{path.relative_to(root)}:{n}: {line}" for n, line in enumerate(lines, 1) if MACHINE.search(line)]


def test_every_path_in_a_document_exists() -> None:
    documents = tracked("*.md")
    assert [f"{one.relative_to(ROOT)}: {name}" for one in documents for name in missing_paths(one)] == []


def test_every_link_and_anchor_in_a_document_exists() -> None:
    assert [f"{one.relative_to(ROOT)}: {link}" for one in tracked("*.md") for link in dead_links(one)] == []


def test_each_document_is_in_the_navigation_of_the_site_once() -> None:
    entries = Counter(IN_NAVIGATION.findall((ROOT / "mkdocs.yml").read_text(encoding="utf-8")))
    documents = Counter(str(path.relative_to(ROOT / "docs")) for path in tracked("docs/*.md"))
    assert (documents - entries, entries - documents) == (Counter(), Counter()), (
        "missing in mkdocs.yml, and too many there"
    )


def test_every_feature_is_named_once_with_the_files_of_its_tests() -> None:
    here, later = (ROOT / "docs/features.md").read_text(encoding="utf-8").split("## What comes later")
    rows = re.findall(r"^\| (?!feature|-)(.+?) \| (.*) \|$", here, re.MULTILINE)
    names = [name for name, _ in rows] + re.findall(r"^\| (?!capability)(.+?) \|$", later, re.MULTILINE)
    assert len(rows) > 80 and len(names) == len(set(names))
    assert [name for name, files in rows if not re.match(r"`[\w/.-]+/test_\w+\.py`", files)] == []


def test_no_file_names_the_machine_it_was_written_on() -> None:
    assert [line for path in tracked() for line in machine_lines(path)] == []


def test_a_missing_path_is_found(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs/there.md").write_text("# There\n")
    document = tmp_path / "docs/a.md"
    document.write_text("`docs/there.md`, `libs/gone/src/` and `make up`\n")
    assert missing_paths(document, tmp_path) == ["libs/gone/src/"]


def test_a_path_of_the_machine_is_found(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("fine\n" + "see /ro" + "ot/notes\n")
    assert machine_lines(path, tmp_path) == ["notes.txt:2: see /ro" + "ot/notes"]
    path.write_bytes(b"\xff /ro" + b"ot/notes")
    assert machine_lines(path, tmp_path) == []


# toban-proto is generated; the README of the command describes its modules by group.
LIBRARIES = sorted(
    path.parent
    for path in (
        *ROOT.glob("apps/*/pyproject.toml"),
        *ROOT.glob("libs/*/pyproject.toml"),
        ROOT / "tests/kit/pyproject.toml",
    )
    if path.parent.name not in ("proto", "cli")
)


def unnamed_modules(library: Path) -> list[str]:
    """The modules and packages at the top of a library that its README does not name in backquotes."""
    (package,) = (path.parent for path in library.glob("src/*/__init__.py"))
    modules = {path.stem for path in package.glob("*.py")} | {
        path.parent.name for path in package.glob("*/__init__.py")
    }
    text = (library / "README.md").read_text(encoding="utf-8")
    named = {name.removeprefix(f"{package.name}.").partition(".")[0] for name in re.findall(r"`([a-z_0-9.]+)", text)}
    return sorted(f"{library.name}: {name}" for name in modules - named if not name.startswith("_"))


def test_the_readme_of_a_library_names_its_modules() -> None:
    assert [name for library in LIBRARIES for name in unnamed_modules(library)] == []
