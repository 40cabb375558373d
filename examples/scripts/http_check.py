"""Requests TOBAN_PARAM_URL once; exit code 1 unless the response is as expected and in time."""

import os
import sys
import time
import urllib.error
import urllib.request

url = os.environ["TOBAN_PARAM_URL"]
status = int(os.environ.get("TOBAN_PARAM_STATUS", "200"))
within = float(os.environ.get("TOBAN_PARAM_WITHIN_SECONDS", "5"))
contains = os.environ.get("TOBAN_PARAM_CONTAINS", "")

# Checks the URL itself: ignores proxies of the environment.
opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
began = time.monotonic()
try:
    with opener.open(url, timeout=within) as answer:
        seen, body = answer.status, answer.read(65536).decode(errors="replace")
except urllib.error.HTTPError as error:
    seen, body = error.code, ""
except (OSError, ValueError) as error:
    sys.exit(f"{url}: no answer ({getattr(error, 'reason', error)})")
took = time.monotonic() - began

print(f"{url}: {seen} after {took * 1000:.0f} ms")
if seen != status:
    sys.exit(f"expected {status}, got {seen}")
if took > within:
    sys.exit(f"took {took:.2f} s, allowed are {within:g}")
if contains not in body:
    sys.exit(f"the answer does not contain {contains!r}")
