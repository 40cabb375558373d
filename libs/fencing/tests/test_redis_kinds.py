"""Redis behind Sentinel and Redis Cluster, for real: everything that a coordinator does there, a fail-over, and a lost node."""

import gc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from toban_domain.errors import TobanError
from toban_fencing import redis_client
from toban_fencing.election_types import LockOutcome, Overwrite
from toban_fencing.redis_client import CALL_SECONDS, RedisGone, RedisLink, open_client
from toban_fencing.redis_info import inspect
from toban_fencing.redis_locks import LeaderLock, SubleaderLock
from toban_fencing.worker_registry import Members, RunLeases
from toban_runtime.clock import SystemClock
from toban_stack.ports import free_port
from toban_testing.proxy import FaultProxy
from toban_testing.redis_nodes import PASSWORD, SLOTS, Node, nodes, wait
from toban_testing.waiting import until_async

CLOCK = SystemClock()
EPOCH = (5 << 51) | (7 << 27)


# One for each test: two of them end a node of theirs.
@pytest.fixture
def sentinel(tmp_path: Path) -> Iterator[dict[str, Node]]:
    folder = tmp_path
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


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[list[Node]]:
    folder = tmp_path
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


def sentinel_url(guard: Node, *before: str) -> str:
    hosts = ",".join([*before, guard.address])
    return f"redis+sentinel://:{PASSWORD}@{hosts}/turns?sentinel_password=s3ntinel%27s+own"


async def held(lock: LeaderLock) -> None:
    await until_async(lock.try_lock, lambda outcome: outcome is LockOutcome.HELD)


@pytest.mark.seed(15)
async def test_everything_that_a_coordinator_does_there(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # What the answers are, and not how soon they come.
    monkeypatch.setattr(redis_client, "CALL_SECONDS", 60.0)
    link = RedisLink(client=open_client(url), clock=CLOCK)
    mine, other = (LeaderLock(link=link, worker_id=number) for number in (1, 2))
    await held(mine)
    assert await other.try_lock() is LockOutcome.FOREIGN
    assert (await mine.renew(EPOCH, overwrite=Overwrite.CANDIDATE, last_tick=CLOCK.wall())).outcome is LockOutcome.HELD
    assert await SubleaderLock(link=link, node_id="node", worker_id=1).hold()
    members = Members(link=link)
    # More workers than nodes: one pipeline over keys of every slot.
    await members.write({number: {"role": "worker"} for number in range(30)}, ttl_seconds=5, now=1000.0, newest_id=30)
    assert [await members.read(number) for number in range(30)] == [{"role": "worker"}] * 30
    await members.set_degrade(1, EPOCH)
    assert (await mine.renew(EPOCH, overwrite=Overwrite.CANDIDATE)).degrade == EPOCH
    await link.call(lambda client: client.set("scheduler:detach:9", "stop"))
    assert await members.detach_flags(range(30)) == {9: "stop"}
    await members.clear_detach(9)
    await members.remove(7)
    assert await members.read(7) == {}
    leases = RunLeases(link=link)
    assert await leases.take(range(1, 41), EPOCH) == frozenset(range(1, 41))
    assert await leases.take([1, 2, 50], EPOCH - 1) == {50}
    assert (await inspect(link)).policy == "noeviction"
    await mine.release(EPOCH)
    assert link.up
    await link.close()


# The driver drops a node that went away without closing its connections; the collector does.
@pytest.mark.filterwarnings("ignore::ResourceWarning")
async def test_a_lost_cluster_node_costs_a_bounded_wait(cluster: list[Node], at_most: Any) -> None:
    link = RedisLink(client=open_client(f"redis+cluster://:{PASSWORD}@{cluster[0].address}"), clock=CLOCK)
    await held(LeaderLock(link=link, worker_id=1))
    cluster[2].process.kill()
    cluster[2].process.wait()
    # Without the slots of that node the whole cluster says CLUSTERDOWN, after its node timeout.
    wait(lambda: cluster[0].client.cluster("INFO")["cluster_state"] == "fail")
    started = CLOCK.monotonic()
    with pytest.raises(RedisGone):
        await link.call(lambda client: client.get("x"))
    assert CLOCK.monotonic() - started < at_most(CALL_SECONDS + 0.2)
    assert await RunLeases(link=link).take([1, 2], EPOCH) == {1, 2}
    await link.close()
    del link
    gc.collect()


@pytest.mark.filterwarnings("ignore::ResourceWarning")
async def test_without_any_node_a_cluster_is_a_redis_that_is_gone() -> None:
    link = RedisLink(client=open_client(f"redis+cluster://127.0.0.1:{free_port()}"), clock=CLOCK)
    assert await LeaderLock(link=link, worker_id=1).try_lock() is LockOutcome.UNREACHABLE
    await link.close()
    del link
    gc.collect()


async def test_sentinels_that_are_gone_do_not_hide_the_one_that_is_there(sentinel: dict[str, Node]) -> None:
    guard = sentinel["sentinel"]
    async with FaultProxy(host="127.0.0.1", port=guard.port) as silent:
        silent.freeze()
        link = RedisLink(
            client=open_client(sentinel_url(guard, f"127.0.0.1:{free_port()}", silent.address)), clock=CLOCK
        )
        assert await link.call(lambda client: client.ping())
        await link.close()


async def test_without_any_sentinel_each_says_why() -> None:
    link = RedisLink(client=open_client(f"redis+sentinel://127.0.0.1:{free_port()}/turns"), clock=CLOCK)
    with pytest.raises(RedisGone, match=r"no sentinel names a master of 'turns': Error 111 connecting to 127\.0\.0\.1"):
        await link.call(lambda client: client.ping())
    await link.close()


@pytest.mark.seed(15)
async def test_a_new_master_is_found_after_a_fail_over(sentinel: dict[str, Node], at_most: Any) -> None:
    link = RedisLink(client=open_client(sentinel_url(sentinel["sentinel"])), clock=CLOCK)
    lock = LeaderLock(link=link, worker_id=3)
    await held(lock)
    sentinel["master"].process.kill()
    sentinel["master"].process.wait()
    started = CLOCK.monotonic()
    assert await lock.try_lock() is LockOutcome.UNREACHABLE
    assert CLOCK.monotonic() - started < at_most(CALL_SECONDS + 0.2)
    await held(lock)
    assert sentinel["replica"].client.role()[0] == "master"
    assert sentinel["replica"].client.get("scheduler:leader:lock") == "0:3"
    await link.close()


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("redis+sentinel://a:1/turns?sentinel_pasword=x", "unknown parameter 'sentinel_pasword'"),
        ("redis+sentinel://a:1/turns/first", "may have a database"),
        ("redis+cluster://a:1?sentinel_password=x", "unknown parameter"),
        ("redis://a:1?pasword=x", "unknown parameter 'pasword'"),
        ("redis://:s3cret/x@a:1", "not HOST:PORT; special characters of a password need %XX"),
        ("redis://a:1?ssl_ca_certs=/ca.crt", "ssl_ca_certs is for TLS: rediss instead of redis"),
        ("redis+cluster://a:1?ssl_ca_certs=/ca.crt", "ssl_ca_certs is for TLS"),
        ("rediss://a:1?ssl_ca_certs=/not/here.crt", "/not/here.crt cannot be read: No such file"),
        (f"rediss+sentinel://a:1/turns?ssl_ca_certs={__file__}", "there is no certificate in"),
    ],
)
def test_what_the_url_says_wrongly_is_named(url: str, says: str) -> None:
    with pytest.raises(TobanError, match=says) as caught:
        open_client(url)
    assert "s3cret" not in str(caught.value)
