"""The files of a machine's certificate are replaced together, whatever stops in between."""

from __future__ import annotations

from pathlib import Path

import pytest

from toban_domain.errors import ErrorCode, TobanError
from toban_runtime.clock import SystemClock
from toban_stack import certs
from toban_transport.issue import complete, keep
from toban_transport.tls import TlsFiles

NAMES = ("ca.crt", "tls.key", "tls.crt")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    certs.make_ca(tmp_path / "ca")
    certs.issue(tmp_path / "ca", "executor", tmp_path / "new")
    return certs.issue(tmp_path / "ca", "executor", tmp_path / "executor")


def content(folder: Path) -> dict[str, bytes]:
    return {name: (folder / name).read_bytes() for name in NAMES}


def new(folder: Path) -> dict[str, bytes]:
    found = content(folder.parent / "new")
    return {"key": found["tls.key"], "certificate": found["tls.crt"], "authorities": found["ca.crt"]}


@pytest.mark.parametrize("at", [1, 2, 3, 4])
def test_an_interrupted_replacement_is_completed(folder: Path, monkeypatch: pytest.MonkeyPatch, at: int) -> None:
    before, wanted = content(folder), content(folder.parent / "new")
    replace, rename, count = Path.replace, Path.rename, 0

    def counted(path: Path, target: Path) -> Path:
        nonlocal count
        if (path.parent.name.startswith(".renewed") and target.parent == folder) or path.name.startswith(".renewed"):
            count += 1
            if count == at:
                raise OSError("no space left")
        return (rename if path.is_dir() else replace)(path, target)

    monkeypatch.setattr(Path, "replace", counted)
    monkeypatch.setattr(Path, "rename", counted)
    with pytest.raises(OSError, match="no space left"):
        keep(folder, **new(folder))
    monkeypatch.undo()
    complete(folder)
    # Before its files took their places as a whole, nothing is changed.
    assert content(folder) == (before if at == 1 else wanted)
    TlsFiles(folder, clock=SystemClock()).current()
    keep(folder, **new(folder))
    assert content(folder) == wanted
    assert sorted(path.name for path in folder.iterdir()) == sorted(
        [*NAMES, *(["denied"] if (folder / "denied").exists() else [])]
    )


@pytest.mark.parametrize("certificate", [b"", b"nonsense"])
def test_a_certificate_of_another_key_changes_nothing(folder: Path, certificate: bytes) -> None:
    before = content(folder)
    for wrong in (certificate, before["tls.crt"]):
        with pytest.raises(TobanError, match="no certificate of this key") as caught:
            keep(folder, **{**new(folder), "certificate": wrong})
        assert caught.value.code is ErrorCode.INTERNAL and content(folder) == before
