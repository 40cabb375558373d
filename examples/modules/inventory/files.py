"""Lists the contents of a folder. An ordinary module without any dependency on Toban."""

from collections import Counter
from pathlib import Path


def count_files(folder: str = ".", top: int = 10) -> dict[str, int]:
    """Prints the `top` largest kinds of files below `folder`; returns the bytes of each kind."""
    sizes: Counter[str] = Counter()
    counts: Counter[str] = Counter()
    for path in Path(folder).rglob("*"):
        if path.is_file() and not path.is_symlink():
            kind = path.suffix or "(none)"
            counts[kind] += 1
            sizes[kind] += path.stat().st_size
    for kind, size in sizes.most_common(top):
        print(f"{kind:12} {counts[kind]:6} files {size:12} bytes")
    print(f"{sum(counts.values())} files, {sum(sizes.values())} bytes in {Path(folder).resolve()}")
    return dict(sizes)
