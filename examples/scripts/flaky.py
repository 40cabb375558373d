"""Fails until attempt TOBAN_PARAM_SUCCEEDS_AT."""

import os
import sys

attempt = int(os.environ.get("TOBAN_ATTEMPT", "1"))
wanted = int(os.environ.get("TOBAN_PARAM_SUCCEEDS_AT", "2"))
if attempt < wanted:
    sys.exit(f"try {attempt} fails, as always before try {wanted}")
print(f"try {attempt} succeeds")
