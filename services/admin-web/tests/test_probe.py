"""The upstream replicas that serve, as /healthz reports them."""

from __future__ import annotations

from toban_admin_web.loops.probe import Probe


class Upstream:
    """Two addresses; the test sets which ones serve."""

    service = "coordinator"
    addresses = ("a:1", "b:2")

    def __init__(self) -> None:
        self.good = {"a:1"}

    def serving(self, address: str, *, timeout: float) -> bool:
        return address in self.good


def test_counts_of_the_last_tick() -> None:
    upstream, ticks = Upstream(), []
    probe = Probe(upstreams=[upstream], on_tick=lambda: ticks.append(1))
    assert probe.serving() == {}
    probe.run_once()
    assert probe.serving() == {"coordinator": (1, 2)}
    upstream.good = {"a:1", "b:2"}
    probe.run_once()
    assert probe.serving() == {"coordinator": (2, 2)} and len(ticks) == 2
