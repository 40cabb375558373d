"""Manifests from files: YAML to documents, with file, line and column for what YAML itself refuses."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import yaml

from toban_domain.errors import ErrorCode, TobanError
from toban_manifests.read import Document

_SUFFIXES = (".yaml", ".yml")
# Of one file.
MAX_BYTES = 1024 * 1024
# Of one document, those counted again that an alias stands for: a few hundred bytes of aliases of aliases stand for billions.
MAX_VALUES = 100_000


class _Loader(yaml.SafeLoader):
    """YAML's safe types, but times stay text, a key given twice is an error, and aliases are bounded by what they stand for."""

    def construct_document(self, node: yaml.Node) -> Any:
        if _values(node, {}) > MAX_VALUES:
            text = f"the document has more than {MAX_VALUES} values once its aliases are written out; use fewer aliases (*), or split it"
            raise yaml.constructor.ConstructorError(None, None, text, node.start_mark)
        return super().construct_document(node)

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[Any] = set()
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=True)
            if isinstance(key, str) and key != "<<" and key in seen:
                raise yaml.constructor.ConstructorError(
                    None, None, f"the key {key!r} is given twice", key_node.start_mark
                )
            if isinstance(key, str):
                seen.add(key)
        return super().construct_mapping(node, deep=deep)


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def _values(node: yaml.Node, counted: dict[yaml.Node, int]) -> int:
    """How many values a document has once each alias is replaced by what it stands for; one in itself counts as none there."""
    if node not in counted:
        counted[node] = 0
        below = node.value if isinstance(node, yaml.CollectionNode) else ()
        parts = [one for part in below for one in (part if isinstance(part, tuple) else (part,))]
        counted[node] = 1 + sum(_values(one, counted) for one in parts)
    return counted[node]


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
    if len(content) > MAX_BYTES:
        raise TobanError(ErrorCode.MANIFEST_INVALID, f"{source}: is larger than {MAX_BYTES} bytes; split it")
    try:
        bodies = [body for body in yaml.load_all(content, Loader=_Loader) if body is not None]
    except yaml.MarkedYAMLError as error:
        raise _refused(source, error) from None
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError, ValueError) as error:
        raise TobanError(
            ErrorCode.MANIFEST_INVALID, f"{source}: is not YAML in UTF-8 ({' '.join(str(error).split())})"
        ) from None
    for number, body in enumerate(bodies, start=1):
        yield Document(source if len(bodies) == 1 else f"{source}, document {number}", _resolved(body, folder))


def _refused(source: str, error: yaml.MarkedYAMLError) -> TobanError:
    mark = error.problem_mark or error.context_mark
    where = f"{source}:{mark.line + 1}:{mark.column + 1}" if mark is not None else source
    what = error.problem or error.context or "is not YAML"
    return TobanError(
        ErrorCode.MANIFEST_INVALID,
        f"{where}: {what}; check indentation, colons and quotes there",
        detail={"source": source},
    )


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
