"""Which deaths a registration attests: a clone of a machine boots beside its original (docs/fencing.md 3.8)."""

import pytest

from toban_coordinator.app.executors.death_claims import DeathClaims
from toban_coordinator.store.executors import executors
from toban_testing.executor_rows import LEASE_MS, hold, register, registration


@pytest.mark.parametrize(
    ("heartbeat", "grant", "lease_ms", "interval", "attested"),
    [
        (-60, 9.0, LEASE_MS, 1.0, False),
        (9.0, -60, LEASE_MS, 1.0, False),
        (3.1, None, LEASE_MS, 1.0, True),
        (45, 45, 600_000, 20.0, False),
        (61, 61, 600_000, 20.0, True),
        (4.1, 4.1, 4000, 60.0, True),
    ],
    ids=[
        "a heartbeat", "a confirmation, which is a grant", "never granted",
        "two heartbeats left out", "three left out", "its lease has ended",
    ],
)  # fmt: skip
@pytest.mark.parametrize("previous", [False, True])
async def test_a_clone_does_not_attest_the_end_of_an_original_that_lives(
    pool, sql, heartbeat, grant, lease_ms, interval, attested, previous
):
    """Its other boot id is no proof, whether it names the original or not: what it found in its own state directory is the copy's.

    `heartbeat` and `grant` are seconds ago.
    """
    old = await register(pool)
    await sql(
        "UPDATE scheduler.executors SET last_heartbeat_at = now() - make_interval(secs => %s), granted_at = now() - make_interval(secs => %s),"
        " lease_ms = %s",
        heartbeat, grant, lease_ms,
    )  # fmt: skip
    clone = registration(boot_id="b2", previous=old if previous else "")
    await executors.register(pool, clone, key_hash=b"h", lease_ms=LEASE_MS)
    claims = DeathClaims(pool=pool, reports=None)
    await claims.inherit(clone, (), None, heartbeat_seconds=interval)
    ((reason,),) = await sql("SELECT attested_reason FROM scheduler.executors WHERE incarnation = %s", old)
    assert bool(reason) is attested


@pytest.mark.parametrize(
    ("boot_id", "named", "asks", "attested"),
    [
        ("b2", False, True, False),
        ("b2", True, True, True),
        ("b2", True, False, False),
        ("b1", True, True, True),
        ("b1", True, False, False),
    ],
    ids=[
        "pods may be left",
        "no pod is left",
        "nothing was asked",
        "the same boot",
        "the same boot, nothing was asked",
    ],
)
async def test_a_reboot_alone_attests_no_end_of_pods(pool, sql, boot_id, named, asks, attested):
    """They run in a cluster, which goes on when the machine of their executor boots. Its successor names it once it has asked the cluster;
    one without kubernetes steps asks nothing."""
    labels = {"toban.dev/steps": "kubernetes"}
    old = await register(pool, labels=labels)
    run = await hold(sql, old, "ORPHANED", 5)
    await sql("UPDATE scheduler.runs_live SET orphaned_until = now() + interval '1 hour' WHERE id = %s", run)
    await sql("UPDATE scheduler.executors SET last_heartbeat_at = now() - interval '1 hour'")
    new = registration(boot_id=boot_id, previous=old if named else "", labels=labels if asks else {})
    await executors.register(pool, new, key_hash=b"h", lease_ms=LEASE_MS)
    await DeathClaims(pool=pool, reports=None).inherit(new, (), None, heartbeat_seconds=1.0)
    ((reason,),) = await sql("SELECT attested_reason FROM scheduler.executors WHERE incarnation = %s", old)
    ((waits,),) = await sql("SELECT orphaned_until IS NOT NULL FROM scheduler.runs_live WHERE id = %s", run)
    assert (bool(reason), waits) == (attested, not attested)


async def test_an_original_that_lives_is_named_to_the_operator(pool, sql, caplog):
    old = await register(pool)
    await sql("UPDATE scheduler.executors SET last_heartbeat_at = now() + interval '60 s'")
    clone = registration(boot_id="b2")
    await executors.register(pool, clone, key_hash=b"h", lease_ms=LEASE_MS)
    await DeathClaims(pool=pool, reports=None).inherit(clone, (), None, heartbeat_seconds=1.0)
    assert "was its machine cloned?" in caplog.text and old in caplog.text
