"""What a supervisor publishes for `make status`: a JSON file beside the sockets, replaced after each change."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path

from toban_stack.supervisor.policy import Exit


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceReport:
    """One supervised process. `next_start_at` (ISO 8601) is empty while it runs, `last_exit` None before its first end."""

    restarts: int
    failures: int = 0
    next_start_at: str = ""
    last_exit: Exit | None = None

    def summary(self, now: datetime) -> str:
        """The wait for the next start, and why it waits; the text of a process that does not run."""
        wait = (datetime.fromisoformat(self.next_start_at) - now).total_seconds() if self.next_start_at else 0.0
        when = f"next start in {wait:.0f} s" if wait >= 0.5 else "starts now"
        return f"backoff: {when} ({self.last_exit})"


def write(path: Path, services: Mapping[str, ServiceReport]) -> None:
    """Replaces the file in one step. Raises OSError."""
    draft = path.with_suffix(".new")
    draft.write_text(json.dumps({name: asdict(one) for name, one in services.items()}, indent=1) + "\n")
    draft.replace(path)


def read(path: Path) -> dict[str, ServiceReport]:
    """The last report; empty without one, and when it cannot be understood."""
    try:
        rows = json.loads(path.read_text())
        return {name: _report(row) for name, row in rows.items()}
    except (OSError, ValueError, TypeError, AttributeError):
        return {}


def _report(row: Mapping[str, object]) -> ServiceReport:
    last = row.get("last_exit")
    return ServiceReport(**{**row, "last_exit": Exit(**last) if isinstance(last, dict) else None})  # type: ignore[arg-type]
