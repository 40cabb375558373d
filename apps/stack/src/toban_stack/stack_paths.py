"""The folder of one stack: paths of its data, certificates, secrets, logs and process records."""

import base64
import os
import secrets
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from toban_runtime.private_file import write_private
from toban_stack.errors import StackError

# A Unix socket's path may have 107 bytes; the longest name below the folder has 33.
MAX_SOCKET_FOLDER_BYTES = 70


@dataclass(frozen=True, slots=True)
class StackPaths:
    """Paths below one stack's folder. Only `create`, `secret`, `secrets_key` and `keep_secret` write."""

    root: Path

    def create(self) -> None:
        """Makes the folders that every stack has, with mode 0700. Raises StackError when one cannot be made or its path is too long."""
        if len(os.fsencode(self.sockets)) > MAX_SOCKET_FOLDER_BYTES:
            raise StackError(
                f"{self.sockets} is too long for the path of a Unix socket: set TOBAN_HOME, or TMPDIR, to a shorter path"
            )
        for folder in (self.root, self.logs, self.secrets, self.data, self.run, self.sockets):
            try:
                folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            except OSError as error:
                raise StackError(
                    f"{folder} cannot be made ({error.strerror}): set TOBAN_HOME to a folder that this account may write"
                ) from None
        # A folder of a project: nothing of it belongs to its history. One that is there is of a person, whose folder this is.
        with suppress(FileExistsError), (self.root / ".gitignore").open("x", encoding="utf-8") as ignored:
            ignored.write("*\n")
        if self.sockets.stat().st_uid != os.geteuid() or self.sockets.is_symlink():
            raise StackError(
                f"{self.sockets} belongs to another account: remove it, or set TOBAN_HOME to a shorter path"
            )

    @property
    def logs(self) -> Path:
        """One log file for each process."""
        return self.root / "log"

    @property
    def secrets(self) -> Path:
        """Generated passwords and the URLs that contain them; files of mode 0600."""
        return self.root / "secrets"

    @property
    def data(self) -> Path:
        """Data that `down` keeps: databases, objects, journals of executors."""
        return self.root / "data"

    @property
    def run(self) -> Path:
        """Ready files; empty while nothing runs."""
        return self.root / "run"

    @property
    def tls(self) -> Path:
        """A sub-folder for each service with tls.crt, tls.key and ca.crt, and `ca` with the authority."""
        return self.root / "tls"

    @property
    def state_file(self) -> Path:
        """stack.json: addresses and process records."""
        return self.root / "stack.json"

    @property
    def sockets(self) -> Path:
        """A folder whose path is short enough for Unix sockets."""
        if len(os.fsencode(self.run.absolute())) <= MAX_SOCKET_FOLDER_BYTES:
            return self.run
        digest = sha256(os.fsencode(self.root.absolute())).hexdigest()[:12]
        return Path(tempfile.gettempdir()) / f"toban-{os.getuid()}-{digest}"

    @property
    def supervisor_socket(self) -> Path:
        """Where the supervisor takes requests."""
        return self.sockets / "supervisor.sock"

    @property
    def supervisor_report(self) -> Path:
        """What the supervisor publishes: restarts, and waits for the next start."""
        return self.run / "supervisor.json"

    def log_file(self, name: str) -> Path:
        """The log of the process `name`."""
        return self.logs / f"{name}.log"

    def secret(self, name: str, bytes_of_entropy: int = 24) -> str:
        """The secret `name`: hexadecimal digits, generated at its first use and stored in a file of mode 0600."""
        path = self.secrets / name
        if not path.exists():
            write_private(path, secrets.token_hex(bytes_of_entropy))
        return path.read_text(encoding="utf-8").strip()

    def admin_token(self) -> Path:
        """The file with the token that services ask for at /healthz and /metrics, generated at its first use."""
        self.secret("admin-token")
        return self.secrets / "admin-token"

    def secrets_key(self) -> Path:
        """The key file of secrets of jobs, generated at its first use with one key; what an operator adds to it stays."""
        path = self.secrets / "secrets-key"
        if not path.exists():
            write_private(path, base64.b64encode(secrets.token_bytes(32)) + b"\n")
        return path

    def keep_secret(self, name: str, value: str) -> Path:
        """Stores `value` as the secret `name` (when it differs) and returns its file."""
        path = self.secrets / name
        if not path.exists() or path.read_text(encoding="utf-8") != value:
            write_private(path, value)
        return path
