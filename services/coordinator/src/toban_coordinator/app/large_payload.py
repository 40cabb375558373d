"""Checks of large payloads against large schemas, in a process of their own: the library holds the interpreter's lock while it checks."""

from __future__ import annotations

import asyncio
import hashlib
import json
import math
import resource
import sys
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

from cachetools import LRUCache, TTLCache

from toban_coordinator.app.payload_schema import PayloadSchema
from toban_domain.errors import ErrorCode, TobanError
from toban_runtime.clock import Clock, SystemClock

# CPU time of one check: its verdict must not depend on how busy the machine is.
LIMIT_SECONDS = 3
LIMIT_BYTES = 1 << 30
# How long the process of one check may take in all, seconds. After that nothing is known of the payload.
WAIT_SECONDS = 10.0
AT_ONCE = 2
# For how long a schema whose check did not end is not tried again, seconds: a person that sends one after another has no use of both places.
SLOW_SECONDS = 60.0
# More than one call can need: it is repeated until all are known.
KEPT_VERDICTS = 6_000
_MODULE = "toban_coordinator.app.large_payload"
_VALID = "valid"
_INVALID = "invalid"
T = TypeVar("T")


class Unfinished(TobanError):
    """A check that was ended: nothing is known of the payload."""


class CheckPending(TobanError):
    """The payload is too large to be checked in the event loop. It ends a transaction, which does not wait for so long."""

    def __init__(self, large: LargePayloads, key: bytes, schema: PayloadSchema, payload: Any) -> None:
        super().__init__(ErrorCode.UNAVAILABLE, f"the {schema.subject} is not checked yet; try again")
        self._task = (key, schema, payload)
        self._large = large

    async def check(self) -> None:
        """Keep the verdict, which the next try finds."""
        await self._large.check(*self._task)


async def with_large_checks(work: Callable[[], Awaitable[T]]) -> T:
    """Runs `work`, and again after each large check that it comes upon. It opens its transactions itself."""
    while True:
        try:
            return await work()
        except CheckPending as pending:
            await pending.check()


class LargePayloads:
    """At most two checks at once, each bounded in CPU time and memory. Verdicts are kept by digests of schema and payload."""

    def __init__(
        self, *, limit_seconds: int = LIMIT_SECONDS, wait_seconds: float = WAIT_SECONDS, clock: Clock | None = None
    ) -> None:
        self._limit_seconds = limit_seconds
        self._wait_seconds = wait_seconds
        self._slots: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Semaphore] = WeakKeyDictionary()
        self._verdicts: LRUCache[bytes, TobanError | None] = LRUCache(KEPT_VERDICTS)
        self._slow: TTLCache[bytes, TobanError] = TTLCache(
            KEPT_VERDICTS, SLOW_SECONDS, timer=(clock or SystemClock()).monotonic
        )

    def verdict(self, schema: PayloadSchema, payload: Any, text: str) -> TobanError | None:
        """None when the payload fits, else PAYLOAD_INVALID; `text` is its canonical form. Raises CheckPending until it is checked."""
        key = hashlib.sha256(schema.digest + text.encode()).digest()
        if key in self._verdicts:
            return self._verdicts[key]
        if slow := self._slow.get(schema.digest):
            return slow
        raise CheckPending(self, key, schema, payload)

    async def check(self, key: bytes, schema: PayloadSchema, payload: Any) -> None:
        """Keeps the verdict, for a check that did not end that of its schema. Raises OSError when the machine has no process for it."""
        slots = self._slots.setdefault(asyncio.get_running_loop(), asyncio.Semaphore(AT_ONCE))
        async with slots:
            if key not in self._verdicts and schema.digest not in self._slow:
                try:
                    self._verdicts[key] = await self._judge(schema, payload)
                except Unfinished as error:
                    self._slow[schema.digest] = error

    async def _judge(self, schema: PayloadSchema, payload: Any) -> TobanError | None:
        task = {
            "schema": dict(schema.source),
            "payload": payload,
            "subject": schema.subject,
            "hides_values": schema.hides_values,
        }
        answer = await self._ask(json.dumps(task).encode())
        verdict, _, rest = answer.decode(errors="replace").partition("\n")
        if verdict == _VALID:
            return None
        if verdict == _INVALID:
            return _mistakes_from(rest)
        raise Unfinished(
            ErrorCode.PAYLOAD_INVALID,
            f"checking the {schema.subject} against `{schema.subject}_schema` of the job takes more than {self._limit_seconds} s of CPU time; "
            "simplify the schema (alternatives within alternatives multiply), or make the payload smaller",
        )

    async def _ask(self, task: bytes) -> bytes:
        """What the child has written when it ends."""
        argv = (sys.executable, "-I", "-m", _MODULE, str(self._limit_seconds))
        child = await asyncio.create_subprocess_exec(
            *argv, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
        )
        assert child.stdin is not None and child.stdout is not None
        received = bytearray()
        try:
            async with asyncio.timeout(self._wait_seconds):
                child.stdin.write(task)
                child.stdin.close()
                while part := await child.stdout.read(1 << 16):
                    received += part
        except TimeoutError:
            raise Unfinished(
                ErrorCode.UNAVAILABLE,
                f"the payload could not be checked within {self._wait_seconds:g} s: this machine is too busy; try again in a minute, "
                "or simplify the schema",
            ) from None
        except ConnectionError:
            # The child has ended before it read all: what it has written counts.
            pass
        finally:
            if child.returncode is None:
                child.kill()
            await child.wait()
        return bytes(received)


PROCESS_WIDE = LargePayloads()


def _mistakes_from(text: str) -> TobanError:
    try:
        found = json.loads(text)
        return TobanError(ErrorCode.PAYLOAD_INVALID, found["message"], detail=found["detail"])
    except (ValueError, LookupError):
        return TobanError(ErrorCode.PAYLOAD_INVALID, "the payload does not fit `payload_schema` of the job")


def main() -> None:
    """The child: reads schema and payload from stdin, writes the verdict, then the first mistake."""
    resource.setrlimit(resource.RLIMIT_AS, (LIMIT_BYTES, LIMIT_BYTES))
    # The kernel ends the process at the limit. What the imports took does not count.
    used = resource.getrusage(resource.RUSAGE_SELF)
    seconds = math.ceil(used.ru_utime + used.ru_stime) + int(sys.argv[1])
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
    task = json.load(sys.stdin)
    schema = PayloadSchema(task["schema"], task["subject"], hides_values=task["hides_values"])
    if schema.is_valid(task["payload"]):
        _write(_VALID)
        return
    _write(_INVALID)
    error = schema.explain(task["payload"], every=False)
    _write(json.dumps({"message": error.message, "detail": error.detail}))


def _write(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
