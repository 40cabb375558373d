"""HEAD against another commit: throughput, idle latency and CPU per run, measured alternately.

Usage: bench_compare.py BASE, or make bench-compare BASE=<commit>; prints a JSON line a figure. Exit code 0: not slower, 1: slower,
2: not measured. Variables: PAIRS (7), RUNS of each backlog (1500), SINGLES, runs one at a time (40). docs/performance.md explains the verdict.
"""

import contextlib
import json
import os
import shutil
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from bench_cpu import CLASSES
from bench_wal import FIGURES as WRITTEN
from compare import verdict
from compare.checkout import Checkout, Repository
from compare.programs import ENDINGS, CompareError, kill_leftovers, run, undisturbed
from compare.rounds import Rounds, Sample
from compare.side import Side, running
from workloads import Irregular

from toban_domain.errors import TobanError
from toban_testing.starter import end_with_this_process

ROOT = Path(__file__).resolve().parents[2]
PAIRS, RUNS, SINGLES = 7, 1500, 40
Samples = dict[str, list[Sample]]


def main(arguments: Sequence[str]) -> int:
    """Compares, prints, and cleans up whatever happens."""
    for number in ENDINGS:
        # With nohup it goes on after its terminal.
        if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, _interrupt)
    cleanup = contextlib.ExitStack()
    try:
        pairs, runs, singles = (
            _number("PAIRS", PAIRS, verdict.MIN_PAIRS),
            _number("RUNS", RUNS, 100),
            _number("SINGLES", SINGLES, 5),
        )
        if len(arguments) != 1 or not arguments[0]:
            raise CompareError("give the commit to compare HEAD with: make bench-compare BASE=<commit>")
        sides = _sides(Repository(ROOT), arguments[0], cleanup)
        return report(_measure(sides, pairs=pairs, runs=runs, singles=singles))
    except (CompareError, Irregular, TimeoutError, ProcessLookupError, TobanError) as error:
        _report_progress(f"bench-compare: {error}")
        return 2
    except KeyboardInterrupt:
        _report_progress("bench-compare: interrupted")
        return 130
    finally:
        # A second Ctrl-C does not leave half of it behind.
        for number in ENDINGS:
            signal.signal(number, signal.SIG_IGN)
        cleanup.close()


def _sides(repository: Repository, base: str, cleanup: contextlib.ExitStack) -> list[Side]:
    """A running, warm stack of each commit."""
    commits = repository.commits(base)
    _report_progress("bench-compare: " + ", ".join(f"{label} {commit[:10]}" for label, commit in commits.items()))
    if changed := repository.uncommitted():
        _report_progress(f"warning: {changed} files are not committed; HEAD is measured without them")
    with undisturbed():
        folder = Path(tempfile.mkdtemp(prefix="toban-compare-"))
        end_with_this_process(folder, remove=True)
        cleanup.callback(shutil.rmtree, folder, ignore_errors=True)
        cleanup.callback(kill_leftovers, folder)
    checkouts: list[Checkout] = []
    for label, commit in commits.items():
        cleanup.callback(repository.remove, folder / label)
        checkouts.append(repository.check_out(label, commit, folder / label))
    run(*(checkout.bootstrap() for checkout in checkouts))
    sides = [cleanup.enter_context(running(checkout)) for checkout in checkouts]
    for side in sides:
        side.clear_and_warm_up(warm_runs=300)
    return sides


def _measure(sides: Sequence[Side], *, pairs: int, runs: int, singles: int) -> Samples:
    """The samples of every pair by label."""
    samples: Samples = {side.label: [] for side in sides}
    rounds = Rounds(sides, runs=runs, singles=singles)
    for number in range(pairs):
        measured = rounds.measure()
        for label, sample in measured.items():
            samples[label].append(sample)
        figures = {
            label: {name: round(value, 2) for name, value in one.figures.items()} for label, one in measured.items()
        }
        _report_progress(f"pair {number + 1} of {pairs}: {json.dumps(figures)}")
    return samples


def report(samples: Mapping[str, Sequence[Sample]]) -> int:
    """Prints a line a figure, the CPU by class and what was written; 1 when a comparison has failed. Without `reference` the base is it."""
    measured = {
        label: {figure.name: [one.figures[figure.name] for one in taken] for figure in verdict.FIGURES}
        for label, taken in samples.items()
    }
    comparisons = verdict.compare_all(measured["new"], measured["base"], against="base")
    comparisons += verdict.compare_all(
        measured["new"], measured.get("reference", measured["base"]), against="reference"
    )
    for comparison in comparisons:
        print(json.dumps(comparison.line()), flush=True)
    by_class = {
        label: {kind: round(statistics.median(one.cpu_classes[kind] for one in taken), 3) for kind in CLASSES}
        for label, taken in samples.items()
    }
    print(json.dumps({"bench": "compare", "figure": "cpu_ms_per_run_by_class", **by_class}), flush=True)
    known = [name for name in WRITTEN if all(name in one.written for taken in samples.values() for one in taken)]
    written = {
        label: {name: round(statistics.median(one.written[name] for one in taken), 2) for name in known}
        for label, taken in samples.items()
    }
    if known:
        print(json.dumps({"bench": "compare", "figure": "written_per_run", **written}), flush=True)
    return 0 if all(comparison.passed for comparison in comparisons) else 1


def _number(variable: str, default: int, least: int) -> int:
    raw = os.environ.get(variable) or str(default)
    if not raw.isdigit() or int(raw) < least:
        raise CompareError(f"{variable}={raw!r} is not a number of at least {least}")
    return int(raw)


def _interrupt(number: int, _frame: object) -> None:
    raise KeyboardInterrupt(number)


def _report_progress(line: str) -> None:
    sys.stderr.write(f"{time.strftime('%H:%M:%S')} {line}\n")
    sys.stderr.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
