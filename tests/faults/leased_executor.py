"""An executor as it is, which also records each lease before its guards get it: `CLOCK_BOOTTIME DEADLINE` in the file LEASES/<incarnation>.

Two more things for tests, by its node id: SIGNALS_ONLY lists executors that may make no cgroup for their slots; LINKS names a JSON file
`{node id: {address: address to use instead}}`, in which the entry "self" is the port that coordinators are to use.

Usage, with this folder on PYTHONPATH: python -m leased_executor
"""

import json
import os
import sys
from pathlib import Path
from typing import Any

from toban_executor import __main__ as executor
from toban_executor.guard import cgroup
from toban_executor.guard.clock import boottime

NODE = os.environ["SCHEDULER_NODE_ID"]
start_slots, start_guards = executor.start_slots, executor.start_guards


def start_restricted(*, incarnation: str, **given: Any) -> Any:
    """Where the slots' groups would be, none can be made."""
    base = cgroup.find_base(f"toban-{incarnation}")
    if base is not None and NODE in os.environ.get("SIGNALS_ONLY", "").split(","):
        (base / "cgroup.max.descendants").write_text("0")
    return start_guards(incarnation=incarnation, **given)


def record_leases(incarnation: str) -> None:
    """The line is written before the grant takes effect, so that no job can have run by a lease that is not recorded."""
    from toban_executor.app.lease import ExecutorLease

    granted = ExecutorLease.granted
    file = os.open(Path(os.environ["LEASES"]) / incarnation, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def recorded(self: ExecutorLease, sent: Any) -> Any:
        at, deadline = boottime(), granted(self, sent)
        os.write(file, f"{at} {deadline.boot}\n".encode())
        return deadline

    ExecutorLease.granted = recorded  # type: ignore[method-assign]


def use_links(links: dict[str, Any]) -> None:
    """Connections go over the test's proxies, and coordinators are told the proxy's port."""
    from toban_executor.app.recovery import Recovery
    from toban_transport.channel import ChannelPool

    get, run = ChannelPool.get, Recovery.run

    def linked(self: ChannelPool, address: str, service: str) -> Any:
        return get(self, links.get(address, address), service)

    def advertised(self: Recovery, grpc_port: int) -> Any:
        return run(self, links.get("self", grpc_port))

    ChannelPool.get, Recovery.run = linked, advertised  # type: ignore[method-assign]


def start_then_wrap(**given: Any) -> Any:
    """Guards first: what is wrapped loads gRPC, which must not be there when they start."""
    guards, most = start_slots(**given)
    record_leases(guards.incarnation)
    file = os.environ.get("LINKS", "")
    if file and Path(file).exists():
        use_links(json.loads(Path(file).read_text()).get(NODE, {}))
    return guards, most


if __name__ == "__main__":
    executor.start_guards, executor.start_slots = start_restricted, start_then_wrap
    sys.exit(executor.main())
