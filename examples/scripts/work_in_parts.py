"""Works in parts and says after each how far it is; SIGTERM ends it between two parts."""

import os
import signal
import sys
import threading

stopped = threading.Event()
signal.signal(signal.SIGTERM, lambda *_: stopped.set())

seconds = float(os.environ.get("TOBAN_PARAM_SECONDS", "20"))
parts = int(os.environ.get("TOBAN_PARAM_PARTS", "10"))
for part in range(1, parts + 1):
    # Here would be the work.
    if stopped.wait(seconds / parts):
        sys.exit(f"asked to stop in part {part}")
    # A pipe is buffered by default: without flush=True the marker would come late.
    print(f"::progress {100 * part / parts:.4g} part {part} of {parts}::", flush=True)
print("all parts done")
