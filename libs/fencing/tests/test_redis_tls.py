"""Redis over TLS, of each kind: real servers behind certificates of an authority that is trusted when the URL names it, and not otherwise."""

import asyncio
import gc
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest

from toban_fencing.election_types import LockOutcome
from toban_fencing.redis_client import RedisGone, RedisLink, open_client
from toban_fencing.redis_locks import LeaderLock
from toban_runtime.clock import SystemClock
from toban_stack.certs import make_ca
from toban_testing.redis_nodes import PASSWORD, SLOTS, Node, nodes, wait
from toban_testing.tls_proxy import TlsFront, server_context
from toban_testing.waiting import until_async

CLOCK = SystemClock()
KINDS = ("one server", "sentinel", "cluster")
Start = Callable[..., Node]


@pytest.fixture
def start() -> Iterator[Start]:
    with nodes() as start:
        yield start


class Site:
    """Servers of one kind, each behind TLS. `url` names no authority yet."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.fronts: list[TlsFront] = []
        self.url = ""

    async def before(self, start: Start, name: str, lines: Callable[[TlsFront], list[str]], **kwargs: bool) -> Node:
        front = await TlsFront(server_context(self.folder)).__aenter__()
        self.fronts.append(front)
        node = await asyncio.to_thread(start, self.folder / name, lines(front), **kwargs)
        front.target = node.port
        return node

    def link(self, authority: Path | None) -> RedisLink:
        extra = f"{'&' if '?' in self.url else '?'}ssl_ca_certs={authority}" if authority else ""
        return RedisLink(client=open_client(self.url + extra), clock=CLOCK)


@pytest.fixture(params=KINDS)
async def site(request: pytest.FixtureRequest, start: Start, tmp_path: Path, patient: None) -> AsyncIterator[Site]:
    made = Site(tmp_path)
    alone = ['save ""']
    if request.param == "cluster":
        node = await made.before(
            start, "node", lambda front: [*alone, "cluster-enabled yes", f"cluster-announce-port {front.port}"]
        )
        node.client.execute_command("CLUSTER ADDSLOTSRANGE", 0, SLOTS - 1)
        wait(lambda: node.client.cluster("INFO")["cluster_state"] == "ok")
        made.url = f"rediss+cluster://:{PASSWORD}@{made.fronts[0].address}"
    else:
        await made.before(start, "master", lambda _: alone)
        master = made.fronts[0]
        made.url = f"rediss://:{PASSWORD}@{master.address}"
    if request.param == "sentinel":
        watch = [f"sentinel monitor turns 127.0.0.1 {master.port} 1", f"sentinel auth-pass turns {PASSWORD}"]
        await made.before(start, "sentinel", lambda _: watch, sentinel=True)
        made.url = f"rediss+sentinel://:{PASSWORD}@{made.fronts[1].address}/turns?sentinel_password=s3ntinel%27s+own"
    yield made
    for front in made.fronts:
        await front.__aexit__(None, None, None)
    gc.collect()


# The driver drops a cluster's connections that failed without closing them; the collector does.
@pytest.mark.filterwarnings("ignore::ResourceWarning")
async def test_every_connection_is_tls_and_strangers_are_refused_in_words(site: Site) -> None:
    for authority in (make_ca(site.folder / "other") / "ca.crt", None):
        link = site.link(authority)
        with pytest.raises(RedisGone) as caught:
            await link.call(lambda client: client.ping())
        told = str(caught.value)
        assert "certificate verify failed" in told
        assert site.fronts[-1].address in told
        assert "ssl_ca_certs=FILE in SCHEDULER_REDIS_URL names the authority of its certificate" in told
        assert PASSWORD not in told
        await link.close()
    assert [front.handshakes for front in site.fronts] == [0] * len(site.fronts)

    link = site.link(site.folder / "ca.crt")
    # The first handshake may be late.
    await until_async(LeaderLock(link=link, worker_id=1).try_lock, lambda outcome: outcome is LockOutcome.HELD)
    assert all(front.handshakes for front in site.fronts)
    await link.close()
