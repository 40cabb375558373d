"""The key file of secrets: AES-256-GCM, one key a line, the first one encrypts.

A line is the base64 of 32 bytes, as `openssl rand -base64 32` prints it; empty lines and lines with # are left out. The id of a key is the
beginning of its SHA-256, so that a key has the same id wherever it stands. The name of a secret and the id of the key are authenticated
with each value: a value that was copied to another row does not open.
"""

from __future__ import annotations

import base64
import binascii
import os
import stat
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from toban_coordinator.decide.cluster.diagnose.secret_keys import KeyFile
from toban_coordinator.ports.secrets import Sealed
from toban_domain.errors import ErrorCode, TobanError
from toban_observability.logs import get_logger

VARIABLE = "SCHEDULER_SECRETS_KEY_FILE"
KEY_BYTES = 32
NONCE_BYTES = 12
MAX_BYTES = 64 * 1024
REMEDY = f"write one with `openssl rand -base64 {KEY_BYTES}`, mode 0600, the same for every coordinator, and name it in {VARIABLE}"
_log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class _Keys:
    """The content of the file at one time."""

    status: KeyFile = field(default_factory=KeyFile)
    ciphers: dict[str, AESGCM] = field(default_factory=dict, repr=False)
    stamp: tuple[int, int, int] | None = None


class FileKeys:
    """`SecretKeys` from a file; None: no file is configured."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._mode = 0
        self._keys = _Keys(KeyFile(problem=f"no key file is configured; {REMEDY}"))

    def status(self) -> KeyFile:
        """What the file has now. Raises nothing."""
        return self._read().status

    def seal(self, name: str, value: bytes) -> Sealed:
        """The value encrypted with the first key. Raises SECRETS_KEY_MISSING."""
        keys = self._read()
        if not keys.ciphers:
            raise TobanError(
                ErrorCode.SECRETS_KEY_MISSING, f"secret {name!r} cannot be encrypted: {keys.status.problem}"
            )
        key_id, cipher = next(iter(keys.ciphers.items()))
        nonce = os.urandom(NONCE_BYTES)
        return Sealed(key_id=key_id, nonce=nonce, ciphertext=cipher.encrypt(nonce, value, _bound(name, key_id)))

    def open(self, name: str, sealed: Sealed) -> bytes:
        """The value. Raises SECRETS_KEY_MISSING."""
        keys = self._read()
        cipher = keys.ciphers.get(sealed.key_id)
        if cipher is None:
            why = (
                keys.status.problem
                or f"key {sealed.key_id} is not in {keys.status.path}; add it, or set the secret again"
            )
            raise TobanError(ErrorCode.SECRETS_KEY_MISSING, f"secret {name!r} cannot be decrypted: {why}")
        try:
            return cipher.decrypt(sealed.nonce, sealed.ciphertext, _bound(name, sealed.key_id))
        except InvalidTag:
            message = f"secret {name!r} cannot be decrypted: its row was changed outside Toban; set the secret again"
            raise TobanError(ErrorCode.SECRETS_KEY_MISSING, message) from None

    def _read(self) -> _Keys:
        """Looks at the file each time, reads it when it has changed."""
        if self._path is None:
            return self._keys
        try:
            found = os.stat(self._path)  # noqa: PTH116 (one call for time, size and mode)
            stamp = (found.st_mtime_ns, found.st_size, found.st_ino)
            if stamp != self._keys.stamp or found.st_mode != self._mode:
                self._mode = found.st_mode
                self._keys = self._load(stamp)
        except (OSError, ValueError) as error:
            self._fail(error)
        return self._keys

    def _load(self, stamp: tuple[int, int, int]) -> _Keys:
        assert self._path is not None
        ciphers = {_key_id(key): AESGCM(key) for key in _parse(self._path.read_text(encoding="ascii"))}
        status = KeyFile(path=str(self._path), ids=tuple(ciphers), loose=_loose(self._mode))
        if status.loose:
            _log.warning("key file of secrets can be read by others", path=status.path, remedy=status.loose)
        _log.info("keys of secrets read", path=status.path, keys=len(ciphers), first=status.ids[0])
        return _Keys(status, ciphers, stamp)

    def _fail(self, error: OSError | ValueError) -> None:
        """Keys that were read before do not outlive their file: an operator who takes it away means it. While it is there and cannot be read as
        keys, as in the middle of a write, the last good ones stay."""
        gone = isinstance(error, OSError)
        reason = error.strerror if isinstance(error, OSError) else _what(error)
        ciphers = {} if gone else self._keys.ciphers
        problem = f"key file {self._path}: {reason}; {REMEDY}"
        status = KeyFile(path=str(self._path), ids=tuple(ciphers), problem=problem)
        if self._keys.status.problem != problem:
            what = (
                "key file of secrets cannot be read; the keys read before stay"
                if ciphers
                else "no keys of secrets: runs that need one fail"
            )
            _log.error(what, path=status.path, error=reason, remedy=REMEDY)
        self._keys = _Keys(status, ciphers)


def _parse(text: str) -> list[bytes]:
    """Raises ValueError with a text that has nothing of the file in it."""
    if len(text) > MAX_BYTES:
        raise ValueError("is too large")
    keys = []
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        try:
            key = base64.b64decode(line.strip(), validate=True)
        except binascii.Error:
            raise ValueError(f"line {number} is not base64") from None
        if len(key) != KEY_BYTES:
            raise ValueError(f"line {number} has {len(key)} bytes, a key has {KEY_BYTES}")
        if len(set(key)) == 1:
            raise ValueError(f"line {number} is no random key")
        keys.append(key)
    if not keys:
        raise ValueError("has no key")
    return keys


def _what(error: ValueError) -> str:
    return "is not plain ASCII text" if isinstance(error, UnicodeDecodeError) else str(error)


def _key_id(key: bytes) -> str:
    return sha256(b"toban secret key\0" + key).hexdigest()[:16]


def _bound(name: str, key_id: str) -> bytes:
    return f"toban secret\0{name}\0{key_id}".encode()


def _loose(mode: int) -> str:
    """A group may read it: that is how pods get files."""
    if not mode & (stat.S_IRWXO | stat.S_IWGRP):
        return ""
    return f"its mode is {stat.S_IMODE(mode):04o}: chmod 0600"
