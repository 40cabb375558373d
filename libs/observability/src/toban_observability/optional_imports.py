"""Libraries load others where those are installed: what this project does not use of them costs time at each start of a service."""

import contextlib
import sys
from collections.abc import Iterator
from typing import Any, cast


@contextlib.contextmanager
def without(*modules: str) -> Iterator[None]:
    """Imports find none of these modules meanwhile, unless they are loaded already. For libraries that can do without them."""
    hidden = [name for name in modules if name not in sys.modules]
    sys.modules.update(dict.fromkeys(hidden, cast(Any, None)))
    try:
        yield
    finally:
        for name in hidden:
            del sys.modules[name]
