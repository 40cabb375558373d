"""Which file a step executes: programs on the executor's own PATH, and its allow-list."""

import os
import shutil
from pathlib import Path

from toban_domain.errors import ErrorCode, TobanError
from toban_executor.decide.allow_list import AllowList, parse_allow_list
from toban_executor.decide.environment import DEFAULT_PATH
from toban_observability.logs import get_logger

_log = get_logger(__name__)


def load_allow_list(path: Path | None) -> AllowList:
    """The list in the file; without a path everything is allowed. Raises TobanError CONFIG_INVALID naming the line."""
    if path is None:
        _log.warning("no allow-list: every program may be started; set SCHEDULER_ALLOW_LIST to restrict it")
        return AllowList()
    try:
        return parse_allow_list(path.read_text())
    except (OSError, ValueError) as error:
        raise TobanError(ErrorCode.CONFIG_INVALID, f"SCHEDULER_ALLOW_LIST: {path}: {error}") from None


class ProgramFinder:
    """Caches what it found, for a short list of names; files may change, so a hit is checked to be there still."""

    def __init__(self, search_path: str = DEFAULT_PATH) -> None:
        self._path = search_path
        self._known: dict[str, tuple[str, str]] = {}

    def __call__(self, name: str) -> tuple[str, str]:
        """The file that `name` means ("" = none) and the file behind its links."""
        known = self._known.get(name)
        if known is None or not os.access(known[0], os.X_OK):
            found = shutil.which(name, path=self._path) or ""
            known = (found, os.path.realpath(found) if found else "")
            if len(self._known) < 1000:
                self._known[name] = known
        return known
