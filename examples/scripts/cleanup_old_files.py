"""Removes files below a folder that have not changed for some days; with dry_run it only lists them."""

import os
import sys
import time
from pathlib import Path

folder = Path(os.environ.get("TOBAN_PARAM_FOLDER") or Path.home() / "toban-examples")
days = float(os.environ.get("TOBAN_PARAM_DAYS", "30"))
dry_run = os.environ.get("TOBAN_PARAM_DRY_RUN", "true") == "true"

if not folder.exists():
    print(f"{folder} is not there: nothing to do")
    sys.exit()
if folder.resolve() in (Path("/"), Path.home().resolve()):
    sys.exit(f"{folder.resolve()} as a whole is nothing to clean up")

old = time.time() - days * 86400
removed = freed = 0
for path in sorted(folder.rglob("*")):
    # Links are neither followed nor removed: their target may belong to another user.
    if path.is_symlink() or not path.is_file() or path.stat().st_mtime > old:
        continue
    size = path.stat().st_size
    print(f"{'would remove' if dry_run else 'removes'} {path} ({size} bytes)")
    if not dry_run:
        path.unlink()
    removed, freed = removed + 1, freed + size
print(f"{removed} files, {freed} bytes{', nothing was removed (dry_run)' if dry_run else ''}")
