"""Where identifiers and keys come from, so that tests and the simulation can seed them."""

import random
import secrets
import uuid


class IdSource:
    """Identifiers and secrets from the system's entropy."""

    def uuid(self) -> str:
        """A fresh UUID (version 4) as text, for incarnations."""
        return str(uuid.uuid4())

    def token_hex(self, nbytes: int) -> str:
        """`nbytes` random bytes as lower-case hex, for keys and error ids."""
        return secrets.token_hex(nbytes)


class SeededIdSource(IdSource):
    """The same identifiers on each run: for tests and the simulation only."""

    def __init__(self, *, seed: int) -> None:
        self._random = random.Random(seed)

    def uuid(self) -> str:
        """The next UUID of this seed."""
        return str(uuid.UUID(bytes=self._random.randbytes(16), version=4))

    def token_hex(self, nbytes: int) -> str:
        """The next `nbytes` bytes of this seed as hex."""
        return self._random.randbytes(nbytes).hex()
