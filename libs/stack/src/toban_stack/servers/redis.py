"""A private Redis (or Valkey): loopback only, with a generated password that stands in its config file."""

import socket
from pathlib import Path

from toban_stack.home import Home, write_private
from toban_stack.processes import Program
from toban_stack.servers.binaries import find_redis

DATABASES = 128


class RedisServer:
    """One Redis server with its data in the stack's folder."""

    name = "redis"

    def __init__(self, *, home: Home, port: int, binary: Path | None = None, durable: bool = True) -> None:
        self._home = home
        self._port = port
        self._durable = durable
        self.binary = binary or find_redis()

    @property
    def address(self) -> str:
        """host:port."""
        return f"127.0.0.1:{self._port}"

    @property
    def url(self) -> str:
        """The URL of database 0, with the password."""
        return f"redis://:{self._password}@{self.address}/0"

    @property
    def description(self) -> str:
        """What runs, for people."""
        return "Valkey" if "valkey" in self.binary.name else "Redis"

    def prepare(self) -> None:
        """Writes the configuration file (mode 0600)."""
        data = self._home.data / "redis"
        data.mkdir(mode=0o700, exist_ok=True)
        lines = [
            "bind 127.0.0.1",
            f"port {self._port}",
            "protected-mode yes",
            "daemonize no",
            f"requirepass {self._password}",
            f"databases {DATABASES}",
            f'dir "{data}"',
            'logfile ""',
            'save ""',
            f"appendonly {'yes' if self._durable else 'no'}",
        ]
        write_private(self._config, "\n".join(lines) + "\n")

    def before_start(self) -> None:
        """Nothing is left by a server that was killed."""

    def program(self) -> Program:
        """How to start it."""
        return Program(
            name=self.name,
            role="coordination",
            argv=(str(self.binary), str(self._config)),
            environment={"LC_ALL": "C.UTF-8"},
            log=self._home.log_file(self.name),
            address=self.address,
        )

    def ready(self) -> bool:
        """Whether it answers PING (it does not while it loads its data)."""
        host, port = self.address.split(":")
        try:
            with socket.create_connection((host, int(port)), timeout=1) as connection:
                connection.sendall(f"AUTH {self._password}\r\nPING\r\n".encode())
                answer = b""
                while answer.count(b"\r\n") < 2 and (part := connection.recv(256)):
                    answer += part
        except OSError:
            return False
        return answer == b"+OK\r\n+PONG\r\n"

    @property
    def _password(self) -> str:
        return self._home.secret("redis-password")

    @property
    def _config(self) -> Path:
        return self._home.secrets / "redis.conf"
