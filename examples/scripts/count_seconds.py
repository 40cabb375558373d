"""Counts seconds up to the given number or until SIGTERM."""

import os
import signal
import sys
import threading

stopped = threading.Event()
signal.signal(signal.SIGTERM, lambda *_: stopped.set())

total = int(os.environ.get("TOBAN_PARAM_SECONDS", "120"))
for second in range(1, total + 1):
    if stopped.wait(1):
        print(f"asked to stop after {second - 1} seconds, tidying up", flush=True)
        sys.exit(1)
    print(f"{second} of {total} seconds", flush=True)
