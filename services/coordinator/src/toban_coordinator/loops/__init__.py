"""The leader's loops: fire, assign, dispatch, reap, prune; and the write path of reports, which every coordinator runs."""

from toban_coordinator.loops.base import LoopDeps
from toban_coordinator.loops.terms import leader_loops

__all__ = ["LoopDeps", "leader_loops"]
