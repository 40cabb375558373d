"""Seconds of `make up` to its table: in a fresh clone (with the package cache as it is), again after `make down`, and again while it runs.

Usage: start_up.py; prints one JSON line.
"""

import json
import os
import subprocess
import time
from pathlib import Path

from toban_testing.starter import temporary_folder

ROOT = Path(__file__).resolve().parents[2]


def main() -> None:
    """Clone, start, stop, start, start."""
    with temporary_folder("toban-bench-") as folder:
        clone = folder / "toban"
        subprocess.run(["git", "clone", "--quiet", str(ROOT), str(clone)], check=True)
        try:
            fresh = timed(clone, "up")
            timed(clone, "down")
            again = timed(clone, "up")
            harmless = timed(clone, "up")
        finally:
            down = timed(clone, "down")
    figures = {"fresh_clone_s": fresh, "after_down_s": again, "while_running_s": harmless, "down_s": down}
    print(json.dumps({"bench": "start_up", **{name: round(seconds, 1) for name, seconds in figures.items()}}))


def timed(clone: Path, word: str) -> float:
    """Seconds that `make WORD` takes; raises CalledProcessError with its output when it fails."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("TOBAN_", "SCHEDULER_"))}
    began = time.monotonic()
    subprocess.run(["make", word], cwd=clone, env=environment, check=True, stdout=subprocess.DEVNULL)
    return time.monotonic() - began


if __name__ == "__main__":
    main()
