"""Archives a folder with tar: written to a temporary name, verified, then renamed, so that the target is never incomplete."""

import os
import subprocess
import sys
import time
from pathlib import Path

source = Path(os.environ.get("TOBAN_PARAM_SOURCE", "data")).resolve()
target = Path(os.environ.get("TOBAN_PARAM_TARGET") or Path.home() / "toban-examples" / "backups")
keep = int(os.environ.get("TOBAN_PARAM_KEEP", "3"))

if not source.is_dir():
    sys.exit(f"{source} is not a folder")
target.mkdir(parents=True, exist_ok=True)

# The run id makes the name unique: two runs in the same second do not write to the same file.
stamp = f"{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}-{os.environ.get('TOBAN_RUN_ID', '0')}"
archive = target / f"{source.name}-{stamp}.tar.gz"
half = archive.with_suffix(".part")

subprocess.run(["tar", "-czf", str(half), "-C", str(source.parent), source.name], check=True)
listing = subprocess.run(["tar", "-tzf", str(half)], check=True, capture_output=True, text=True).stdout
half.rename(archive)
print(f"packed {len(listing.splitlines())} entries of {source} into {archive} ({archive.stat().st_size} bytes)")

for old in sorted(target.glob(f"{source.name}-*.tar.gz"))[:-keep]:
    old.unlink()
    print(f"removed {old.name}, more than {keep} archives")
