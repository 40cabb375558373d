"""Prints a greeting. TOBAN_* variables describe the run; each scalar parameter is passed as TOBAN_PARAM_<NAME>."""

import os
import socket

name = os.environ.get("TOBAN_PARAM_NAME", "world")
print(f"Hello, {name}! This is run {os.environ.get('TOBAN_RUN_ID', '?')} on {socket.gethostname()}.")
