"""Works in parts and reports its progress after each; SIGTERM ends it between two parts."""

import os
import signal
import sys
import threading

stopped = threading.Event()
signal.signal(signal.SIGTERM, lambda *_: stopped.set())

seconds = float(os.environ.get("TOBAN_PARAM_SECONDS", "20"))
parts = int(os.environ.get("TOBAN_PARAM_PARTS", "10"))
for part in range(1, parts + 1):
    # The real work would be done here.
    if stopped.wait(seconds / parts):
        sys.exit(f"asked to stop in part {part}")
    # A pipe is buffered by default: without flush=True the marker would be delayed.
    print(f"::progress {100 * part / parts:.4g} part {part} of {parts}::", flush=True)
print("all parts done")
