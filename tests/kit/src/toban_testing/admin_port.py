"""Requests to the admin ports of services, with the token that they ask for."""

import urllib.error
import urllib.request
from pathlib import Path

from toban_stack.stack import Stack

TOKEN = "5eed-of-the-admin-port"
HEADERS = {"Authorization": f"Bearer {TOKEN}"}


def token_file(folder: Path) -> Path:
    """A file in `folder` with TOKEN, for `SCHEDULER_ADMIN_TOKEN_FILE` of a service that a test starts."""
    path = folder / "admin-token"
    path.touch(mode=0o600)
    path.write_text(f"{TOKEN}\n")
    return path


def ask(address: str, path: str, *, token: str = TOKEN, seconds: float = 60) -> tuple[int, str]:
    """Status and body of the answer at host:port. Raises OSError when there is none within `seconds`."""
    request = urllib.request.Request(f"http://{address}{path}", headers={"Authorization": f"Bearer {token}"})
    try:
        with urllib.request.urlopen(request, timeout=seconds) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def ask_process(stack: Stack, name: str, path: str) -> str:
    """The body of the answer of a process of a stack, with the token of the stack."""
    return ask(stack.processes()[name].admin, path, token=stack.home.secret("admin-token"))[1]


def metrics_of(stack: Stack, name: str) -> list[str]:
    """The lines of /metrics of a process of a stack."""
    return ask_process(stack, name, "/metrics").splitlines()
