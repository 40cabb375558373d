"""Connections of slow clients: a request has one time for all of it, an answer that is not taken ends."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator

import pytest

from toban_admin_web.server.patience import PatientSocket
from toban_runtime.clock import SystemClock


@pytest.fixture
def pair() -> Iterator[tuple[PatientSocket, socket.socket]]:
    """The site's end, with half a second of patience, and the client's."""
    ours, theirs = socket.socketpair()
    patient = PatientSocket.of(ours, 0.5)
    with patient, theirs:
        yield patient, theirs


def test_drops_do_not_prolong_a_request(pair: tuple[PatientSocket, socket.socket]) -> None:
    patient, client = pair
    clock, over = SystemClock(), threading.Event()

    def drip() -> None:
        while not over.wait(0.05):
            client.sendall(b"x")

    dripping = threading.Thread(target=drip)
    dripping.start()
    began = clock.monotonic()
    patient.begin()
    try:
        with pytest.raises(ConnectionResetError):
            while patient.recv(1):
                assert clock.monotonic() - began < 5
                # The parser of gunicorn waits without bound; ours stays.
                patient.setblocking(True)
                over.wait(0.1)
    finally:
        over.set()
        dripping.join()
    patient.end()
    patient.settimeout(1)
    assert patient.recv(100), "after the request it is a plain socket"


def test_an_answer_that_nobody_takes_ends(pair: tuple[PatientSocket, socket.socket]) -> None:
    with pytest.raises(BrokenPipeError):
        pair[0].sendall(b"x" * 10_000_000)


def test_a_closed_one_may_be_closed_again(pair: tuple[PatientSocket, socket.socket]) -> None:
    pair[0].close()
    pair[0].setblocking(True)
    pair[0].close()
