"""Packing and the format of objects: pure, over many inputs."""

from dataclasses import dataclass
from datetime import date
from hashlib import sha256

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from toban_log_archiver.decide.object_packing import Packer
from toban_log_archiver.decide.tlog import (
    FOOTER_BYTES,
    Frame,
    Index,
    TlogInvalid,
    index_length,
    key_of,
    read_index,
    trailer,
)

DAY = date(2026, 11, 1)


@dataclass(frozen=True)
class Sized:
    name: int
    byte_length: int


@given(st.lists(st.lists(st.integers(1, 50), max_size=6), max_size=12), st.integers(1, 100))
def test_every_chunk_is_in_one_pack_in_order_and_packs_are_bounded(attempts: list[list[int]], target: int) -> None:
    chunks = [[Sized(100 * a + c, size) for c, size in enumerate(sizes)] for a, sizes in enumerate(attempts)]
    packer: Packer[Sized] = Packer(target)
    packs = [pack for attempt in chunks for pack in packer.add(attempt)]
    packs += list(packer)
    assert [chunk for pack in packs for chunk in pack] == [chunk for attempt in chunks for chunk in attempt]
    sums = [sum(chunk.byte_length for chunk in pack) for pack in packs]
    assert all(size <= target or len(pack) == 1 for size, pack in zip(sums, packs, strict=True))
    # None was closed although the next chunk had room in it.
    assert all(size + after[0].byte_length > target for size, after in zip(sums, packs[1:], strict=False))
    assert list(packer) == []


def frames(count: int) -> list[Frame]:
    return [
        Frame(
            run_id=1 + number // 4,
            token=(1 << 62) + number // 2,
            stream=number % 3 + 1,
            seq_from=number + 1,
            seq_to=number + 5,
            line_count=5,
            byte_offset=10 * number,
            byte_length=10,
            sha256=sha256(b"%d" % number).digest(),
        )
        for number in range(count)
    ]


def opened(end: bytes) -> Index:
    footer = end[-FOOTER_BYTES:]
    length = index_length(footer)
    return read_index(end[-FOOTER_BYTES - length : -FOOTER_BYTES], footer)


@given(st.integers(1, 30))
def test_an_index_comes_back_as_it_was(count: int) -> None:
    index = Index(log_day=DAY, frames=frames(count))
    found = opened(b"frames" + trailer(index))
    assert (found.log_day, list(found.frames)) == (DAY, index.frames)


@given(st.data())
def test_a_damaged_end_is_never_taken_for_an_index(data: st.DataObject) -> None:
    end = bytearray(trailer(Index(log_day=DAY, frames=frames(3))))
    # The eight bytes before the index belong to zstd.
    at = data.draw(st.integers(8, len(end) - 1))
    end[at] ^= data.draw(st.integers(1, 255))
    with pytest.raises(TlogInvalid):
        opened(bytes(end))


def test_zstd_skips_the_index() -> None:
    texts = [b"first", b"second"]
    body = b"".join(map(zstandard.compress, texts)) + trailer(Index(log_day=DAY, frames=frames(2)))
    assert zstandard.ZstdDecompressor().stream_reader(body, read_across_frames=True).read() == b"firstsecond"


def test_the_name_is_the_content_s() -> None:
    digest = sha256(b"x").digest()
    assert key_of(DAY, digest) == f"logs/v1/2026-11-01/{digest.hex()}.tlog"
