"""Compresses a log file that has grown too large, and keeps the newest compressed copies."""

import gzip
import os
import shutil
import stat
import sys
from pathlib import Path

log = Path(os.environ.get("TOBAN_PARAM_FILE") or Path.home() / "toban-examples" / "demo.log")
limit = int(os.environ.get("TOBAN_PARAM_MAX_KIB", "1024")) * 1024
keep = int(os.environ.get("TOBAN_PARAM_KEEP", "5"))

try:
    # Never follow a link: in a shared folder it may point to another user's file, which would be truncated.
    opened = os.open(log, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK)
except FileNotFoundError:
    print(f"{log}: not there, nothing to do")
    sys.exit()
except OSError as error:
    sys.exit(f"{log}: {error.strerror}; give a file itself, not a link to it")

found = os.fstat(opened)
if not stat.S_ISREG(found.st_mode):
    sys.exit(f"{log} is not a file")
if found.st_size <= limit:
    print(f"{log}: {found.st_size} bytes, nothing to do")
    sys.exit()


def packed(number: int) -> Path:
    """Path of the n-th compressed copy; 1 is the newest."""
    return log.with_name(f"{log.name}.{number}.gz")


for number in range(keep, 0, -1):
    if number == keep:
        packed(number).unlink(missing_ok=True)
    elif packed(number).exists():
        packed(number).rename(packed(number + 1))

half = packed(1).with_suffix(".part")
half.unlink(missing_ok=True)
# Mode "x" creates a new file and fails when the name exists, even as a link.
with os.fdopen(opened, "rb") as source, gzip.open(half, "xb") as target:
    shutil.copyfileobj(source, target)
    # Truncated and not removed: its writers keep it open. Lines written at this moment may be lost, as with logrotate's copytruncate.
    target.close()
    half.rename(packed(1))
    os.ftruncate(opened, 0)
print(f"{log}: {found.st_size} bytes packed into {packed(1)} ({packed(1).stat().st_size} bytes)")
