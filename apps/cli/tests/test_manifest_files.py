"""Manifest files that are small and stand for much."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from toban_cli.manifest_files import read_documents
from toban_domain.errors import ErrorCode, TobanError
from toban_manifests.yaml_text import MAX_VALUES


def read(folder: Path, text: str) -> list[object]:
    file = folder / "job.yaml"
    file.write_text(text)
    return [document.body for document in read_documents([str(file)])]


def aliases(levels: int, width: int = 9) -> str:
    """Each level is a list of `width` aliases of the one before: width to the power of levels values."""
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * width)}]" for n in range(1, levels)]
    return "".join(f"{line}\n" for line in lines)


def test_aliases_of_aliases_are_refused_at_once(tmp_path: Path) -> None:
    text, began = aliases(12), time.process_time()
    assert len(text) < 1000
    with pytest.raises(TobanError, match=r"job\.yaml:1:1: .* use fewer aliases") as caught:
        read(tmp_path, text)
    assert caught.value.code is ErrorCode.MANIFEST_INVALID
    assert str(MAX_VALUES) in caught.value.message
    assert time.process_time() - began < 1


def test_a_value_in_itself_is_refused_or_read_and_never_counted_for_ever(tmp_path: Path) -> None:
    assert read(tmp_path, "a: &a {b: 1}\nc: *a\nd: *a\n") == [{"a": {"b": 1}, "c": {"b": 1}, "d": {"b": 1}}]
    assert len(read(tmp_path, "a: &a [*a, 1]\n")) == 1


def test_ordinary_aliases_and_large_files_are_fine(tmp_path: Path) -> None:
    shared = "base: &base {timeout_seconds: 5, env: {LANG: C}}\n" + "".join(
        f"job{n}: {{base: *base, name: n{n}}}\n" for n in range(200)
    )
    [body] = read(tmp_path, shared)
    assert isinstance(body, dict) and body["job199"] == {"base": body["base"], "name": "n199"}
    assert len(read(tmp_path, aliases(4))) == 1
