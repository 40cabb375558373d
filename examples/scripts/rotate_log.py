"""Packs a log file that has grown too large and keeps the newest packed ones."""

import gzip
import os
import shutil
import sys
import tempfile
from pathlib import Path

log = Path(os.environ.get("TOBAN_PARAM_FILE") or Path(tempfile.gettempdir()) / "toban-examples" / "demo.log")
limit = int(os.environ.get("TOBAN_PARAM_MAX_KIB", "1024")) * 1024
keep = int(os.environ.get("TOBAN_PARAM_KEEP", "5"))

if not log.exists() or log.stat().st_size <= limit:
    print(f"{log}: {'not there' if not log.exists() else f'{log.stat().st_size} bytes'}, nothing to do")
    sys.exit()


def packed(number: int) -> Path:
    """The n-th packed file; 1 is the newest."""
    return log.with_name(f"{log.name}.{number}.gz")


for number in range(keep, 0, -1):
    if number == keep:
        packed(number).unlink(missing_ok=True)
    elif packed(number).exists():
        packed(number).rename(packed(number + 1))

size = log.stat().st_size
half = packed(1).with_suffix(".part")
with log.open("rb") as source, gzip.open(half, "wb") as target:
    shutil.copyfileobj(source, target)
half.rename(packed(1))
# Emptied and not removed: whoever writes to it has it open. Lines of this very moment may be lost, as with logrotate's copytruncate.
os.truncate(log, 0)
print(f"{log}: {size} bytes packed into {packed(1)} ({packed(1).stat().st_size} bytes)")
