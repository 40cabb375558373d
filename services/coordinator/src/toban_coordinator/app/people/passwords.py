"""Passwords: Argon2id, few at a time. A hash takes 64 MiB, so the number of hashes at once bounds what sign-ins can take from a small machine."""

from __future__ import annotations

import asyncio
from base64 import b64encode
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from argon2 import PasswordHasher
from argon2.exceptions import InvalidHashError, VerifyMismatchError

from toban_domain.errors import ErrorCode, TobanError
from toban_observability import metrics

# RFC 9106, second recommendation, with one lane: calls run beside each other.
TIME_COST, MEMORY_KIB, LANES = 3, 64 * 1024, 1
AT_ONCE = 2
# Calls that may wait for a thread; further ones are refused.
WAITING = 32
SHORTEST, LONGEST = 12, 256

T = TypeVar("T")
_waiting = metrics.gauge("toban_password_checks_open", "Password hashes in progress or waiting for a thread.", ())


class Passwords:
    """Makes and verifies hashes in threads of its own."""

    def __init__(self, *, memory_kib: int = MEMORY_KIB, time_cost: int = TIME_COST) -> None:
        self._hasher = PasswordHasher(time_cost=time_cost, memory_cost=memory_kib, parallelism=LANES)
        self._threads = ThreadPoolExecutor(AT_ONCE, thread_name_prefix="password")
        self._open = 0
        # Of no password, with the parameters of new hashes: to check it takes as long as any, also the first time.
        self._unknown_user = f"$argon2id$v=19$m={memory_kib},t={time_cost},p={LANES}${_zeros(16)}${_zeros(32)}"

    async def hash(self, password: str) -> str:
        """A new hash, with its parameters in it. Raises RESOURCE_EXHAUSTED."""
        return await self._run(lambda: self._hasher.hash(password))

    async def verify(self, stored: str | None, password: str) -> bool:
        """Whether it is the password; without a stored hash the time is the same and the answer no. Raises RESOURCE_EXHAUSTED."""
        return await self._run(lambda: self._matches(stored or self._unknown_user, password)) and stored is not None

    def require_room(self) -> None:
        """Raises RESOURCE_EXHAUSTED when the next call would be refused."""
        if self._open >= AT_ONCE + WAITING:
            raise TobanError(ErrorCode.RESOURCE_EXHAUSTED, "too many sign-ins at once; try again in a few seconds")

    def is_outdated(self, stored: str) -> bool:
        """Whether a hash has other parameters than new ones."""
        return self._hasher.check_needs_rehash(stored)

    def close(self) -> None:
        """Ends the threads."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _matches(self, stored: str, password: str) -> bool:
        try:
            return self._hasher.verify(stored, password)
        except (VerifyMismatchError, InvalidHashError):
            return False

    async def _run(self, work: Callable[[], T]) -> T:
        self.require_room()
        self._open += 1
        _waiting.set(self._open)
        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, work)
        finally:
            self._open -= 1
            _waiting.set(self._open)


def _zeros(count: int) -> str:
    return b64encode(bytes(count)).decode().rstrip("=")


def check_password(password: str, user: str) -> None:
    """Raises INVALID_ARGUMENT for a password that is too easy or too long; length counts more than kinds of characters."""
    if not SHORTEST <= len(password) <= LONGEST:
        raise _weak(f"has {len(password)} characters; use {SHORTEST} to {LONGEST}")
    if len(set(password)) < 5:
        raise _weak("repeats a few characters; use at least 5 different ones")
    if user and user.lower() in password.lower() and len(password) < len(user) + SHORTEST:
        raise _weak("is little more than the user's name; choose another one")


def _weak(problem: str) -> TobanError:
    return TobanError(ErrorCode.INVALID_ARGUMENT, f"the password {problem}")
