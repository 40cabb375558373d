"""FakeClock moves only when told, and wakes sleepers in the order of their times."""

import asyncio
from datetime import timedelta

from toban_testing.clock import START, FakeClock


async def test_sleepers_wake_in_order_and_within_the_span(fake_clock: FakeClock) -> None:
    woken: list[tuple[str, float]] = []

    async def sleeper(name: str, *spans: float) -> None:
        for span in spans:
            await fake_clock.sleep(span)
            woken.append((name, fake_clock.monotonic()))

    tasks = [asyncio.create_task(sleeper("late", 5)), asyncio.create_task(sleeper("twice", 1, 2))]
    await fake_clock.advance(4)
    assert woken == [("twice", 1.0), ("twice", 3.0)]
    assert fake_clock.sleepers == 1
    await fake_clock.advance(1)
    assert woken[-1] == ("late", 5.0)
    await asyncio.gather(*tasks)


async def test_clocks_move_together_and_the_wall_may_jump_alone(fake_clock: FakeClock) -> None:
    boot = fake_clock.boottime()
    await fake_clock.advance(90)
    assert fake_clock.wall() == START + timedelta(seconds=90)
    assert fake_clock.boottime() == boot + 90
    fake_clock.jump_wall(-3600)
    assert fake_clock.wall() == START + timedelta(seconds=90 - 3600)
    assert fake_clock.monotonic() == 90


async def test_a_cancelled_sleeper_is_not_counted(fake_clock: FakeClock) -> None:
    task = asyncio.create_task(fake_clock.sleep(5))
    await fake_clock.advance(0)
    assert fake_clock.sleepers == 1
    task.cancel()
    await fake_clock.advance(10)
    assert fake_clock.sleepers == 0


async def test_a_loop_whose_pause_is_less_than_a_float_step_does_not_stop_the_clock(fake_clock: FakeClock) -> None:
    await fake_clock.advance(1e6)
    turns = 0

    async def loop() -> None:
        nonlocal turns
        while True:
            # Far more than the yields of one `advance`: a clock that turns for ever in it fails here.
            assert turns < 10_000
            turns += 1
            await fake_clock.sleep(1e-12)

    task = asyncio.create_task(loop())
    await fake_clock.advance(1.0)
    assert fake_clock.monotonic() == 1e6 + 1.0 and turns > 0 and not task.done()
    task.cancel()
