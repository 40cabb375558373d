"""One Redis, however it is reached, with every call bounded: Redis may be gone at any time and that costs nothing but speed."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any
from urllib.parse import SplitResult, parse_qs, unquote, urlsplit

from toban_domain.errors import ErrorCode, TobanError
from toban_observability.logs import get_logger
from toban_observability.optional_imports import without
from toban_runtime.backoff import Backoff
from toban_runtime.clock import Clock

# For metrics of its own, which nothing here switches on.
with without("opentelemetry.sdk.metrics"):
    from redis.asyncio import Redis
    from redis.asyncio.cluster import ClusterNode, RedisCluster
    from redis.asyncio.retry import Retry
    from redis.asyncio.sentinel import MasterNotFoundError, Sentinel
    from redis.backoff import NoBackoff
    from redis.exceptions import RedisClusterException, RedisError

CALL_SECONDS = 0.3
"""Bound of every call."""
LOG_EVERY_SECONDS = 5.0
_PORT = 6379
_SENTINEL_PORT = 26379
_LOGIN = ("username", "password")
_CA = "ssl_ca_certs"
_CERTIFICATE = re.compile(r"^-----BEGIN (TRUSTED )?CERTIFICATE-----", re.MULTILINE)
# The driver's own family has none for a cluster of which no node answers.
_FAILURES = (RedisError, RedisClusterException, OSError, TimeoutError, EOFError)
# A CA that was recreated under its old name shows as a signature that fails.
_UNTRUSTED = (
    "self-signed certificate",
    "unable to get local issuer",
    "unable to get issuer",
    "certificate signature failure",
)
_log = get_logger(__name__)


class RedisGone(TobanError):
    """Redis gave no usable answer within the bound, or did not a moment ago and is not asked again yet."""

    def __init__(self, why: str) -> None:
        super().__init__(ErrorCode.UNAVAILABLE, f"Redis is not reachable: {why}")


def open_client(url: str) -> Any:
    """A client of redis://, rediss://, redis+sentinel://host,host/service[/db] or redis+cluster://host,host. Connects lazily.

    `USER:PASSWORD@` before the hosts is for Redis; sentinels that ask for one too get `?sentinel_username=…&sentinel_password=…`. With rediss
    every connection is TLS, to the sentinels as well; `?ssl_ca_certs=PATH` names an authority of your own.
    Raises TobanError CONFIG_INVALID when the URL has another form or PATH holds no certificate.
    """
    try:
        return _client(url, urlsplit(url))
    except (ValueError, RedisError) as error:
        # Neither tells its words on: a password that is not escaped may be in them.
        raise _bad_url("not HOST:PORT; special characters of a password need %XX") from error


def _client(url: str, parts: SplitResult) -> Any:
    base, _, kind = parts.scheme.partition("+")
    if base not in ("redis", "rediss") or kind not in ("", "sentinel", "cluster"):
        raise _bad_url("use redis://, rediss://, redis+sentinel:// or redis+cluster://")
    _check_authority(parts, base == "rediss")
    if not kind:
        return _single(url)
    if kind == "sentinel":
        return _sentinel(parts, base == "rediss")
    nodes = [ClusterNode(host, port) for host, port in _hosts(parts, _PORT)]
    query = _query(parts, _LOGIN)
    return RedisCluster(startup_nodes=nodes, **_tls(base == "rediss", query), **_login(parts, query), **_options())


@cache
def script(name: str) -> str:
    """The text of a Lua script of this package; read once, since every batch of runs is marked by one."""
    return resources.files("toban_fencing").joinpath("lua", f"{name}.lua").read_text(encoding="utf-8")


class RedisLink:
    """Calls with a bound and a memory of failure: while Redis is down most calls fail at once and one now and then tries."""

    def __init__(self, *, client: Any, clock: Clock) -> None:
        self._client = client
        self._clock = clock
        self._scripts: dict[str, Any] = {}
        self._backoff = Backoff(base=0.1, cap=1.0, jitter=0.2)
        self._failures = 0
        self._next_try = 0.0
        self._logged_at: float | None = None

    @property
    def up(self) -> bool:
        """False from the first failed call to the next good one."""
        return self._failures == 0

    async def call(self, make: Callable[[Any], Awaitable[Any]]) -> Any:
        """`await make(client)` within CALL_SECONDS; raises RedisGone for every failure."""
        if self._failures and self._clock.monotonic() < self._next_try:
            raise RedisGone("waiting for the next try")
        try:
            async with asyncio.timeout(CALL_SECONDS):
                answer = await make(self._client)
        except _FAILURES as error:
            why = _words(error)
            self._failed(why)
            raise RedisGone(why) from error
        self._worked()
        return answer

    async def run(self, name: str, key: str, *args: str | int) -> Any:
        """Run a script of this package on one key."""

        def evaluate(client: Any) -> Awaitable[Any]:
            loaded = self._scripts.get(name)
            if loaded is None:
                loaded = self._scripts[name] = client.register_script(script(name))
            result: Awaitable[Any] = loaded(keys=[key], args=list(args))
            return result

        return await self.call(evaluate)

    async def close(self) -> None:
        """Close the connections; errors do not matter any more."""
        try:
            async with asyncio.timeout(CALL_SECONDS):
                await self._client.aclose()
        except _FAILURES:
            pass

    def _failed(self, why: str) -> None:
        self._failures += 1
        now = self._clock.monotonic()
        wait = self._backoff.delay(self._failures)
        self._next_try = now + wait
        if self._logged_at is None or now - self._logged_at >= LOG_EVERY_SECONDS:
            _log.warning(
                "redis does not answer",
                attempt=self._failures,
                error=why,
                next_try_seconds=round(wait, 3),
            )
            self._logged_at = now

    def _worked(self) -> None:
        if self._failures:
            _log.info("redis answers again", failed_calls=self._failures)
        self._failures, self._logged_at = 0, None


def _options() -> dict[str, Any]:
    return {
        "decode_responses": True,
        "protocol": 2,
        "socket_timeout": CALL_SECONDS,
        "socket_connect_timeout": CALL_SECONDS,
        "retry": Retry(NoBackoff(), 0),
    }


def _words(error: BaseException) -> str:
    told = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    if any(words in told for words in _UNTRUSTED):
        told += f" ({_CA}=FILE in SCHEDULER_REDIS_URL names the authority of its certificate)"
    return told


def _single(url: str) -> Any:
    client: Any = Redis.from_url(url, **_options())
    try:
        # Connects to nothing; a parameter that the driver does not know would show with the first call only.
        client.connection_pool.make_connection()
    except TypeError as error:
        raise _bad_url(f"unknown parameter {str(error).rpartition(' ')[2]}") from error
    return client


class _BehindSentinels(Redis):
    """The master, with the connections that ask who it is."""

    async def aclose(self, close_connection_pool: bool | None = None) -> None:
        """Close those as well: the driver leaves them open."""
        await super().aclose(close_connection_pool)
        pool: Any = self.connection_pool
        for sentinel in pool.sentinel_manager.sentinels:
            await sentinel.aclose()


class _Sentinels(Sentinel):
    """Asks all at once: the driver asks one after the other, and one that is gone, as on the machine of the old master, takes a whole call's time."""

    async def discover_master(self, service_name: str) -> Any:
        """(address, port) from whichever sentinel answers first; raises MasterNotFoundError with what each says."""
        asked = [asyncio.ensure_future(self._ask(sentinel, service_name)) for sentinel in self.sentinels]
        told = set()
        try:
            for answer in asyncio.as_completed(asked):
                try:
                    return await answer
                except (RedisError, OSError) as error:
                    told.add(str(error))
        finally:
            for task in asked:
                task.cancel()
            await asyncio.gather(*asked, return_exceptions=True)
        raise MasterNotFoundError(f"no sentinel names a master of {service_name!r}: {'; '.join(sorted(told))}")

    async def _ask(self, sentinel: Any, service_name: str) -> Any:
        state = (await sentinel.sentinel_masters()).get(service_name)
        if state is None or not self.check_master_state(state, service_name):
            raise MasterNotFoundError("it knows none that is up")
        return state["ip"], state["port"]


