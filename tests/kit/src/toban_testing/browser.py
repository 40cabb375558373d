"""Controls a headless Chromium over its debugging pipe: opens pages, runs scripts in them, collects their errors."""

import base64
import itertools
import json
import os
import shutil
import subprocess
import threading
import tomllib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from toban_runtime.clock import SystemClock

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
ANSWER_SECONDS = 30.0
POLL_SECONDS = 0.05
ROOT = Path(__file__).resolve().parents[4]
# All but what axe calls minor. The number of a line in a log has the field for a line beside it. Seen from the top of the page: elsewhere a bar that
# stays in view covers a part of some button, which scrolling shows in full. An open menu covers parts of what is below it until it is closed.
FINDINGS = """(async () => {
    const [left, top] = [scrollX, scrollY];
    scrollTo({ left: 0, top: 0, behavior: 'instant' });
    const { violations } = await axe.run({ resultTypes: ['violations'], rules: { 'target-size': { enabled: true } } });
    scrollTo({ left, top, behavior: 'instant' });
    const menu = document.querySelector('.menu[open]');
    const below = ({ target }) => menu && !menu.contains(document.querySelector(target[0]));
    const excused = (node) => node.html.startsWith('<a class="seq"') || below(node);
    return violations
        .map((one) => ({ ...one, nodes: one.nodes.filter((node) => one.id !== 'target-size' || !excused(node)) }))
        .filter(({ id, impact, nodes }) => nodes.length && impact !== 'minor')
        .map(({ id, nodes }) => `${id}: ${nodes.length} × ${nodes[0].html.slice(0, 200)}`);
})()"""


def find_browser() -> str:
    """The path of an installed Chromium; "" when there is none."""
    return next(filter(None, map(shutil.which, NAMES)), "")


