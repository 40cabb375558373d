"""Secrets that a job names: how it finds each, and what their names and values may be. The values are never part of a definition."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from toban_domain.errors import ErrorCode, TobanError

NAME = re.compile(r"[a-z0-9]([a-z0-9._-]{0,62}[a-z0-9])?")
FILE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,63}")
VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")
# Of one job.
MAX_SECRETS = 20
# Bytes of a value. Shorter ones cannot be masked: they would be found everywhere.
MIN_VALUE = 4
MAX_VALUE = 16 * 1024
# Bytes of all values of a run: they travel in one order.
MAX_VALUES = 64 * 1024
# The variable by which a job finds the folder of its secrets.
SECRETS_FOLDER = "TOBAN_SECRETS_DIR"
# Names of the secrets of hooks and webhooks, which no job may have.
_OWNED = re.compile(r"(hook|webhook)[.](.+)")
NAME_HINT = "use 1 to 64 of a-z, 0-9, '.', '_' and '-', with a letter or digit at both ends"


@dataclass(frozen=True, slots=True, kw_only=True)
class SecretRef:
    """A secret that a job needs. It finds the value in `file` of its folder of secrets; the variable `file_env`, if any, holds the path."""

    name: str
    file: str = ""
    file_env: str = ""

    @property
    def file_name(self) -> str:
        """The name of the file in TOBAN_SECRETS_DIR."""
        return self.file or self.name

    def to_json(self) -> dict[str, Any]:
        """The canonical form, with the keys of the manifest."""
        full = {"name": self.name, "file": self.file, "file_env": self.file_env}
        return {key: value for key, value in full.items() if value}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> SecretRef:
        """The inverse of to_json."""
        return cls(name=data["name"], file=data.get("file", ""), file_env=data.get("file_env", ""))


@dataclass(frozen=True, slots=True, kw_only=True)
class SecretFile:
    """A value on its way to a job: the file that will hold it, and the variable with its path, "" = none."""

    file: str
    file_env: str
    value: bytes

    def __repr__(self) -> str:
        return f"SecretFile({self.file!r})"


def check_name(name: str) -> str:
    """The name. Raises INVALID_ARGUMENT."""
    if not NAME.fullmatch(name):
        raise TobanError(ErrorCode.INVALID_ARGUMENT, f"{name[:80]!r} is not a name of a secret; {NAME_HINT}")
    return name


def owner_problem(name: str) -> tuple[str, str] | None:
    """What owns a name that is not one of a job's secrets, and the command that changes such a secret; None for all other names."""
    if (found := _OWNED.fullmatch(name)) is None:
        return None
    owner, of = found.groups()
    return f"secret {name!r} is for {owner} {of!r} alone", f"run `toban {owner} set {of} --new-secret` to change it"


def check_value(value: bytes) -> bytes:
    """The value. Raises INVALID_ARGUMENT, without a byte of it."""
    if len(value) < MIN_VALUE:
        what = "the value is empty" if not value else f"the value has {len(value)} bytes"
        message = f"{what}; a secret has at least {MIN_VALUE} bytes, because shorter ones cannot be masked in output"
        raise TobanError(ErrorCode.INVALID_ARGUMENT, message)
    if len(value) > MAX_VALUE:
        message = f"the value has {len(value)} bytes, the limit is {MAX_VALUE}; store a key that opens the larger data"
        raise TobanError(ErrorCode.INVALID_ARGUMENT, message)
    return value
