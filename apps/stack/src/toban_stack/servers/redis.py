"""A private Redis or Valkey: loopback only, with a generated password in its configuration file.

File `written-by` in the data folder names the kind and version that wrote the data: another server may be installed later,
and neither kind reads all files of the other. Redis holds hints only, so data that no server here reads is removed.
"""

import shutil
import socket
from pathlib import Path

from toban_runtime.private_file import write_private
from toban_stack.processes import Program
from toban_stack.servers.binaries import find_redis
from toban_stack.stack_paths import StackPaths

DATABASES = 128


class RedisServer:
    """One Redis server with its data in the stack's folder."""

    name = "redis"

    def __init__(self, *, home: StackPaths, port: int, durable: bool = True) -> None:
        self._home = home
        self._port = port
        self._durable = durable
        self._data = home.data / "redis"
        self.binary = find_redis(data_of=self._writer())

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
        """The kind of server, for people."""
        return self.binary.kind

    def prepare(self) -> str:
        """Writes the configuration file (mode 0600), and removes data that this server does not read."""
        note = ""
        if self._has_data() and not self.binary.reads_data_of(self._writer()):
            note = (
                f"{self.binary} does not read the data of {self._writer() or 'an unknown server'}: Redis starts empty"
            )
            shutil.rmtree(self._data)
        self._data.mkdir(mode=0o700, exist_ok=True)
        self._writer_file.write_text(f"{self.binary}\n", encoding="utf-8")
        lines = [
            "bind 127.0.0.1",
            f"port {self._port}",
            "protected-mode yes",
            "daemonize no",
            f"requirepass {self._password}",
            f"databases {DATABASES}",
            f'dir "{self._data}"',
            'logfile ""',
            'save ""',
            # Its upkeep looks once a second in place of ten times; the end of a key that is read never depends on it.
            "hz 1",
            f"appendonly {'yes' if self._durable else 'no'}",
        ]
        write_private(self._config, "\n".join(lines) + "\n")
        return note

    def before_start(self) -> None:
        """A killed server leaves no file that needs removal."""

    def program(self) -> Program:
        """The program to start."""
        return Program(
            name=self.name,
            role="coordination",
            argv=(str(self.binary.path), str(self._config)),
            environment={"LC_ALL": "C.UTF-8"},
            log=self._home.log_file(self.name),
            address=self.address,
        )

    def ready(self) -> bool:
        """Whether it answers PING; it does not while it loads its data."""
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

    def _has_data(self) -> bool:
        return (self._data / "appendonlydir").exists() or (self._data / "dump.rdb").exists()

    def _writer(self) -> str:
        """Kind and version of the server that wrote the data; empty when that is unknown."""
        return self._writer_file.read_text(encoding="utf-8").strip() if self._writer_file.exists() else ""

    @property
    def _writer_file(self) -> Path:
        return self._data / "written-by"

    @property
    def _password(self) -> str:
        return self._home.secret("redis-password")

    @property
    def _config(self) -> Path:
        return self._home.secrets / "redis.conf"
