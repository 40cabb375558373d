"""How many slots come in each minute of a day: what counts, what a person sees of it, and how much work it may be."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from unittest.mock import AsyncMock

import pytest

from toban_coordinator.app.schedules import coming_load
from toban_coordinator.app.schedules.coming_load import KEPT_SECONDS, ComingLoads
from toban_coordinator.decide.schedules.coming_load import Use
from toban_coordinator.server import person_check
from toban_coordinator.server.person_check import PeopleCheck, seen_uses
from toban_domain.access import Effect, Person, Role, Rule, Selector
from toban_domain.errors import TobanError
from toban_observability.context import Caller
from toban_proto.v1 import coordinator_pb2 as pb
from toban_testing.clock import FakeClock
from toban_testing.waiting import until_async
from toban_transport.convert import timestamp_to_pb
from toban_transport.person_rules import CREDENTIAL

GET = "/toban_proto.v1.JobReader/GetComingLoad"


async def load(world: Any, **fields: Any) -> pb.ComingLoad:
    answer: pb.ComingLoad = await world.reader.GetComingLoad(pb.GetComingLoadRequest(**fields), None)
    return answer


def by_minute(answer: pb.ComingLoad) -> dict[int, int]:
    """Minute of the hour → slots of one such minute, which must be the same in each hour."""
    found: dict[int, set[int]] = {}
    for one in answer.minutes:
        found.setdefault(one.at.ToDatetime().minute, set()).add(one.slots)
    assert all(len(slots) == 1 for slots in found.values())
    return {minute: slots.pop() for minute, slots in found.items()}


async def test_the_slots_of_each_minute_of_a_day(world: Any, make: Any) -> None:
    await world.apply(
        make.job(),
        *(make.schedule(f"twenty-{n:02}", cron="20 * * * *") for n in range(12)),
        make.schedule("seconds", cron="*/20 20 * * * *"),
        make.schedule("half", cron="30 * * * *", timezone="Asia/Kolkata"),
        make.schedule("leap", cron="0 0 29 2 *"),
    )
    answer = await load(world, names=3)
    assert by_minute(answer) == {20: 15, 0: 1}
    begin, read = answer.begin.ToDatetime(), answer.read_at.ToDatetime()
    assert (begin.minute, begin.second) == (0, 0) and begin <= read < begin + timedelta(hours=1)
    times = [one.at.ToDatetime() for one in answer.minutes]
    assert times == sorted(times) and read < times[0] and times[-1] < begin + timedelta(days=1)
    assert answer.schedules == 14 and (answer.left_out, answer.unreadable) == (0, 0)
    assert len(answer.crowded) == 20 and answer.crowded[0].at.ToDatetime() == next(t for t in times if t.minute == 20)
    first = answer.crowded[0]
    assert (first.slots, first.schedules) == (15, 13)
    assert [(one.schedule, one.job, one.slots, one.version) for one in first.named] == [
        ("seconds", "hello", 3, 1),
        ("twenty-00", "hello", 1, 1),
        ("twenty-01", "hello", 1, 1),
    ]


async def test_schedules_that_fire_nothing_do_not_count(world: Any, make: Any) -> None:
    names = ("active", "paused", "failed", "off")
    await world.apply(
        make.job(),
        make.job("disabled", enabled=False),
        *(make.schedule(name, cron="20 * * * *") for name in names),
        make.schedule("idle", "disabled", cron="20 * * * *"),
        make.schedule("ended", cron="20 * * * *", end="2020-01-01T00:00:00Z"),
        make.schedule("later", cron="20 * * * *", start="2190-01-01T00:00:00Z"),
    )
    await world.sql("UPDATE scheduler.schedules SET status = name WHERE name IN ('paused', 'failed')")
    await world.sql("UPDATE scheduler.schedules SET enabled = false WHERE name = 'off'")
    answer = await load(world)
    assert by_minute(answer) == {20: 1} and answer.schedules == 1


async def test_one_whose_run_is_made_ahead_counts(world: Any, make: Any) -> None:
    """Its next slot lies beyond the day already."""
    await world.apply(make.job(), make.schedule(cron="20 * * * *"))
    await world.sql(
        "UPDATE scheduler.schedules SET next_run_at = now() + interval '3 days', last_run_at = now() + interval '1 minute'"
    )
    assert by_minute(await load(world)) == {20: 1}
    await world.sql("UPDATE scheduler.schedules SET last_run_at = now()")
    assert not (await load(world)).minutes


async def test_a_rule_that_cannot_be_read_stops_no_other(world: Any, make: Any) -> None:
    await world.apply(make.job(), *(make.schedule(name, cron="20 * * * *") for name in ("a", "b", "c")))
    await world.sql("""UPDATE scheduler.schedules SET spec = spec || '{"cron": "H(9-1) * * * *"}' WHERE name = 'a'""")
    await world.sql("""UPDATE scheduler.schedules SET spec = spec || '{"cron": "99 * * * *"}' WHERE name = 'b'""")
    answer = await load(world)
    assert by_minute(answer) == {20: 1} and answer.unreadable == 2


async def test_one_minute_with_all_that_fires_in_it(world: Any, make: Any) -> None:
    await world.apply(
        make.job(),
        make.schedule("b", cron="20 * * * *"),
        make.schedule("a", cron="*/10 * * * *"),
        make.schedule("drawn", cron="H * * * *"),
    )
    last = datetime.now(UTC).replace(minute=20, second=0, microsecond=0) + timedelta(hours=5)  # noqa: TID251
    answer = await load(world, minute=timestamp_to_pb(last + timedelta(seconds=30)), names=200)
    [found] = answer.crowded
    assert found.at.ToDatetime(tzinfo=UTC) == last and {"a", "b"} <= {one.schedule for one in found.named}
    for other in (last + timedelta(days=2), last - timedelta(days=2)):
        assert not (await load(world, minute=timestamp_to_pb(other))).crowded


@pytest.mark.parametrize("field", ["crowded", "names"])
async def test_limits_of_the_request(world: Any, field: str) -> None:
    with pytest.raises(TobanError, match=f"{field} is 1000; use 1 to"):
        await load(world, **{field: 1000})


async def test_a_reading_is_kept_for_some_seconds(world: Any, make: Any) -> None:
    clock = FakeClock()
    loads = ComingLoads(pool=world.pool, clock=clock)
    await world.apply(make.job(), make.schedule("a", cron="20 * * * *"))
    assert (await loads.get(seen=seen_uses)).schedules == 1
    await world.apply(make.schedule("b", cron="20 * * * *"))
    assert (await loads.get(seen=seen_uses)).schedules == 1
    await clock.advance(KEPT_SECONDS)
    # It is the answer once more, and the next one is made meanwhile.
    assert (await loads.get(seen=seen_uses)).schedules == 1
    await until_async(lambda: made(loads, 2))
    await world.apply(make.schedule("c", cron="20 * * * *"))
    await clock.advance(2 * KEPT_SECONDS)
    assert (await loads.get(seen=seen_uses)).schedules == 3, "too old to be an answer"


async def made(loads: ComingLoads, schedules: int) -> bool:
    return (await loads.get(seen=seen_uses)).schedules == schedules


async def test_more_work_than_one_reading_may_be_is_left_out(
    world: Any, make: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = FakeClock()
    loads = ComingLoads(pool=world.pool, clock=clock)
    await world.apply(make.job(), *(make.schedule(f"s{n}", cron=f"{n} * * * *") for n in range(5)))
    monkeypatch.setattr(coming_load, "MOST_WORK", coming_load.RULE_COST + 25)
    # Both readings are in the same hour.
    [row] = await world.sql("SELECT now() AS at")
    monkeypatch.setattr(coming_load.schedules_edit, "moment", AsyncMock(return_value=row["at"]))
    found = await loads.get(seen=seen_uses)
    assert (found.schedules, found.left_out) == (2, 3)
    # What is known of the hour costs no work again: the next reading goes on.
    await clock.advance(2 * KEPT_SECONDS)
    found = await loads.get(seen=seen_uses)
    assert (found.schedules, found.left_out) == (4, 1)


async def test_more_schedules_than_are_read_are_counted(world: Any, make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    await world.apply(make.job(), *(make.schedule(f"s{n}", cron="20 * * * *") for n in range(5)))
    monkeypatch.setattr(coming_load, "PAGE", 2)
    assert (await load(world)).schedules == 5
    monkeypatch.setattr(coming_load, "MOST_SCHEDULES", 3)
    found = await load(world)
    assert (found.schedules, found.left_out) == (3, 2)


class OnePerson:
    """Credentials of one person, who sees what a rule allows."""

    def __init__(self, selector: Selector) -> None:
        rule = Rule(id=1, effect=Effect.ALLOW, role=Role.VIEWER, selector=selector)
        self._person = Person(name="bob", rules=(rule,))

    async def person(self, secret: str, *, address: str) -> Person:
        return self._person


@pytest.mark.parametrize(
    ("selector", "names"),
    [
        (Selector(), ["backup", "mail", "tenant"]),
        (Selector(job="backup"), ["backup"]),
        (Selector(labels={"team": "web"}), ["mail", "tenant"]),
        (Selector(scope="account", scope_id="17"), ["tenant"]),
    ],
)
async def test_a_person_sees_their_own_load(world: Any, make: Any, selector: Selector, names: list[str]) -> None:
    mail = make.job("mail")
    mail["metadata"]["labels"] = {"team": "web"}
    await world.apply(
        make.job("backup"),
        mail,
        make.schedule("backup", "backup", cron="20 * * * *"),
        make.schedule("mail", "mail", cron="20 * * * *"),
        make.schedule("tenant", "mail", cron="20 * * * *", scope="account", scope_id="17"),
    )
    check = PeopleCheck(pool=world.pool, credentials=OnePerson(selector))  # type: ignore[arg-type]
    request = pb.GetComingLoadRequest()
    given = {CREDENTIAL: "x"}
    assert await check.admit(GET, caller=Caller("192.0.2.7", "admin-web"), about=lambda: request, given=given)
    answer = await load(world)
    assert by_minute(answer) == {20: len(names)} and answer.schedules == len(names)
    assert [one.schedule for one in answer.crowded[0].named] == names
    assert await seen_uses([Use("gone", "system", "")]) == (None if selector == Selector() else frozenset())


async def test_of_a_limited_person_some_jobs_are_looked_up(
    world: Any, make: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    await world.apply(*(make.job(f"j{n}") for n in range(4)))
    await world.apply(*(make.schedule(f"s{n}", f"j{n % 4}", cron="20 * * * *") for n in range(8)))
    monkeypatch.setattr(coming_load, "MOST_USES", 3)
    monkeypatch.setattr(person_check, "USES_AT_ONCE", 2)

    assert ((await load(world)).schedules, (await load(world)).left_out) == (8, 0)
    check = PeopleCheck(pool=world.pool, credentials=OnePerson(Selector(scope="system")))  # type: ignore[arg-type]
    caller = Caller("192.0.2.7", "admin-web")
    assert await check.admit(GET, caller=caller, about=pb.GetComingLoadRequest, given={CREDENTIAL: "x"})
    answer = await load(world)
    assert (answer.schedules, answer.left_out) == (6, 2) and by_minute(answer) == {20: 6}
