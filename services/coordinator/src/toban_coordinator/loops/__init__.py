"""Loops: those of one term (fire, events, assign, dispatch, reap, prune, cluster_metrics, lease, orders), and those of every coordinator."""

from toban_coordinator.loops.build_loops import leader_loops, lease_loops
from toban_coordinator.loops.term_loop import LoopDeps

__all__ = ["LoopDeps", "leader_loops", "lease_loops"]
