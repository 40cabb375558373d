"""Redis behind Sentinel and Redis Cluster, for real: everything that a coordinator does there, a fail-over, and a lost node."""

import asyncio
import gc
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
import redis

from toban_domain.errors import TobanError
from toban_fencing.election import LockOutcome
from toban_fencing.inspect import inspect
from toban_fencing.members import Members, RunLeases
from toban_fencing.redis_lease import LeaderLock, SubleaderLock
from toban_fencing.redis_link import CALL_SECONDS, RedisGone, RedisLink, open_client
from toban_runtime.clock import SystemClock
from toban_stack.ports import free_port
from toban_stack.servers.binaries import find_redis
from toban_stack.wait import wait_until

CLOCK = SystemClock()
PASSWORD, SENTINEL_PASSWORD = "k1nds-of-redis", "s3ntinel's own"
EPOCH = (5 << 51) | (7 << 27)
SLOTS = 16384


class Node:
    """One server process on loopback."""

    def __init__(self, folder: Path, lines: list[str], *, sentinel: bool = False) -> None:
        folder.mkdir()
        # A cluster's bus is 10,000 above its port.
        self.port = free_port(companion_offset=10_000)
        self.address = f"127.0.0.1:{self.port}"
        self.password = SENTINEL_PASSWORD if sentinel else PASSWORD
        config = folder / "redis.conf"
        settings = ["bind 127.0.0.1", f"port {self.port}", f'requirepass "{self.password}"', f'dir "{folder}"', *lines]
        config.write_text("\n".join(settings) + "\n")
        words = [str(find_redis()), str(config), *(["--sentinel"] if sentinel else [])]
        with (folder / "log").open("w") as log:
            self.process = subprocess.Popen(words, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
        self.client = redis.Redis(port=self.port, password=self.password, decode_responses=True)
        wait(self._answers)

    def _answers(self) -> bool:
        try:
            return bool(self.client.ping())
        except redis.RedisError:
            return False

    def stop(self) -> None:
        self.client.close()
        self.process.kill()
        self.process.wait()


def wait(ready: Callable[[], bool]) -> None:
    assert wait_until(ready, 10.0)


@contextmanager
def nodes() -> Iterator[Callable[..., Node]]:
    with ExitStack() as stack:

        def start(*args: object, **kwargs: object) -> Node:
            node = Node(*args, **kwargs)
            stack.callback(node.stop)
            return node

        yield start


@pytest.fixture(scope="module")
def sentinel(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Node]]:
    folder = tmp_path_factory.mktemp("sentinel")
    member = ['save ""', f"masterauth {PASSWORD}", "repl-diskless-sync-delay 0"]
    with nodes() as start:
        master = start(folder / "master", member)
        replica = start(folder / "replica", [*member, f"replicaof 127.0.0.1 {master.port}"])
        watch = [
            f"sentinel monitor turns 127.0.0.1 {master.port} 1",
            f"sentinel auth-pass turns {PASSWORD}",
            "sentinel down-after-milliseconds turns 300",
            "sentinel failover-timeout turns 1000",
        ]
        # A replica becomes known with the master's next INFO.
        wait(lambda: replica.client.info("replication")["master_link_status"] == "up")
        guard = start(folder / "sentinel", watch, sentinel=True)
        wait(lambda: len(guard.client.sentinel_slaves("turns")) == 1)
        yield {"master": master, "replica": replica, "sentinel": guard}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Node]]:
    folder = tmp_path_factory.mktemp("cluster")
    with nodes() as start:
        lines = ["cluster-enabled yes", "cluster-node-timeout 1000", 'save ""', f"masterauth {PASSWORD}"]
        members = [start(folder / str(number), lines) for number in range(3)]
        edges = [number * SLOTS // len(members) for number in range(len(members) + 1)]
        for number, member in enumerate(members):
            member.client.execute_command("CLUSTER ADDSLOTSRANGE", edges[number], edges[number + 1] - 1)
            member.client.execute_command("CLUSTER SET-CONFIG-EPOCH", number + 1)
            member.client.execute_command("CLUSTER MEET", "127.0.0.1", members[0].port)
        wait(lambda: all(member.client.cluster("INFO")["cluster_state"] == "ok" for member in members))
        yield members


@pytest.fixture(params=["sentinel", "cluster"])
def url(request: pytest.FixtureRequest) -> str:
    if request.param == "cluster":
        one, two, _ = request.getfixturevalue("cluster")
        return f"redis+cluster://:{PASSWORD}@{one.address},{two.address}"
    return sentinel_url(request.getfixturevalue("sentinel")["sentinel"])


def sentinel_url(guard: Node) -> str:
    return f"redis+sentinel://:{PASSWORD}@{guard.address}/turns?sentinel_password=s3ntinel%27s+own"


async def held(lock: LeaderLock, seconds: float) -> None:
    async with asyncio.timeout(seconds):
        while await lock.try_lock() is not LockOutcome.HELD:  # noqa: ASYNC110 (Redis tells nobody that it is back)
            await asyncio.sleep(0.05)


async def test_everything_that_a_coordinator_does_there(url: str) -> None:
    link = RedisLink(client=open_client(url), clock=CLOCK)
    mine, other = (LeaderLock(link=link, worker_id=number) for number in (1, 2))
    await held(mine, 5)
    assert await other.try_lock() is LockOutcome.FOREIGN
    assert (await mine.renew(EPOCH, overwrite=True, last_tick=CLOCK.wall())).outcome is LockOutcome.HELD
    assert await SubleaderLock(link=link, node_id="node", worker_id=1).hold()
    members = Members(link=link)
    # More workers than nodes: one pipeline over keys of every slot.
    await members.write({number: {"role": "worker"} for number in range(30)}, ttl_seconds=5, now=1000.0)
    assert [await members.read(number) for number in range(30)] == [{"role": "worker"}] * 30
    await members.set_degrade(7, EPOCH)
    assert await members.degrade_flag(7) == EPOCH
    await members.raise_sequence(30)
    await link.call(lambda client: client.set("scheduler:detach:9", "stop"))
    assert await members.detach_flags(range(30)) == {9: "stop"}
    await members.clear_detach(9)
    await members.remove(7)
    assert await members.read(7) == {}
    leases = RunLeases(link=link)
    assert await leases.take(range(1, 41), EPOCH) == frozenset(range(1, 41))
    assert await leases.take([1, 2, 50], EPOCH - 1) == {50}
    assert (await inspect(link)).policy == "noeviction"
    await mine.give_back(EPOCH)
    assert link.up
    await link.close()


# The driver drops a node that went away without closing its connections; the collector does.
@pytest.mark.filterwarnings("ignore::ResourceWarning")
async def test_a_lost_cluster_node_costs_a_bounded_wait(cluster: list[Node]) -> None:
    link = RedisLink(client=open_client(f"redis+cluster://:{PASSWORD}@{cluster[0].address}"), clock=CLOCK)
    await held(LeaderLock(link=link, worker_id=1), 5)
    cluster[2].process.kill()
    cluster[2].process.wait()
    # Without the slots of that node the whole cluster says CLUSTERDOWN, after its node timeout.
    wait(lambda: cluster[0].client.cluster("INFO")["cluster_state"] == "fail")
    started = CLOCK.monotonic()
    with pytest.raises(RedisGone):
        await link.call(lambda client: client.get("x"))
    assert CLOCK.monotonic() - started < CALL_SECONDS + 0.2
    assert await RunLeases(link=link).take([1, 2], EPOCH) == {1, 2}
    await link.close()
    del link
    gc.collect()


async def test_a_new_master_is_found_after_a_fail_over(sentinel: dict[str, Node]) -> None:
    link = RedisLink(client=open_client(sentinel_url(sentinel["sentinel"])), clock=CLOCK)
    lock = LeaderLock(link=link, worker_id=3)
    await held(lock, 5)
    sentinel["master"].process.kill()
    sentinel["master"].process.wait()
    started = CLOCK.monotonic()
    assert await lock.try_lock() is LockOutcome.UNREACHABLE
    assert CLOCK.monotonic() - started < CALL_SECONDS + 0.2
    await held(lock, 15)
    assert sentinel["replica"].client.role()[0] == "master"
    assert sentinel["replica"].client.get("scheduler:leader:lock") == "0:3"
    await link.close()


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("redis+sentinel://a:1/turns?sentinel_pasword=x", "unknown parameter 'sentinel_pasword'"),
        ("redis+sentinel://a:1/turns/first", "may have a database"),
        ("redis+cluster://a:1?sentinel_password=x", "unknown parameter"),
    ],
)
def test_what_the_url_says_wrongly_is_named(url: str, says: str) -> None:
    with pytest.raises(TobanError, match=says):
        open_client(url)
