"""Files that their owner alone may read: keys, tokens, passwords."""

import os
from pathlib import Path


def write_private(path: Path, content: str | bytes) -> None:
    """Replaces `path` in one step by a file of mode 0600 with `content`."""
    raw = content.encode() if isinstance(content, str) else content
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    draft.unlink(missing_ok=True)
    handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(handle, "wb") as file:
        file.write(raw)
    draft.replace(path)
