"""Leadership: stand, lead, step down; a coordinator's presence; the sub-leader's watch."""

from toban_coordinator.leadership.election_runner import ElectionDeps
from toban_coordinator.leadership.election_thread import ElectionThread
from toban_coordinator.leadership.leadership import Leadership
from toban_coordinator.leadership.presence import Presence, PresenceDeps
from toban_coordinator.leadership.server_time import ServerTime
from toban_coordinator.leadership.subleader import Checker, Watcher
from toban_coordinator.leadership.term import MakeLoops, OnTurn, TermDeps

__all__ = [
    "Checker",
    "ElectionDeps",
    "ElectionThread",
    "Leadership",
    "MakeLoops",
    "OnTurn",
    "Presence",
    "PresenceDeps",
    "ServerTime",
    "TermDeps",
    "Watcher",
]
