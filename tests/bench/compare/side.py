"""One commit's stack, driven from outside: its own launcher, the proto, and /proc."""

import contextlib
import json
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from bench_cpu import StackCpu
from bench_wal import StackWal
from workloads import Backlog, backlog, delays, prepare, timed_start, until_idle

from compare.checkout import Checkout
from compare.programs import CompareError, Program, environment_of, kill_leftovers, run
from toban_proto.v1 import coordinator_pb2 as pb
from toban_proto.v1 import coordinator_pb2_grpc as rpc
from toban_testing.admin_client import AdminClient

COUNTS = {"COORDINATORS": "2", "EXECUTORS": "2", "LOG_ARCHIVERS": "1", "ADMIN_WEBS": "0", "SCHEDULER_SLOTS": "16"}
IDLE_SECONDS = 60.0
# `up` waits for a scheduled run; this one replaces the examples, which would go on during the measurements.
EXAMPLE = """\
{"apiVersion": "toban/v1", "kind": "Job", "metadata": {"name": "start-up"}, "spec": {"steps": [{"argv": ["/bin/true"]}]}}
---
{"apiVersion": "toban/v1", "kind": "Schedule", "metadata": {"name": "start-up"}, "spec": {"job": "start-up", "interval_seconds": 1}}
"""


@dataclass(frozen=True, slots=True)
class Launched:
    """What a launcher wrote down: pids by name, names of coordinators by address, where the operator's certificate is.

    `database` is the URL of PostgreSQL's superuser; "" where this launcher keeps it elsewhere.
    """

    pids: Mapping[str, int]
    coordinators: Mapping[str, str]
    tls: Path
    trust_domain: str
    database: str


class Side:
    """A running stack of one commit, with nothing scheduled."""

    def __init__(self, label: str, launched: Launched, admin: AdminClient) -> None:
        self.label = label
        self._launched = launched
        self._admin = admin
        self._leader = ""
        self._wal = StackWal(launched.database) if launched.database else None

    def find_leader(self) -> None:
        """From now on the coordinator that leads is asked, and its CPU counts as the leader's."""
        address = self._admin.cluster().leader_address
        self._leader = self._launched.coordinators[address]
        self._admin.prefer(address)

    def start_one(self) -> tuple[int, float]:
        """One run; its id, and the wall clock before the call."""
        return timed_start(self._admin)

    def delays(self, moments: Mapping[int, float]) -> list[float]:
        """Milliseconds from call to exit of such runs."""
        return delays(self._admin, moments)

    def backlog(self, runs: int) -> Backlog:
        """A backlog of so many runs. Raises Irregular, TimeoutError, TobanError, ProcessLookupError."""
        self.find_leader()
        cpu = StackCpu(self._launched.pids, leader=self._leader)
        return backlog(self._admin, cpu, runs=runs, wal=self._wal)

    def clear_and_warm_up(self, *, warm_runs: int) -> None:
        """End what `up` has scheduled, and warm up."""
        for schedule in self._admin.call(rpc.JobReaderStub, "ListSchedules", pb.ListSchedulesRequest()).schedules:
            self._admin.call(rpc.JobControlStub, "DeleteSchedule", pb.DeleteScheduleRequest(name=schedule.name))
        until_idle(self._admin, seconds=IDLE_SECONDS)
        prepare(self._admin, runs=warm_runs)


@contextlib.contextmanager
def running(checkout: Checkout) -> Iterator[Side]:
    """The commit's stack, started as its `make up` does it, and ended afterwards. Raises CompareError."""
    home = checkout.folder.parent / f"{checkout.label}-home"
    shutil.rmtree(checkout.folder / "examples", ignore_errors=True)
    (checkout.folder / "examples").mkdir()
    (checkout.folder / "examples" / "start-up.yaml").write_text(EXAMPLE)
    try:
        run(_launcher(checkout, home, "up"))
        launched = _launched(checkout, home)
        with AdminClient(
            coordinators=list(launched.coordinators),
            log_archivers=[],
            tls_dir=launched.tls,
            trust_domain=launched.trust_domain,
        ) as admin:
            yield Side(checkout.label, launched, admin)
    finally:
        if home.exists():
            with contextlib.suppress(CompareError):
                run(_launcher(checkout, home, "down"))
        kill_leftovers(home)


def _launcher(checkout: Checkout, home: Path, word: str) -> Program:
    return Program(
        title=f"the launcher of {checkout.label} ({checkout.commit[:10]}), `{word}`,",
        argv=[str(checkout.python), "-m", "toban_stack", word],
        folder=checkout.folder,
        log=checkout.folder.parent / f"{checkout.label}-{word}.log",
        environment=environment_of(checkout.folder, TOBAN_HOME=str(home), **_shared(checkout), **COUNTS),
    )


def _shared(checkout: Checkout) -> dict[str, str]:
    """Commits before the classes refuse the variable, and have no other class."""
    knows = (checkout.folder / "docs" / "isolation.md").exists()
    return {"SCHEDULER_ISOLATION": "shared"} if knows else {}


def _launched(checkout: Checkout, home: Path) -> Launched:
    """Read defensively: other commits may write another format. Raises CompareError when this one cannot be understood."""
    try:
        state = json.loads((home / "stack.json").read_text())
        rows = state["processes"]
        return Launched(
            pids={row["name"]: int(row["pid"]) for row in rows},
            coordinators={row["address"]: row["name"] for row in rows if row["name"].startswith("coordinator")},
            tls=next(home.rglob("admin-cli/tls.crt")).parent,
            trust_domain=state.get("trust_domain", "toban.internal"),
            database=_database(home, {row["name"]: row["address"] for row in rows if row["name"] == "postgres"}),
        )
    except (OSError, ValueError, LookupError, TypeError, StopIteration) as error:
        raise CompareError(
            f"the state file of {checkout.label} ({checkout.commit[:10]}) is not understood ({error!r}): "
            "add its format to tests/bench/compare/side.py"
        ) from error


def _database(home: Path, addresses: Mapping[str, str]) -> str:
    secret = next(home.rglob("postgres-password"), None)
    if secret is None or not addresses:
        return ""
    return f"postgresql://toban:{secret.read_text().strip()}@{addresses['postgres']}/toban"
