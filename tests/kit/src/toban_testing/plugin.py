"""Fixtures over real servers, for every test in the repository (the root conftest.py loads this plugin).

A test marked `pg_versions` runs once on each installed major version of PostgreSQL: on the default one in the gate, on the others in `make all`.
"""

import functools
import gc
import os
from collections.abc import Generator, Iterable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from toban_stack import certs, ports
from toban_stack.servers import Endpoints
from toban_stack.servers.binaries import find_postgres, postgres_candidates
from toban_stack.servers.redis import DATABASES
from toban_store import roles
from toban_testing import bounds, fork_server
from toban_testing.bounds import at_most as at_most
from toban_testing.bounds import production_bounds as production_bounds
from toban_testing.clock import FakeClock
from toban_testing.limit_checker import check_limits
from toban_testing.postgres import as_role
from toban_testing.servers import SessionServers
from toban_testing.starter import end_with_parent, end_with_this_process

_redis_numbers = count(1)
# Folders of tests of whole stacks.
_STACKS = ("tests/e2e/", "tests/attack/")


def pytest_configure(config: pytest.Config) -> None:
    """Registers the marker (markers are strict), widens the bounds of waits for PostgreSQL, and lets services start as forks.

    A process of xdist ends at once with the one that started it.
    """
    config.addinivalue_line("markers", "pg_versions: runs on each installed major version of PostgreSQL")
    bounds.widen()
    fork_server.install()
    if hasattr(config, "workerinput"):
        end_with_parent()


def pytest_unconfigure() -> None:
    """Nothing is left of `pytest_configure`."""
    fork_server.end()


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Runs tests marked `pg_versions` once per major version; those other than the default one belong to the long gate."""
    if metafunc.definition.get_closest_marker("pg_versions") and "pg_major" in metafunc.fixturenames:
        cases = [
            pytest.param(major, id=f"pg{major}", marks=[] if major == _default_major() else [pytest.mark.long])
            for major in _majors()
        ]
        metafunc.parametrize("pg_major", cases, indirect=True)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None]:
    """What collection makes stays until the end: the search for garbage in it would be a third of collection's time, and go on in the tests."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests of whole stacks come first: they take longest and mostly wait, beside everything else.

    Those that share a stack are the last of them: it starts when no other one runs, and ends before other tests begin. The files of each package
    are spread over the run, so that those that wait (for an executor) run beside those that compute.
    """
    place = _spread(dict.fromkeys(_file(item.nodeid) for item in items))
    items.sort(
        key=lambda item: (
            not _of_stacks(item.nodeid),
            "shared_stack" in getattr(item, "fixturenames", ()),
            _of_stacks(item.nodeid) or place[_file(item.nodeid)],
        )
    )


def _spread(files: Iterable[str]) -> dict[str, float]:
    """Where in the whole, from 0 to 1, each file has its place, when those of each package keep their order and their distance."""
    packages: dict[str, list[str]] = {}
    for file in files:
        packages.setdefault("/".join(file.split("/")[:2]), []).append(file)
    return {file: number / len(those) for those in packages.values() for number, file in enumerate(those)}


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """With several processes (`make test`), a file stays in one of them, so that its module fixtures are made once.

    Files of whole stacks stay together by their folder: those of tests/e2e share a stack, those of tests/attack attack one. So two stacks run at a
    time. (`--dist loadgroup` cannot be used: pytest 9 ignores the name that xdist 3.8 gives a test, pytest-xdist#1386.)
    """
    from xdist.scheduler import LoadScopeScheduling

    class ByFile(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            path = _file(nodeid)
            return path.rpartition("/")[0] if _of_stacks(nodeid) else path

    return ByFile(config, log)


def _file(nodeid: str) -> str:
    return nodeid.partition("::")[0]


def _of_stacks(nodeid: str) -> bool:
    return nodeid.startswith(_STACKS)


@pytest.fixture(scope="session", autouse=True)
def _nothing_outlives_the_session(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Whatever a test starts ends at the latest with this process, however it ends."""
    end_with_this_process(tmp_path_factory.getbasetemp())


@pytest.fixture(scope="session")
def servers() -> Iterator[SessionServers]:
    """The session's servers; each starts at its first use."""
    session = SessionServers()
    yield session
    session.stop()


@pytest.fixture(scope="session")
def default_pg_major() -> int:
    """TOBAN_TEST_PG when it is set, else the version that `make up` uses."""
    return _default_major()


@functools.cache
def _majors() -> list[int]:
    return sorted({candidate.major for candidate in postgres_candidates()})


@functools.cache
def _default_major() -> int:
    wanted = os.environ.get("TOBAN_TEST_PG")
    return find_postgres(int(wanted) if wanted else None).major


@pytest.fixture
def pg_major(request: pytest.FixtureRequest, default_pg_major: int) -> int:
    """The major version of PostgreSQL for this test's databases."""
    return int(getattr(request, "param", default_pg_major))


@pytest.fixture
def pg_url(servers: SessionServers, pg_major: int) -> Iterator[str]:
    """The URL of an empty, migrated database; afterwards its limits are checked, and it is reset for reuse."""
    server = servers.postgres(pg_major)
    url = server.migrated()
    yield url
    try:
        check_limits(server.connection(url))
    finally:
        server.take_back(url)


@pytest.fixture
def pg_empty_url(servers: SessionServers, pg_major: int) -> Iterator[str]:
    """The URL of a fresh database without our schemas; dropped afterwards."""
    server = servers.postgres(pg_major)
    url = server.empty()
    yield url
    server.drop(url)


@pytest.fixture
def coordinator_url(pg_url: str) -> str:
    """The URL of the same database for the role of coordinators: tests of a coordinator's code use it, so that no right is missing."""
    return as_role(pg_url, roles.COORDINATOR)


@pytest.fixture
def log_archiver_url(pg_url: str) -> str:
    """The URL of the same database for the role of log-archivers."""
    return as_role(pg_url, roles.LOG_ARCHIVER)


@pytest.fixture
def redis_url(servers: SessionServers) -> str:
    """The URL of an empty Redis database that no other test of this session uses at the same time."""
    import redis

    number = 1 + next(_redis_numbers) % (DATABASES - 1)
    url = f"{servers.redis_url().rpartition('/')[0]}/{number}"
    with redis.Redis.from_url(url) as connection:
        connection.flushdb()
    return url


@pytest.fixture(scope="session")
def s3(servers: SessionServers) -> Endpoints:
    """S3 with its keys and an empty bucket (`s3_endpoint_url`, `s3_bucket`, `s3_access_key`, ...)."""
    return servers.s3()


@pytest.fixture(scope="session")
def tls(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a sub-folder of certificates for each service, issued by one CA. Valid for years, since tests set their clocks ahead."""
    folder = certs.make_all(tmp_path_factory.mktemp("tls"))
    for service in certs.SERVICES:
        certs.reissue(folder / "ca", service, folder / service, validity=certs.VALIDITY)
    return folder


@pytest.fixture
def free_port() -> int:
    """A free port on 127.0.0.1."""
    return ports.free_port()


@pytest.fixture
def fake_clock() -> FakeClock:
    """A clock that advances only by `await fake_clock.advance(seconds)`."""
    return FakeClock()
