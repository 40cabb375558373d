"""Slow clients: a whole request has one time limit, and so has each write of a response."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from toban_admin_web.server.client_timeouts import DeadlineSocket
from toban_runtime.clock import SystemClock


@pytest.fixture
def pair() -> Iterator[tuple[DeadlineSocket, socket.socket]]:
    """The site's end, with a time limit of half a second, and the client's."""
    ours, theirs = socket.socketpair()
    limited = DeadlineSocket.wrap(ours, 0.5)
    with limited, theirs:
        yield limited, theirs


def test_single_bytes_do_not_prolong_a_request(pair: tuple[DeadlineSocket, socket.socket], at_most: Any) -> None:
    limited, client = pair
    clock, over = SystemClock(), threading.Event()

    def drip() -> None:
        while not over.wait(0.05):
            client.sendall(b"x")

    dripping = threading.Thread(target=drip)
    dripping.start()
    began = clock.monotonic()
    limited.start_request()
    try:
        with pytest.raises(ConnectionResetError):
            while limited.recv(1):
                assert clock.monotonic() - began < at_most(5)
                # gunicorn's parser sets the socket to blocking; the time limit stays.
                limited.setblocking(True)
                over.wait(0.1)
    finally:
        over.set()
        dripping.join()
    limited.finish_request()
    limited.settimeout(1)
    assert limited.recv(100), "after the request it is a plain socket"


def test_a_response_that_the_client_does_not_read_ends(pair: tuple[DeadlineSocket, socket.socket]) -> None:
    with pytest.raises(BrokenPipeError):
        pair[0].sendall(b"x" * 10_000_000)


def test_a_closed_socket_may_be_closed_again(pair: tuple[DeadlineSocket, socket.socket]) -> None:
    pair[0].close()
    pair[0].setblocking(True)
    pair[0].close()
