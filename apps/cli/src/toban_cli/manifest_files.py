"""Manifests from files: documents with their source, and with paths that count from the folder of their file."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from toban_cli import report
from toban_domain.errors import ErrorCode, TobanError
from toban_manifests.read import Document
from toban_manifests.yaml_text import MAX_BYTES, parse_yaml

_SUFFIXES = (".yaml", ".yml")


def read_documents(names: Sequence[str]) -> list[Document]:
    """The documents of all files, folders (recursively, by name) and "-"; raises MANIFEST_INVALID or NOT_FOUND."""
    documents: list[Document] = []
    for name in names:
        if name == "-":
            documents += _parse("stdin", sys.stdin.buffer.read(MAX_BYTES + 1), Path.cwd())
            continue
        for path in _files(Path(name)):
            documents += _parse(str(path), _bytes(path), path.parent)
    if not documents:
        given = ", ".join("stdin" if name == "-" else name for name in names)
        raise TobanError(
            ErrorCode.MANIFEST_INVALID,
            f"{given}: no document found; write at least one with apiVersion, kind, metadata, spec",
        )
    return documents


def _files(path: Path) -> list[Path]:
    if not path.is_dir():
        return [path]
    found = sorted(file for file in path.rglob("*") if file.suffix in _SUFFIXES and file.is_file())
    if not found:
        raise TobanError(ErrorCode.NOT_FOUND, f"{path}: no *.yaml or *.yml in this folder; name another")
    return found


def _bytes(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(MAX_BYTES + 1)
    except OSError as error:
        raise TobanError(
            ErrorCode.NOT_FOUND, f"{path} cannot be read ({error.strerror}); give a YAML file, a folder, or -"
        ) from None


def _parse(source: str, content: bytes, folder: Path) -> Iterator[Document]:
    bodies = parse_yaml(source, content, lambda line: report.note(f"warning: {line}"))
    for number, body in enumerate(bodies, start=1):
        yield Document(source if len(bodies) == 1 else f"{source}, document {number}", _resolved(body, folder))


def _resolved(body: Any, folder: Path) -> Any:
    """`working_dir`, and the paths in steps, count from the folder of their file, so that a definition works from any clone."""
    spec = body.get("spec") if isinstance(body, dict) else None
    if not isinstance(spec, dict) or body.get("kind") != "Job":
        return body
    changed = dict(spec)
    if "working_dir" in spec:
        changed["working_dir"] = _absolute(spec["working_dir"], folder)
    if isinstance(steps := spec.get("steps"), list):
        changed["steps"] = [_resolved_step(step, folder) for step in steps]
    return {**body, "spec": changed}


def _resolved_step(step: Any, folder: Path) -> Any:
    if not isinstance(step, dict):
        return step
    changed = dict(step)
    if isinstance(folders := step.get("python_path"), list):
        changed["python_path"] = [_absolute(path, folder) for path in folders]
    if "project" in step:
        changed["project"] = _absolute(step["project"], folder)
    if isinstance(file := step.get("interpreter"), str) and "/" in file:
        # Not resolved: the link in a virtual environment is what makes it one.
        changed["interpreter"] = os.path.normpath(Path.cwd() / folder / file)
    return changed


def _absolute(path: Any, folder: Path) -> Any:
    """What is no relative path is left to the reader of the manifest."""
    return str((folder / path).resolve()) if isinstance(path, str) and path and not path.startswith("/") else path