def _sentinel(parts: SplitResult, tls: bool) -> Any:
    service, _, db = parts.path.strip("/").partition("/")
    if not service or (db and not db.isdecimal()):
        raise _bad_url(
            "redis+sentinel:// needs the service, and may have a database: redis+sentinel://host:26379/mymaster/0"
        )
    query = _query(parts, (*_LOGIN, *(f"sentinel_{name}" for name in _LOGIN)))
    secure = _tls(tls, query)
    of_sentinels = {**_options(), **secure}
    of_sentinels |= {name: query[f"sentinel_{name}"] for name in _LOGIN if f"sentinel_{name}" in query}
    sentinel: Any = _Sentinels(_hosts(parts, _SENTINEL_PORT), sentinel_kwargs=of_sentinels)  # type: ignore[no-untyped-call]
    return sentinel.master_for(
        service, redis_class=_BehindSentinels, db=int(db or 0), **secure, **_login(parts, query), **_options()
    )


def _hosts(parts: SplitResult, default: int) -> list[tuple[str, int]]:
    found = []
    for piece in parts.netloc.rpartition("@")[2].split(","):
        host, _, port = piece.rpartition(":") if ":" in piece else (piece, "", str(default))
        if not host or not port.isdecimal():
            raise _bad_url(f"{piece!r} is not host:port")
        found.append((host, int(port)))
    return found


def _login(parts: SplitResult, query: Mapping[str, str]) -> dict[str, Any]:
    user, _, password = parts.netloc.rpartition("@")[0].partition(":")
    found = {"username": unquote(user), "password": unquote(password)}
    found |= {name: query[name] for name in _LOGIN if name in query}
    return {name: value for name, value in found.items() if value}


def _query(parts: SplitResult, names: Iterable[str]) -> dict[str, str]:
    """The parameters after `?`; one that means nothing here is a typing error."""
    found = {name: values[-1] for name, values in parse_qs(parts.query).items()}
    strange = sorted(found.keys() - {*names, _CA})
    if strange:
        raise _bad_url(f"unknown parameter {strange[0]!r}; one of {', '.join(sorted((*names, _CA)))}")
    return found


def _tls(wanted: bool, query: Mapping[str, str]) -> dict[str, Any]:
    return {"ssl": wanted, **({_CA: query[_CA]} if _CA in query else {})}


def _check_authority(parts: SplitResult, tls: bool) -> None:
    """The driver would not say which file it is that is missing."""
    for path in parse_qs(parts.query).get(_CA, ()):
        if not tls:
            raise _bad_url(f"{_CA} is for TLS: rediss instead of redis")
        try:
            text = Path(path).read_text(encoding="ascii", errors="replace")
        except OSError as error:
            raise _bad_url(f"{_CA}: {path} cannot be read: {error.strerror}") from error
        if not _CERTIFICATE.search(text):
            raise _bad_url(f"{_CA}: there is no certificate in {path}, which has to be PEM")


def _bad_url(why: str) -> TobanError:
    return TobanError(ErrorCode.CONFIG_INVALID, f"SCHEDULER_REDIS_URL: {why}")
