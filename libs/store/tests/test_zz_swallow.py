import asyncio, collections, random
from toban_store.pool import open_pool
from toban_store.tx import tx
from toban_store.errors import DidNotHappen
async def test_swallow(pg_url):
    pool = await open_pool(pg_url, application_name="x", min_size=4, max_size=4)
    kinds = collections.Counter()
    rnd = random.Random(1)
    async def busy(done):
        n = 0
        while n < 3000:
            async with tx(pool) as t:
                await t.fetch_one("SELECT 1 AS one")
            n += 1
        return n
    for i in range(400):
        tasks = [asyncio.create_task(busy(None)) for _ in range(8)]
        await asyncio.sleep(0.003 + rnd.random() * 0.004)
        for t in tasks: t.cancel()
        done, pending = await asyncio.wait(tasks, timeout=0.5)
        kinds["swallowed"] += len(pending)
        for t in done:
            kinds["cancelled" if t.cancelled() else repr(t.exception())[:80]] += 1
        for t in pending: 
            while not t.done():
                t.cancel(); await asyncio.sleep(0.01)
    print(kinds)
    await pool.close()
