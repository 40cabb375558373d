"""A coordinator whose clock is off fires nothing, and says so."""

from typing import Any

import pytest

from toban_domain.errors import ErrorCode, TobanError


@pytest.mark.parametrize("skew", [2.1, -3600.0])
async def test_a_clock_that_is_off_fires_nothing(world: Any, make: Any, skew: float) -> None:
    await world.apply(make.job(), make.schedule())
    await world.steady()
    world.time.skew_seconds = skew
    with pytest.raises(TobanError, match="s off PostgreSQL's") as caught:
        await world.loops["fire"]._work()
    assert caught.value.code is ErrorCode.CONFIG_INVALID
    assert await world.sql("SELECT 1 FROM scheduler.job_runs") == []
    world.time.skew_seconds = 1.9
    await world.turn("fire")
    assert await world.sql("SELECT 1 FROM scheduler.job_runs") != []
