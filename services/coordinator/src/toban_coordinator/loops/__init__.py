"""The leader's loops: fire, assign, dispatch, reap, prune; and the write path of reports, which every coordinator runs."""

from toban_coordinator.loops.build_loops import leader_loops
from toban_coordinator.loops.term_loop import LoopDeps

__all__ = ["LoopDeps", "leader_loops"]