def axe_source() -> str:
    """The checks of axe-core, which are downloaded once. Raises RuntimeError with the reason why they cannot be had."""
    [axe] = tomllib.loads((ROOT / "web" / "libraries.toml").read_text(encoding="utf-8"))["test_library"]
    file = ROOT / "build" / "web-libraries" / str(axe["files"]["axe.min.js"])
    if not file.exists():
        command = [str(ROOT / "scripts" / "web-libraries"), "--tests"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            why = done.stderr.strip()[-300:]
            raise RuntimeError(f"no axe-core: scripts/web-libraries --tests needs npm and its registry: {why}")
    return file.read_text(encoding="utf-8")


class Page:
    """One tab. `complaints` are errors of its scripts and violations of its content security policy."""

    def __init__(self, pipe: "_Pipe", session: str) -> None:
        self._pipe = pipe
        self._session = session
        self._clock = SystemClock()
        for domain in ("Page", "Runtime", "Log", "Network"):
            self._do(f"{domain}.enable")

    @property
    def complaints(self) -> list[str]:
        """Errors and warnings of this tab so far."""
        return list(self._pipe.complaints.get(self._session, []))

    def look(self, *, width: int = 1280, height: int = 900, dark: bool = False, language: str = "en") -> None:
        """Sets the window size in CSS pixels, the colour scheme and the preferred language of pages opened from now on."""
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
        self._do("Emulation.setDeviceMetricsOverride", **metrics)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self._do("Emulation.setEmulatedMedia", features=[scheme])
        self._do("Network.setExtraHTTPHeaders", headers={"Accept-Language": language})

    def open(self, address: str) -> None:
        """Opens an address and waits until the document is loaded."""
        self._do("Page.navigate", url=address)
        self.until("document.readyState === 'complete' && location.href.startsWith('http')")

    def set_cookie(self, address: str, name: str, value: str) -> None:
        """Gives the browser a cookie for an address, which scripts do not see."""
        self._do("Network.setCookie", url=address, name=name, value=value, httpOnly=True)

    def run(self, script: str) -> Any:
        """The (awaited) value of an expression in the page. Raises RuntimeError with the exception of the page."""
        answer = self._do("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(str(answer["exceptionDetails"].get("exception", {}).get("description", answer)))
        return answer["result"].get("value")

    def pose(self, zone: str) -> None:
        """Pages opened from now on are for pictures: they have this time zone, and no scroll bars."""
        self._do("Emulation.setTimezoneOverride", timezoneId=zone)
        self._do("Emulation.setScrollbarsHidden", hidden=True)

    def picture(self) -> bytes:
        """What the window shows, as PNG."""
        return base64.b64decode(self._do("Page.captureScreenshot", format="png")["data"])

    def axe(self, source: str) -> list[str]:
        """What axe-core finds in the page: rule, how often, and the first element."""
        self.run(f"{source}; 0")
        return list(self.run(FINDINGS))

    def until(self, script: str, seconds: float = ANSWER_SECONDS) -> Any:
        """Polls an expression and returns its first true value. Raises TimeoutError."""
        ends_at = self._clock.monotonic() + seconds
        pause = threading.Event()
        while self._clock.monotonic() < ends_at:
            if value := self.run(script):
                return value
            pause.wait(POLL_SECONDS)
        raise TimeoutError(f"not within {seconds:g} s: {script}")

    def _do(self, method: str, **params: Any) -> dict[str, Any]:
        return self._pipe.do(method, params, session=self._session)


@contextmanager
def browsing(profile: Path) -> Iterator[Callable[[], Page]]:
    """A browser with an empty profile in a folder; yields a function that opens a new tab."""
    with _running(profile) as pipe:

        def new_page() -> Page:
            target = pipe.do("Target.createTarget", {"url": "about:blank"})["targetId"]
            session = pipe.do("Target.attachToTarget", {"targetId": target, "flatten": True})["sessionId"]
            return Page(pipe, session)

        yield new_page


@contextmanager
def _running(profile: Path) -> Iterator["_Pipe"]:
    to_browser, from_us = os.pipe()
    from_browser, to_us = os.pipe()
    # Chromium reads descriptor 3 and writes descriptor 4.
    shell = f'exec "$@" 3<&{to_browser} 4>&{to_us}'
    options = ["--headless=new", "--remote-debugging-pipe", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
    options += ["--no-first-run", "--disable-background-networking", "--no-proxy-server", f"--user-data-dir={profile}"]
    process = subprocess.Popen(
        ["/bin/bash", "-c", shell, "browser", find_browser(), *options],
        pass_fds=(to_browser, to_us),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "HOME": str(profile), "TZ": "Asia/Tokyo"},
    )
    os.close(to_browser)
    os.close(to_us)
    pipe = _Pipe(read=from_browser, write=from_us)
    try:
        yield pipe
        pipe.do("Browser.close", {})
    finally:
        process.kill()
        process.wait()
        pipe.close()


class _Pipe:
    """Messages to and from the browser: JSON terminated by a zero byte."""

    def __init__(self, *, read: int, write: int) -> None:
        self._in = os.fdopen(read, "rb")
        self._out = os.fdopen(write, "wb", buffering=0)
        self._numbers = itertools.count(1)
        self._changed = threading.Condition()
        self._answers: dict[int, dict[str, Any]] = {}
        self.complaints: dict[str, list[str]] = {}
        self._thread = threading.Thread(target=self._listen, daemon=True)
        self._thread.start()

    def do(self, method: str, params: dict[str, Any], *, session: str = "") -> dict[str, Any]:
        """Sends a command and returns its result. Raises RuntimeError with the browser's error, and TimeoutError."""
        number = next(self._numbers)
        message = {"id": number, "method": method, "params": params} | ({"sessionId": session} if session else {})
        self._out.write(json.dumps(message).encode() + b"\0")
        with self._changed:
            if not self._changed.wait_for(lambda: number in self._answers, ANSWER_SECONDS):
                raise TimeoutError(f"the browser gave no answer to {method}")
            answer = self._answers.pop(number)
        if "error" in answer:
            raise RuntimeError(f"{method}: {answer['error']['message']}")
        return dict(answer["result"])

    def close(self) -> None:
        """Closes the pipe after the browser has ended."""
        self._thread.join(ANSWER_SECONDS)
        self._in.close()
        self._out.close()

    def _listen(self) -> None:
        rest = b""
        while read := self._in.read1(1 << 16):
            *whole, rest = (rest + read).split(b"\0")
            for raw in whole:
                self._take(json.loads(raw))

    def _take(self, message: dict[str, Any]) -> None:
        with self._changed:
            if "id" in message:
                self._answers[message["id"]] = message
            elif text := _complaint(message):
                self.complaints.setdefault(message.get("sessionId", ""), []).append(text)
            self._changed.notify_all()


def _complaint(message: dict[str, Any]) -> str:
    """Errors and warnings that a page logs; "" for anything else."""
    params = message.get("params", {})
    if message.get("method") == "Runtime.exceptionThrown":
        return str(
            params["exceptionDetails"].get("exception", {}).get("description", params["exceptionDetails"]["text"])
        )
    entry = params.get("entry", {})
    if message.get("method") == "Log.entryAdded" and entry.get("level") in ("error", "warning"):
        return f"{entry['text']} {entry.get('url', '')}".strip()
    return ""
