"""Prints a file's size and checksum in one line."""

import hashlib
from pathlib import Path


def describe(path: str, note: str = "") -> None:
    """Prints size and SHA-256 of the file."""
    content = Path(path).read_bytes()
    print(f"{path}: {len(content)} bytes, sha256 {hashlib.sha256(content).hexdigest()[:16]}… ({note})")
