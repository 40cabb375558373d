"""Redis servers with custom settings: a master with a replica, sentinels, nodes of a cluster."""

import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import redis

from toban_stack.ports import free_port
from toban_stack.servers.binaries import find_redis
from toban_stack.wait import wait_until

PASSWORD, SENTINEL_PASSWORD = "k1nds-of-redis", "s3ntinel's own"
SLOTS = 16384


class Node:
    """One running server process on loopback."""

    def __init__(self, folder: Path, lines: list[str], *, sentinel: bool = False) -> None:
        folder.mkdir()
        # The port of the cluster bus is the port plus 10,000.
        self.port = free_port(companion_offset=10_000)
        self.address = f"127.0.0.1:{self.port}"
        self.password = SENTINEL_PASSWORD if sentinel else PASSWORD
        config = folder / "redis.conf"
        # Its command line stays, so that it is found when the test session is killed.
        settings = ["bind 127.0.0.1", f"port {self.port}", f'requirepass "{self.password}"', f'dir "{folder}"', *lines]
        settings.append("set-proc-title no")
        config.write_text("\n".join(settings) + "\n")
        words = [str(find_redis().path), str(config), *(["--sentinel"] if sentinel else [])]
        with (folder / "log").open("w") as log:
            self.process = subprocess.Popen(words, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
        self.client = redis.Redis(port=self.port, password=self.password, decode_responses=True)
        wait(self._answers)

    def _answers(self) -> bool:
        try:
            return bool(self.client.ping())
        except redis.RedisError:
            return False

    def stop(self) -> None:
        """Kills the server."""
        self.client.close()
        self.process.kill()
        self.process.wait()


def wait(ready: Callable[[], bool]) -> None:
    """Waits until `ready` is true, at most a minute."""
    assert wait_until(ready, 60.0)


@contextmanager
def nodes() -> Iterator[Callable[..., Node]]:
    """Yields `start(...)`, which creates a Node that is stopped at the end of the block."""
    with ExitStack() as stack:

        def start(*args: object, **kwargs: object) -> Node:
            node = Node(*args, **kwargs)  # type: ignore[arg-type]
            stack.callback(node.stop)
            return node

        yield start
