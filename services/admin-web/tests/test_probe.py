"""Who serves, as /healthz tells it."""

from __future__ import annotations

from toban_admin_web.loops.probe import Probe


class Upstream:
    """Two addresses, of which a test says who serves."""

    service = "coordinator"
    addresses = ("a:1", "b:2")

    def __init__(self) -> None:
        self.good = {"a:1"}

    def serving(self, address: str, *, timeout: float) -> bool:
        return address in self.good


def test_what_was_seen_last() -> None:
    upstream, looks = Upstream(), []
    probe = Probe(upstreams=[upstream], beside=lambda: looks.append(1))
    assert probe.seen() == {}
    probe.run_once()
    assert probe.seen() == {"coordinator": (1, 2)}
    upstream.good = {"a:1", "b:2"}
    probe.run_once()
    assert probe.seen() == {"coordinator": (2, 2)} and len(looks) == 2
