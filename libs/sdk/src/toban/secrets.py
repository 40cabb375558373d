"""The secrets of the job that this program belongs to."""

from __future__ import annotations

import os
from pathlib import Path

FOLDER = "TOBAN_SECRETS_DIR"


class SecretMissingError(LookupError):
    """The definition of the job names no such secret, or Toban does not run this program."""


def secret(name: str) -> str:
    """The value of a secret as text: `name` is that in the definition of the job, or its `file` there.

    Raises SecretMissingError, and UnicodeDecodeError for a value that is no text: read that one from its file.
    """
    folder = os.environ.get(FOLDER)
    if not folder:
        raise SecretMissingError(f"no secret {name!r}: {FOLDER} is not set; the definition of the job names no secrets")
    try:
        return (Path(folder) / name).read_text(encoding="utf-8")
    except (FileNotFoundError, NotADirectoryError):
        known = ", ".join(sorted(one.name for one in Path(folder).glob("*"))) or "none"
        raise SecretMissingError(f"no secret {name!r} among those of the job: {known}") from None
