"""A fake of the API of Kubernetes over TLS, with a token: Jobs, pods, watches, logs, and what a server may do wrong.

Not a cluster: it holds what docs/kubernetes-steps.md relies on. What works behind it is toban_testing.fake_cluster.
"""

from __future__ import annotations

import copy
import json
import re
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from toban_testing.fake_cluster import FakeCluster, Object
from toban_testing.tls_proxy import server_context

TOKEN = "token-of-the-service-account"
# (method, path) → what happens instead of the request; None = it is carried out.
Fault = Callable[[str, str], "str | int | None"]


class FakeKubernetes(ThreadingHTTPServer):
    """`faults` are asked in turn before each request. What they return: a status to respond with, `hang`, `drop` (no response), `late`
    (carried out, and no response), or `hold` (no response, and carried out at `carry_out_held`)."""

    daemon_threads = True

    def __init__(self, folder: Path) -> None:
        """`folder` gets what a client needs: `ca.crt` and `token`."""
        super().__init__(("127.0.0.1", 0), _Handler)
        self.folder = folder
        context = server_context(folder)
        self.socket = context.wrap_socket(self.socket, server_side=True, do_handshake_on_connect=False)
        self.cluster = FakeCluster()
        (folder / "token").write_text(TOKEN)
        self.faults: list[Fault] = []
        self.requests: list[tuple[str, str, Any]] = []
        self.held: list[Any] = []
        # Streams of logs that break off in the middle of a line, after so many lines; later ones are whole.
        self.cut_logs: list[int] = []
        threading.Thread(target=self.serve_forever, args=(0.02,), daemon=True).start()

    @property
    def url(self) -> str:
        """Of the API."""
        return f"https://127.0.0.1:{self.server_address[1]}"

    def stop(self) -> None:
        """The end."""
        self.cluster.end()
        self.shutdown()
        self.server_close()

    def forget(self) -> None:
        """An empty cluster without faults at the same address."""
        (self.folder / "token").write_text(TOKEN)
        self.cluster.end()
        self.cluster = FakeCluster()
        for records in (self.faults, self.requests, self.held, self.cut_logs):
            records.clear()

    def calls(self, method: str, part: str) -> list[tuple[str, str, Any]]:
        """Requests so far."""
        return [one for one in self.requests if one[0] == method and part in one[1]]

    def carry_out_held(self) -> None:
        """Make the Jobs of the creates that were held."""
        for body in self.held:
            self.cluster.create(body)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that was killed is no error."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: FakeKubernetes

    def _serve(self) -> None:
        server, method = self.server, self.command
        length = int(self.headers.get("Content-Length") or 0)
        body = json.loads(self.rfile.read(length)) if length else None
        server.requests.append((method, self.path, body))
        self.close_connection = True
        fault = next((said for one in list(server.faults) if (said := one(method, self.path)) is not None), None)
        if fault == "hang":
            cluster = server.cluster
            with cluster.changed:
                cluster.changed.wait_for(lambda: cluster.stopped)
            return
        if fault == "hold":
            server.held.append(body)
        if fault in ("drop", "hold"):
            return
        if isinstance(fault, int):
            self._respond(fault, {"kind": "Status", "message": f"fault {fault}", "code": fault})
            return
        if self.headers.get("Authorization") != f"Bearer {TOKEN}":
            self._respond(401, {"kind": "Status", "message": "Unauthorized", "code": 401})
            return
        status, found = self._carry_out(method, body)
        if fault != "late" and status:
            self._respond(status, found)

    do_GET = do_POST = do_PATCH = do_DELETE = _serve

    def _carry_out(self, method: str, body: Any) -> tuple[int, Object]:
        url = urlsplit(self.path)
        query = {name: values[0] for name, values in parse_qs(url.query).items()}
        parts = url.path.split("/namespaces/")[1].split("/")
        kind, name = parts[1], parts[2] if len(parts) > 2 else ""
        server, missing = self.server, {"kind": "Status", "message": f"{kind} {name!r} not found", "code": 404}
        if method == "POST":
            made = server.cluster.create(body)
            taken = {"kind": "Status", "message": f"jobs {body['metadata']['name']!r} already exists", "code": 409}
            return (201, made) if made else (409, taken)
        if method == "PATCH":
            status = server.cluster.patch(name, body)
            return status, self._found("jobs", name) or missing
        if method == "DELETE":
            status = server.cluster.delete(name, body)
            return status, {"kind": "Status", "message": "deleted" if status == 200 else "conflict or missing"}
        if parts[-1] == "log":
            return self._log(name, query)
        if name:
            found = self._found(kind, name)
            return (200, found) if found else (404, missing)
        wanted = _wanted(query["labelSelector"])
        if query.get("watch"):
            self._watch(kind, wanted, int(query["resourceVersion"]))
            return 0, {}
        with server.cluster.changed:
            items = [copy.deepcopy(one) for one in server.cluster.objects[kind].values() if _has(one, wanted)]
            return 200, {"items": items, "metadata": {"resourceVersion": str(server.cluster.version)}}

    def _found(self, kind: str, name: str) -> Object | None:
        with self.server.cluster.changed:
            return copy.deepcopy(self.server.cluster.objects[kind].get(name))

    def _watch(self, kind: str, wanted: dict[str, set[str]], version: int) -> None:
        cluster = self.server.cluster
        self._begin_stream()
        while True:
            with cluster.changed:
                gone = version < cluster.oldest
                news = [one for one in cluster.events if one[0] > version and one[1] == kind]
                if not gone and not news:
                    if cluster.stopped:
                        return
                    cluster.changed.wait(1)
                    continue
            if gone:
                self._chunk({"type": "ERROR", "object": {"kind": "Status", "code": 410, "message": "too old version"}})
                self._chunk(None)
                return
            for at, _, event, item in news:
                version = at
                if _has(item, wanted):
                    self._chunk({"type": event, "object": item})

    def _log(self, name: str, query: dict[str, str]) -> tuple[int, Object]:
        server = self.server
        pod = server.cluster.objects["pods"].get(name)
        if pod is None:
            return 404, {"message": f"pods {name!r} not found"}
        if "containerStatuses" not in pod["status"] or pod["status"]["phase"] == "Pending":
            return 400, {"message": "container is waiting to start"}
        cut = server.cut_logs.pop(0) if server.cut_logs else None
        self._begin_stream()
        for sent, line in enumerate(self._lines(name, pod, query.get("sinceTime", ""))):
            if sent == cut:
                # In the middle of a line.
                self._raw(line.encode()[:35])
                return 0, {}
            self._raw(line.encode() + b"\n")
        self._chunk(None)
        return 0, {}

    def _lines(self, name: str, pod: Object, since: str) -> Iterator[str]:
        cluster, at = self.server.cluster, 0
        while True:
            with cluster.changed:
                lines = cluster.logs[name][at:]
                ended = pod["status"]["phase"] in ("Succeeded", "Failed") or cluster.stopped
                if not lines and not ended:
                    cluster.changed.wait(0.5)
                    continue
            at += len(lines)
            # By whole seconds, as the real one.
            yield from (line for line in lines if line[:19] >= since[:19])
            if ended and at == len(cluster.logs[name]):
                return

    def _begin_stream(self) -> None:
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()

    def _chunk(self, item: Object | None) -> None:
        if item is None:
            self.wfile.write(b"0\r\n\r\n")
        else:
            self._raw(json.dumps(item).encode() + b"\n")

    def _raw(self, data: bytes) -> None:
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
        self.wfile.flush()

    def _respond(self, status: int, body: Object) -> None:
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: Any) -> None:
        """Tests look at `requests`."""


def _wanted(selector: str) -> dict[str, set[str]]:
    """The values that each label may have: of NAME=VALUE and NAME in (VALUE,VALUE)."""
    found = re.findall(r"([^,= ]+)(?:=([^,]*)| in \(([^)]*)\))", selector)
    return {name: set(several.split(",")) if several else {one} for name, one, several in found}


def _has(item: Object, wanted: dict[str, set[str]]) -> bool:
    labels = item["metadata"].get("labels", {})
    return all(labels.get(name) in values for name, values in wanted.items())
