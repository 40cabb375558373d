"""GetRunUsage asks the executor that runs the run now."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from toban_domain.errors import ErrorCode, TobanError
from toban_domain.usage import UsageSample
from toban_proto.v1 import coordinator_pb2 as pb

AT = datetime(2026, 11, 29, tzinfo=UTC)


async def test_samples_of_the_executor_or_why_there_are_none(world: Any, make: Any) -> None:
    incarnation = await world.executor()
    await world.apply(make.job())
    [run] = await world.start()

    async def usage() -> pb.RunUsage:
        found: pb.RunUsage = await world.reader.GetRunUsage(pb.GetRunRequest(id=run), None)
        assert found.run_id == run
        return found

    assert (await usage()).note == "no executor runs it now"
    await world.turn("assign", "dispatch")
    await world.report(world.key(run), world.now())
    assert (await usage()).note.startswith("its executor has no sample yet")
    world.orders.usages[world.key(run)] = [UsageSample(AT, 1.5, 4096, 2)]
    found = await usage()
    assert [(one.cpu_seconds, one.memory_bytes, one.processes) for one in found.samples] == [(1.5, 4096, 2)]
    assert found.samples[0].at.ToDatetime(UTC) == AT and found.note == ""
    world.orders.down.add(incarnation)
    assert (await usage()).note == "its executor does not answer: not there"
    await world.report(world.key(run), make.outcome())
    assert (await usage()).note == "no executor runs it now"
    with pytest.raises(TobanError) as refusal:
        await world.reader.GetRunUsage(pb.GetRunRequest(id=999_999), None)
    assert refusal.value.code is ErrorCode.RUN_NOT_FOUND
