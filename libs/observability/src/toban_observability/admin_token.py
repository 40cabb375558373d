"""The token of the admin port: the content of one file, read for each request, so that a new token counts without a restart."""

import hmac
import os
import stat
from pathlib import Path

from toban_observability.log_throttle import LogThrottle
from toban_observability.logs import get_logger

SETTING = "SCHEDULER_ADMIN_TOKEN_FILE"
MAX_BYTES = 4096
_SCHEME = b"bearer"

_log = get_logger(__name__)


def read_token(path: Path) -> bytes:
    """The token in the file: its only word, of at most MAX_BYTES.

    Raises ValueError with the problem and its remedy: the file cannot be read, every account has rights on it, or it does not hold one token.
    """
    try:
        with path.open("rb") as file:
            mode, content = os.fstat(file.fileno()).st_mode, file.read(MAX_BYTES + 1)
    except OSError as error:
        raise ValueError(
            f"{path} cannot be read ({error.strerror}); name a file with the token that this account may read"
        ) from None
    # The group may read it: Kubernetes gives pods their Secrets that way.
    if mode & stat.S_IRWXO:
        raise ValueError(f"{path} has mode {stat.S_IMODE(mode):04o}, which gives rights to every account; chmod 600 it")
    words = content.split()
    if len(words) != 1 or len(content) > MAX_BYTES:
        what = "is not one word" if words else "is empty"
        raise ValueError(f"{path} {what}; write a random token into it, such as that of `openssl rand -hex 32`")
    return words[0]


class AdminToken:
    """Decides whether a request may read what names other processes. `path` is the token's file; None = no request may."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._throttle = LogThrottle()

    def refusal(self, authorization: bytes, now: float) -> str:
        """Why a request with this header is refused, and what to do; empty when it is not. `now` is in seconds, for the log."""
        if self._path is None:
            return f"{SETTING} is not set: set it to the path of a file with a token, and send the token as Authorization: Bearer"
        try:
            token = read_token(self._path)
        except ValueError as error:
            if self._throttle.admit(SETTING, now) is not None:
                _log.error("no request with a token is answered on the admin port", setting=SETTING, problem=str(error))
            return f"the file of {SETTING} cannot be used: the log of this process says why"
        scheme, _, given = authorization.partition(b" ")
        if scheme.lower() == _SCHEME and hmac.compare_digest(given.strip(), token):
            return ""
        return f"send Authorization: Bearer with the content of the file that {SETTING} names"
