"""Enqueues tasks of one peer. Usage: produce.py PEER; reads an order as JSON a line from standard input, and answers each with a line.

An order has the `kind` of task, `count`, and `pause`, seconds between two tasks; without a pause tasks are given in chunks, which a peer that can
enqueues together. The process stays, so that connections are open when an order comes.
"""

import importlib
import json
import sys
import time

CHUNK = 500


def main(peer: str) -> None:
    """Serve orders until the end of the input."""
    app = importlib.import_module(f"{peer}_app")
    for line in sys.stdin:
        order = json.loads(line)
        if order["kind"] == "due":
            app.schedule(order["count"], order["at"])
        else:
            enqueue(app, **order)
        print(json.dumps({"enqueued": time.time_ns()}), flush=True)


def enqueue(app, kind, count, pause):
    """Give `count` tasks one after the other, or in chunks."""
    size = 1 if pause else CHUNK
    for first in range(0, count, size):
        app.send(kind, range(first, min(count, first + size)))
        time.sleep(pause)


if __name__ == "__main__":
    main(sys.argv[1])
