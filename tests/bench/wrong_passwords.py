"""What wrong passwords from one address cost everybody else: REST requests of others before and while they are tried at the sign-in of a site.

Usage: scripts/bench wrong_passwords, or python tests/bench/wrong_passwords.py [PASSWORDS] [A SECOND]; prints a JSON line. `ratio` is p95 during
the attempts divided by p95 before them (goal: at most 1.5). Attempts are sent A SECOND (100,000 at 500 take 200 s); load generator and
stack share the machine.
"""

import http.client
import json
import os
import re
import statistics
import sys
import threading
import time
from collections import Counter
from urllib.parse import urlencode

from rest_lists import site_stack, token

from toban_testing.site_client import signed_in

PASSWORDS = int(sys.argv[1]) if len(sys.argv) > 1 else 100_000
A_SECOND = float(sys.argv[2]) if len(sys.argv) > 2 else 500.0
ATTACKERS = 4
PAUSE_SECONDS = 0.02
MOST_RATIO = 1.5
# Before the attempts; the first requests of a process do not count.
QUIET_REQUESTS, WARM = min(1000, PASSWORDS), 100
# What a percentile needs, also with few passwords.
LEAST = 20


class Attack:
    """Tries passwords from ATTACKERS connections of one address, evenly spread over time."""

    def __init__(self, address: str) -> None:
        self.statuses: Counter[int] = Counter()
        self._address = address
        self._next = 0
        self._lock = threading.Lock()
        self._began = time.monotonic()
        self._threads = [threading.Thread(target=self._run, daemon=True) for _ in range(ATTACKERS)]

    def start(self) -> None:
        """Begin."""
        for thread in self._threads:
            thread.start()

    @property
    def running(self) -> bool:
        """Whether passwords are left."""
        return any(thread.is_alive() for thread in self._threads)

    def _run(self) -> None:
        connection = connect(self._address)
        origin = {"Origin": f"http://{self._address}"}
        connection.request("GET", "/sign-in", headers={"X-Forwarded-For": "203.0.113.66"})
        page = connection.getresponse()
        cookie = page.headers["Set-Cookie"].partition(";")[0]
        found = re.search(r'name="csrf" value="([^"]*)"', page.read().decode())
        assert found is not None
        headers = {**origin, "Cookie": cookie, "Content-Type": "application/x-www-form-urlencoded"}
        headers["X-Forwarded-For"] = "203.0.113.66"
        while (number := self._take()) is not None:
            body = urlencode({"csrf": found[1], "user": f"user-{number % 50}", "password": f"wrong {number}"})
            connection.request("POST", "/sign-in", body, headers)
            response = connection.getresponse()
            response.read()
            with self._lock:
                self.statuses[response.status] += 1

    def _take(self) -> int | None:
        with self._lock:
            number, self._next = self._next, self._next + 1
        if number >= PASSWORDS:
            return None
        time.sleep(max(0.0, self._began + number / A_SECOND - time.monotonic()))
        return number


def connect(address: str) -> http.client.HTTPConnection:
    """A connection to the site."""
    host, _, port = address.rpartition(":")
    return http.client.HTTPConnection(host, int(port), timeout=60)


class Other:
    """Somebody else, at another address, with a token."""

    def __init__(self, address: str, secret: str) -> None:
        self._connection = connect(address)
        self._headers = {"Authorization": f"Bearer {secret}", "X-Forwarded-For": "198.51.100.7"}

    def ask(self) -> float:
        """Milliseconds of one request."""
        began = time.perf_counter()
        self._connection.request("GET", "/api/v1/runs?limit=20", headers=self._headers)
        response = self._connection.getresponse()
        response.read()
        if response.status != 200:
            raise SystemExit(f"GET /runs answered {response.status} to somebody else")
        passed = (time.perf_counter() - began) * 1000
        time.sleep(PAUSE_SECONDS)
        return passed


def p95(times: list[float]) -> float:
    """The 95th percentile, milliseconds."""
    return round(statistics.quantiles(times, n=20)[18], 2)


def main() -> None:
    """Measure before, then during the attempts."""
    with site_stack(SCHEDULER_HTTP_PROXIES="1") as (stack, admin):
        address = stack.sites[0]
        # Before the first administrator there is no sign-in.
        signed_in(stack)
        other = Other(address, token(admin))
        for _ in range(WARM):
            other.ask()
        before = [other.ask() for _ in range(QUIET_REQUESTS)]
        attack, began, during = Attack(address), time.monotonic(), []
        attack.start()
        while attack.running or len(during) < LEAST:
            during.append(other.ask())
        if attack.statuses.total() != PASSWORDS:
            raise SystemExit(f"only {attack.statuses.total()} of {PASSWORDS} passwords were answered")
        figure = {
            "bench": "wrong_passwords",
            "passwords": PASSWORDS,
            "seconds": round(time.monotonic() - began, 1),
            "statuses": dict(sorted(attack.statuses.items())),
            "p95_before_ms": p95(before),
            "p95_during_ms": p95(during),
            "ratio": round(p95(during) / p95(before), 2),
            "goal": MOST_RATIO,
            "load": round(os.getloadavg()[0], 1),
        }
        print(json.dumps(figure), flush=True)


if __name__ == "__main__":
    main()
