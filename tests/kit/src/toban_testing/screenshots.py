"""Takes the pictures of the site that documents show: of a stack of its own, filled as a small company would have it (make screenshots).

Usage: python -m toban_testing.screenshots [NAME...]; writes docs/images/NAME.png, all of them without a NAME, and prints what it wrote. Times and
numbers of runs are others each time, so a picture is committed when its page has changed, and not because its file has.
"""

import struct
import sys
import zlib
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

from toban_runtime.clock import SystemClock
from toban_testing.browser import NAMES, Page, browsing, find_browser
from toban_testing.sample_company import ZONE, fill
from toban_testing.site_client import SiteClient
from toban_testing.stack_fixtures import admin_of, running_stack
from toban_testing.starter import temporary_folder

IMAGES = Path(__file__).resolve().parents[4] / "docs" / "images"
WIDE, PHONE = (1280, 800), (390, 844)
# A page that is read again has its changes arrive.
LIVE = "!document.querySelector('main[data-refresh]') || document.getElementById('live').classList.contains('on')"
SEARCH = """document.getElementById('log-full').click();
document.getElementById('log-find').value = 'timeout'; document.querySelector('.log-search').requestSubmit()"""
FORM = """(() => {
  const set = (id, value) => {
    const field = document.getElementById(id);
    field.value = value;
    field.dispatchEvent(new InputEvent('input', {bubbles: true}));
  };
  document.getElementById('kind-cron').click();
  set('name', 'sync-crm-weekend'); set('job', 'sync-crm'); set('cron', '*/30 9-17 * * SAT,SUN'); set('timezone', 'Europe/Zurich');
})()"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """One page: what is done on it (`script`), and what shows that it is ready (`until`)."""

    path: str
    size: tuple[int, int] = WIDE
    dark: bool = False
    script: str = ""
    until: str = LIVE


PICTURES: Mapping[str, Picture] = {
    "dashboard": Picture(path="/"),
    "dashboard-dark": Picture(path="/", dark=True),
    "dashboard-phone": Picture(path="/", size=PHONE),
    "runs": Picture(path="/runs"),
    "run-failed": Picture(path="/runs/{failed}"),
    "run-running": Picture(
        path="/runs/{running}",
        until="(({ textContent, dataset }) => textContent === dataset.live)(document.getElementById('log-state'))",
    ),
    "run-waiting": Picture(path="/runs/{waiting}"),
    "log-search": Picture(
        path="/runs/{failed}", script=SEARCH, until="document.getElementById('log-hits').textContent.includes('1')"
    ),
    "job": Picture(path="/jobs/nightly-report"),
    "jobs": Picture(path="/jobs"),
    "schedule-form": Picture(
        path="/new/schedule", script=FORM, until="document.getElementById('checked').textContent.includes('+01:00')"
    ),
    "schedule-calendar": Picture(path="/schedules/nightly-report#month"),
    "load": Picture(path="/load?minute={night}"),
    "spread": Picture(path="/load/spread?minute={night}"),
    "timeline": Picture(path="/runs/timeline?by=job&since={evening}&until={morning}"),
    "rules": Picture(path="/rules?user=ben&action=run&job=send-invoices"),
    "audit": Picture(path="/audit?actor=ada"),
}


def main(arguments: Sequence[str]) -> int:
    """Take the pictures; exit code 2 when an argument is wrong, 1 when there is no browser."""
    unknown = [one for one in arguments if one not in PICTURES]
    if unknown:
        sys.stderr.write(f"screenshots: no picture {', '.join(unknown)}; there are: {', '.join(PICTURES)}\n")
        return 2
    if not find_browser():
        sys.stderr.write(f"screenshots: none of {', '.join(NAMES)} is in PATH; install one (apt install chromium)\n")
        return 1
    IMAGES.mkdir(exist_ok=True)
    total = sum(take(arguments or list(PICTURES)))
    sys.stdout.write(f"{total / 1000:.0f} kB in all\n")
    return 0


def take(names: Sequence[str]) -> list[int]:
    """The bytes of each picture."""
    with ExitStack() as context:
        home = context.enter_context(temporary_folder("toban-"))
        stack = context.enter_context(running_stack(home / "stack", coordinators=1, admin_webs=1))
        admin, site = context.enter_context(admin_of(stack)), SiteClient(stack.sites[0])
        scripts = home / "jobs"
        scripts.mkdir()
        filled = fill(stack, admin, site, scripts)
        now = SystemClock().wall()
        night = now.astimezone(ZoneInfo(ZONE)).replace(hour=3, minute=0)
        night += timedelta(days=night < now)
        places: dict[str, object] = {"failed": filled.failed, "running": filled.running, "waiting": filled.waiting}
        for name, hours in (("night", 0), ("evening", -27), ("morning", -21)):
            places[name] = (night + timedelta(hours=hours)).astimezone(UTC).strftime("%Y-%m-%dT%H:%M")
        page = context.enter_context(browsing(home / "profile"))()
        page.pose(ZONE)
        for cookie in site.cookies:
            page.set_cookie(site.base, cookie.name, cookie.value or "")
        sizes = [_take(page, site.base, name, places) for name in names]
        if page.complaints:
            raise RuntimeError("the browser complains: " + "; ".join(page.complaints))
        return sizes


def _take(page: Page, base: str, name: str, places: Mapping[str, object]) -> int:
    one = PICTURES[name]
    page.look(width=one.size[0], height=one.size[1], dark=one.dark)
    page.open(base + one.path.format_map(places))
    if one.script:
        page.run(one.script)
    page.until(one.until)
    file = IMAGES / f"{name}.png"
    file.write_bytes(with_palette(page.picture()))
    size = file.stat().st_size
    sys.stdout.write(f"{file.relative_to(IMAGES.parents[1])}: {size / 1000:.0f} kB\n")
    return size


def with_palette(png: bytes) -> bytes:
    """A picture of 8 bits a channel in its 256 most frequent colours, which are enough for a page and take less than half the bytes."""
    chunks = dict[bytes, bytes]()
    at = 8
    while at < len(png):
        (length,), kind = struct.unpack(">I", png[at : at + 4]), png[at + 4 : at + 8]
        chunks[kind] = chunks.get(kind, b"") + png[at + 8 : at + 8 + length]
        at += length + 12
    width, height, _, colour = struct.unpack(">IIBB", chunks[b"IHDR"][:10])
    rows = _rows(zlib.decompress(chunks[b"IDAT"]), width, {2: 3, 6: 4}[colour])
    counted = Counter(pixel for row in rows for pixel in row)
    # One of each few similar colours, so that a colour of few pixels has a place, too.
    kinds: dict[tuple[int, ...], tuple[int, int, int]] = {}
    for pixel, _ in counted.most_common():
        kinds.setdefault(tuple(part >> 3 for part in pixel), pixel)
    palette = list(kinds.values())[:256]
    nearest = {
        pixel: min(range(len(palette)), key=lambda n: sum((a - b) ** 2 for a, b in zip(pixel, palette[n], strict=True)))
        for pixel in counted
    }
    data = b"".join(b"\0" + bytes(nearest[pixel] for pixel in row) for row in rows)
    header = struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0)
    table = b"".join(bytes(one) for one in palette)
    parts = ((b"IHDR", header), (b"PLTE", table), (b"IDAT", zlib.compress(data, 9)), (b"IEND", b""))
    return png[:8] + b"".join(_chunk(kind, body) for kind, body in parts)


def _chunk(kind: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))


def _rows(data: bytes, width: int, size: int) -> list[list[tuple[int, int, int]]]:
    """The pixels of each row, without transparency: the filters of PNG (RFC 2083, 6) undone."""
    rows, before, stride = [], bytearray(width * size), width * size + 1
    for start in range(0, len(data), stride):
        kind, row = data[start], bytearray(data[start + 1 : start + stride])
        for n in range(len(row) if kind else 0):
            left, up, corner = (row[n - size], before[n], before[n - size]) if n >= size else (0, before[n], 0)
            row[n] = (row[n] + (left, up, (left + up) // 2, _paeth(left, up, corner))[kind - 1]) & 255
        rows.append(list(zip(row[::size], row[1::size], row[2::size], strict=True)))
        before = row
    return rows


def _paeth(left: int, up: int, corner: int) -> int:
    guess = left + up - corner
    return min((left, up, corner), key=lambda one: abs(guess - one))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
