"""CPU of the site and the leader while many pages are open and follow a cluster in which runs end all the time.

Usage: live_pages.py [PAGES] [SECONDS] [RUNS A SECOND]; prints one JSON line, in percent of one core. Each page does what web/static/site.js does: a
stream of changes, and its part again a second after a change at the earliest, within each five seconds at the latest while something runs. Goals with
300 pages: the site below 20 %, the leader below 10 %.
"""

import http.client
import json
import random
import re
import sys
import threading
import time
from collections import Counter

from bench_cpu import used
from bench_stack import job
from rest_lists import site_stack

from toban_proto.v1 import coordinator_pb2 as pb
from toban_proto.v1 import coordinator_pb2_grpc as rpc
from toban_testing.accounts import add_user
from toban_testing.site_client import SiteClient
from toban_testing.stack_fixtures import leader_name

PAGES = int(sys.argv[1]) if len(sys.argv) > 1 else 300
SECONDS = float(sys.argv[2]) if len(sys.argv) > 2 else 30.0
RUNS_A_SECOND = float(sys.argv[3]) if len(sys.argv) > 3 else 1.0
WORKERS, OF_A_PERSON = 2, 6
PASSWORD = "correct horse battery"
PATHS = ("/", "/runs", "/jobs", "/executors")
SPREAD, QUIET = 0.3, 30.0


class OpenPage(threading.Thread):
    """One tab."""

    def __init__(self, address: str, cookie: str, path: str, seen: Counter[str], stop: threading.Event) -> None:
        super().__init__(daemon=True)
        self._address, self._headers, self._path = address, {"Cookie": cookie}, path
        self._seen, self._stop_now, self._due = seen, stop, 0.0

    def run(self) -> None:
        page = self._get(self._path)
        url = re.search(r'data-changes="([^"]+)"', page)
        assert url, page[:300]
        stream = http.client.HTTPConnection(self._address, timeout=60)
        stream.request("GET", url[1].replace("&amp;", "&"), headers=self._headers)
        threading.Thread(target=self._listen, args=(stream.getresponse(),), daemon=True).start()
        self._due = time.monotonic() + QUIET
        while not self._stop_now.wait(0.2):
            if time.monotonic() >= self._due:
                self._due = time.monotonic() + QUIET
                self._get(f"{self._path}?part=1")
                self._last = time.monotonic()
                self._seen["parts"] += 1

    _last = 0.0

    def _listen(self, response: http.client.HTTPResponse) -> None:
        while not self._stop_now.is_set() and (line := response.readline()):
            if line.startswith(b"event: "):
                self._seen[line[7:].decode().strip()] += 1
            if line.startswith(b"event: change"):
                pause = int(response.readline()[6:] or 1000) / 1000
                wait = max(0.0, self._last + pause - time.monotonic()) + random.random() * SPREAD
                self._due = min(self._due, time.monotonic() + wait)

    def _get(self, path: str) -> str:
        connection = http.client.HTTPConnection(self._address, timeout=60)
        connection.request("GET", path, headers=self._headers)
        response = connection.getresponse()
        text = response.read().decode()
        assert response.status == 200, (path, response.status, text[:200])
        connection.close()
        return text


def main() -> None:
    """Sign in, open the pages, start runs, and measure."""
    threads = str(min(1024, max(128, PAGES * 4)))
    with site_stack(SCHEDULER_HTTP_WORKERS=str(WORKERS), SCHEDULER_HTTP_THREADS=threads) as (stack, admin):
        admin.apply(job("bench-true", ["/bin/true"]))
        address = stack.sites[0]
        # Before there is an administrator, people cannot sign in.
        add_user(admin, "chief", "admin", password=PASSWORD)
        cookies = []
        for number in range(-(-PAGES // OF_A_PERSON)):
            add_user(admin, f"person-{number}", "viewer", password=PASSWORD)
            client = SiteClient(address)
            client.sign_in(f"person-{number}", PASSWORD)
            cookies.append("; ".join(f"{one.name}={one.value}" for one in client.cookies))
        seen: Counter[str] = Counter()
        stop = threading.Event()
        pages = [
            OpenPage(address, cookies[number // OF_A_PERSON], PATHS[number % len(PATHS)], seen, stop)
            for number in range(PAGES)
        ]
        for one in pages:
            one.start()
            time.sleep(0.02)
        time.sleep(10)
        names = {name: record.pid for name, record in stack.processes().items()}
        leader = leader_name(stack, admin)
        seen.clear()
        before, began = {name: used(pid) for name, pid in names.items()}, time.monotonic()
        while (passed := time.monotonic() - began) < SECONDS:
            if RUNS_A_SECOND:
                admin.call(
                    rpc.JobControlStub, "StartRuns", pb.StartRunsRequest(runs=[pb.StartRunRequest(job="bench-true")])
                )
            time.sleep(1 / RUNS_A_SECOND if RUNS_A_SECOND else 1.0)
        percent = {name: round((used(pid) - before[name]) / passed * 100, 1) for name, pid in names.items()}
        told = dict(seen)
        stop.set()
        figures = {name.replace("-", "_") + "_percent": share for name, share in percent.items()}
        line = {"bench": "live_pages", "pages": PAGES, "seconds": SECONDS, "runs_a_second": RUNS_A_SECOND, "seen": told}
        print(json.dumps({**line, "leader_percent": percent[leader], **figures}))


if __name__ == "__main__":
    main()
