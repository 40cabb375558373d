"""Prints the remaining days of each certificate; exit code 1 when one has fewer than TOBAN_PARAM_DAYS."""

import base64
import os
import re
import sys
from datetime import datetime, timedelta, timezone
from pathlib import Path

UTC = timezone.utc  # noqa: UP017 (the python3 of a machine may be older than Toban's)
PEM = re.compile(r"-----BEGIN CERTIFICATE-----(.+?)-----END CERTIFICATE-----", re.DOTALL)
# A certificate contains one sequence of two times: the beginning and the end of its validity.
VALIDITY = re.compile(rb"\x30.(?:\x17\x0d.{13}|\x18\x0f.{15})(?:\x17\x0d(.{13})|\x18\x0f(.{15}))", re.DOTALL)


def not_after(pem: str) -> datetime:
    """Expiry of the first certificate in `text`."""
    found = PEM.search(pem)
    times = VALIDITY.search(base64.b64decode(found[1])) if found else None
    if times is None:
        raise ValueError("holds no certificate")
    # Two digits of the year until 2049, four from then on.
    text = (times[1] or times[2]).decode()
    return datetime.strptime(text, "%y%m%d%H%M%SZ" if times[1] else "%Y%m%d%H%M%SZ").replace(tzinfo=UTC)


place = Path(os.environ.get("TOBAN_PARAM_PATH", "../.toban/tls"))
days = int(os.environ.get("TOBAN_PARAM_DAYS", "21"))
try:
    files = sorted([*place.rglob("*.crt"), *place.rglob("*.pem")]) if place.is_dir() else [place]
except PermissionError:
    sys.exit(
        f"{place.resolve()} is closed to uid {os.getuid()}, which this job has: give another -p path=FILE or FOLDER"
    )
if not files or not all(file.is_file() for file in files):
    sys.exit(f"no certificate at {place.resolve()}: give another -p path=FILE or FOLDER")

soon = []
for file in files:
    ends = not_after(file.read_text(encoding="ascii", errors="replace"))
    left = ends - datetime.now(UTC)
    print(f"{file}: until {ends:%Y-%m-%d %H:%M} UTC, {left.days} days left")
    if left < timedelta(days=days):
        soon.append(f"{file} ({left.days} days)")
if soon:
    sys.exit(f"fewer than {days} days left: {', '.join(soon)}")
