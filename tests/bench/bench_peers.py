"""Toban beside other schedulers and queues, measured alternately: rates, idle latency, many schedules due in one second.

Usage: bench_peers.py, or make bench-peers; progress and a table on stderr, a JSON line a figure and peer on stdout. A ratio above 1 is in Toban's
favour. Variables: PEERS="celery huey" (all), ROUNDS (5), RUNS of a backlog (2000), SINGLES, runs one at a time (100), ITEMS, tasks that do nothing
(6000), DUE, schedules of one second (10000; 0: none). Exit code 1: a peer, or Toban, could not be measured or lost or doubled a run; 2: wrong call.
"""

import json
import os
import sys
import time
from dataclasses import dataclass

from peers import ours, theirs
from peers.catalogue import Peer, chosen
from peers.figures import Measured, lines, table
from workloads import Irregular

from toban_domain.errors import TobanError
from toban_stack.errors import StackError
from toban_testing.starter import temporary_folder

PAUSE = 0.1
FAILURES = (theirs.PeerFailed, StackError, Irregular, TobanError, TimeoutError)


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much each round measures."""

    rounds: int
    runs: int
    singles: int
    items: int
    due: int


def main() -> int:
    """Measure each peer beside Toban, and print."""
    try:
        peers = chosen(os.environ.get("PEERS", ""))
        sizes = Sizes(
            rounds=_number("ROUNDS", 5, 1),
            runs=_number("RUNS", 2000, 1),
            singles=_number("SINGLES", 100, 1),
            items=_number("ITEMS", 6000, 1),
            due=_number("DUE", 10_000, 0),
        )
    except ValueError as error:
        _report(f"bench-peers: {error}")
        return 2
    found: list[dict[str, object]] = []
    failed: dict[str, Exception] = {}
    with ours.running() as own:
        for peer in peers:
            try:
                rounds = compare(own, peer, sizes)
                measured = lines(peer.name, rounds)
            except FAILURES as error:
                _report(f"{peer.name}: {error}")
                failed[peer.name] = error
                continue
            for line in measured:
                print(json.dumps(line), flush=True)
            found += measured
    _report("\n" + table(found))
    for name, error in failed.items():
        _report(f"bench-peers: {name} is not compared: {str(error).splitlines()[0]}")
    return 1 if failed else 0


def compare(own: ours.Ours, peer: Peer, sizes: Sizes) -> list[tuple[Measured, Measured]]:
    """The rounds of one peer: what was measured of us and of them. We go first in every second round."""
    rounds: list[tuple[Measured, Measured]] = []
    with temporary_folder("toban-peers-") as folder:
        programs = theirs.install(peer, folder)
        with theirs.served(peer, folder / "server") as variables:
            other = theirs.Theirs(peer, programs=programs, folder=folder, variables=variables)
            for number in range(sizes.rounds):
                due = peer.has_schedules
                if number % 2:
                    they = _measure_theirs(other, sizes, due=due)
                    we = _measure_ours(own, sizes, due=due)
                else:
                    we = _measure_ours(own, sizes, due=due)
                    they = _measure_theirs(other, sizes, due=due)
                rounds.append((we, they))
                _report(f"{peer.name}, round {number + 1} of {sizes.rounds}: ours {_short(we)}, theirs {_short(they)}")
    return rounds


def _measure_ours(own: ours.Ours, sizes: Sizes, *, due: bool) -> Measured:
    measured = {
        "idle_latency_p50_ms": own.latency_ms(sizes.singles, PAUSE, leader=True),
        "idle_latency_standby_p50_ms": own.latency_ms(sizes.singles, PAUSE, leader=False),
        "runs_per_s": own.runs_per_s(sizes.runs),
        "noop_per_s": own.noop_per_s(sizes.items),
    }
    return {**measured, "due_s": own.due_s(sizes.due)} if due and sizes.due else measured


def _measure_theirs(other: theirs.Theirs, sizes: Sizes, *, due: bool) -> Measured:
    with other.running():
        latency = other.latency_ms(sizes.singles, PAUSE)
        measured = {
            "idle_latency_p50_ms": latency,
            # There is one place to ask.
            "idle_latency_standby_p50_ms": latency,
            "runs_per_s": other.per_s("true", sizes.runs),
            "noop_per_s": other.per_s("noop", sizes.items),
        }
        return {**measured, "due_s": other.due_s(sizes.due)} if due and sizes.due else measured


def _short(measured: Measured) -> str:
    return json.dumps({name: round(value, 2) for name, value in measured.items()})


def _number(variable: str, default: int, least: int) -> int:
    raw = os.environ.get(variable) or str(default)
    if not raw.isdigit() or int(raw) < least:
        raise ValueError(f"{variable}={raw!r} is not a number of at least {least}: leave it out for {default}")
    return int(raw)


def _report(line: str) -> None:
    sys.stderr.write(f"{time.strftime('%H:%M:%S')} {line}\n")
    sys.stderr.flush()


if __name__ == "__main__":
    sys.exit(main())
