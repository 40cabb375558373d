"""A server of documents that refuses requests of older attempts: status 412, with the larger token in the header.

Usage: python http_server.py DATABASE [PORT]: documents and tokens are in a file of SQLite, so they outlive a restart. It prints its port.
"""

import sqlite3
import sys
from contextlib import closing
from http.server import BaseHTTPRequestHandler, HTTPServer

from toban.fencing import HEADER, fence_of

TABLE = "CREATE TABLE IF NOT EXISTS documents (path TEXT PRIMARY KEY, body BLOB NOT NULL, fence INTEGER NOT NULL)"
# One statement compares and writes: no other request comes between.
PUT = """
INSERT INTO documents VALUES (:path, :body, :fence)
ON CONFLICT (path) DO UPDATE SET body = :body, fence = :fence WHERE fence <= :fence
"""


class Handler(BaseHTTPRequestHandler):
    """PUT and GET."""

    def do_PUT(self) -> None:
        """Stores the body, unless a newer attempt has."""
        try:
            fence = fence_of(dict(self.headers.items()))
        except ValueError as error:
            self.answer(400, f"{HEADER}: {error}".encode())
            return
        body = self.rfile.read(int(self.headers.get("Content-Length", "0")))
        with closing(sqlite3.connect(sys.argv[1])) as database, database:
            if database.execute(PUT, {"path": self.path, "body": body, "fence": fence}).rowcount:
                self.answer(204, b"")
                return
            (seen,) = database.execute("SELECT fence FROM documents WHERE path = ?", (self.path,)).fetchone()
        self.answer(412, b"a newer attempt has written it", seen)

    def do_GET(self) -> None:
        """The document."""
        with closing(sqlite3.connect(sys.argv[1])) as database:
            row = database.execute("SELECT body, fence FROM documents WHERE path = ?", (self.path,)).fetchone()
        self.answer(200, *row) if row else self.answer(404, b"")

    def answer(self, status: int, body: bytes, fence: int = 0) -> None:
        """Sends an answer."""
        self.send_response(status)
        if fence:
            self.send_header(HEADER, str(fence))
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


if __name__ == "__main__":
    with closing(sqlite3.connect(sys.argv[1])) as made, made:
        made.execute(TABLE)
    with HTTPServer(("127.0.0.1", int(sys.argv[2]) if len(sys.argv) > 2 else 0), Handler) as server:
        print(server.server_port, flush=True)
        server.serve_forever()
