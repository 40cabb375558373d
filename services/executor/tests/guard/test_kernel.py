"""The filter of calls, as the kernel reads it, for programs of each kind of processor."""

import errno
import struct

import pytest

from toban_executor.guard import kernel

ALLOWED, NO_SUCH_CALL = 0x7FFF0000, 0x00050000 | errno.ENOSYS
X86_64, I386, AARCH64, ARM, RISCV64 = 0xC000003E, 0x40000003, 0xC00000B7, 0x40000028, 0xC00000F3
X32 = 0x40000000


def verdict(kind: int, number: int) -> int:
    """What the program answers for a call, by the rules of the kernel for these instructions."""
    lines = list(struct.iter_unpack("=HBBI", kernel._without_key_calls()))
    tests = {0x15: int.__eq__, 0x35: int.__ge__, 0x25: int.__gt__}
    at = loaded = 0
    while True:
        code, when, otherwise, value = lines[at]
        at += 1
        if code == 0x20:
            loaded = {0: number, 4: kind}[value]
        elif code == 0x54:
            loaded &= value
        elif code == 0x06:
            return int(value)
        else:
            at += when if tests[code](loaded, value) else otherwise


@pytest.mark.parametrize(
    ("kind", "first"), [(X86_64, 248), (X86_64, X32 | 248), (I386, 286), (AARCH64, 217), (ARM, 309)]
)
def test_the_three_calls_for_keys_do_not_exist(kind: int, first: int) -> None:
    assert [verdict(kind, first + step) for step in range(3)] == [NO_SUCH_CALL] * 3
    assert {verdict(kind, number) for number in (0, first - 1, first + 3, 1000)} == {ALLOWED}


def test_programs_of_other_processors_are_let_alone() -> None:
    assert {verdict(RISCV64, number) for number in range(500)} == {ALLOWED}
