"""Ports stay the same, may be set, and are refused with a line that names the remedy."""

import socket
import subprocess
import sys
from pathlib import Path

import pytest

from toban_stack.errors import StackError
from toban_stack.ports import FIRST_PORT, LAST_PORT, RESERVED_AT_ONCE, PortBook, free_port, is_free


def book(tmp_path: Path, **environment: str) -> PortBook:
    return PortBook(path=tmp_path / "ports.json", environment=environment)


def test_a_port_is_remembered_until_another_process_takes_it(tmp_path: Path) -> None:
    port = book(tmp_path).port("redis")
    assert FIRST_PORT <= port < LAST_PORT
    assert book(tmp_path).port("redis") == port
    with socket.socket() as stranger:
        stranger.bind(("127.0.0.1", port))
        stranger.listen()
        assert book(tmp_path).port("redis", in_use=True) == port
        said: list[str] = []
        other = PortBook(path=tmp_path / "ports.json", environment={}, on_progress=said.append).port("redis")
        assert other != port
        assert said == [f"port {port} of redis is taken by another process: redis has port {other} from now on"]


@pytest.mark.parametrize(
    ("name", "variable"), [("postgres", "TOBAN_PG_PORT"), ("coordinator-1", "TOBAN_COORDINATOR_1_PORT")]
)
def test_a_variable_sets_a_port(tmp_path: Path, name: str, variable: str) -> None:
    port = free_port()
    assert book(tmp_path, **{variable: str(port)}).port(name) == port
    with pytest.raises(StackError, match=f"{variable}='many' is not a port"):
        book(tmp_path, **{variable: "many"}).port(name)
    with socket.socket() as stranger:
        stranger.bind(("127.0.0.1", port))
        stranger.listen()
        with pytest.raises(StackError, match=f"{variable}={port} is taken"):
            book(tmp_path, **{variable: str(port)}).port(name)


def test_a_companion_port_is_free_too() -> None:
    port = free_port(11_000, 19_999, companion_offset=10_000)
    assert is_free(port) and is_free(port + 10_000)


def test_no_other_name_gets_the_companion_of_a_port(tmp_path: Path) -> None:
    port = book(tmp_path).port("s3-admin", companion_offset=10_000)
    assert port >= FIRST_PORT and port + 10_000 >= LAST_PORT


CHOOSE = "import sys; from toban_stack.ports import free_port; print(free_port(*map(int, sys.argv[1:])))"


def choose_elsewhere(first: int, last: int) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", CHOOSE, str(first), str(last)], capture_output=True, text=True, check=False
    )


def test_two_processes_never_choose_the_same_port() -> None:
    # Outside of the range that all other tests choose from.
    port = free_port(10_000, 11_000)
    assert is_free(port), "nothing has bound it yet"
    refused = choose_elsewhere(port, port + 1)
    assert refused.returncode and f"no free port between {port} and {port + 1}" in refused.stderr
    for _ in range(RESERVED_AT_ONCE):
        free_port()
    assert choose_elsewhere(port, port + 1).stdout == f"{port}\n", "a choice of long ago binds nobody"
