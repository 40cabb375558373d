"""Who may read /healthz and /metrics of the admin port, and which files hold a token."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from toban_observability.admin_port import AdminPort
from toban_observability.admin_token import MAX_BYTES, SETTING, read_token
from toban_observability.health import Check, report
from toban_testing.admin_port import TOKEN, token_file

Get = Callable[..., Awaitable[tuple[int, str]]]
PROTECTED = ("/healthz", "/metrics")


@asynccontextmanager
async def served(file: Path | None) -> AsyncIterator[Get]:
    """`get(path, *headers)` gives status and whole answer."""
    port = AdminPort("127.0.0.1", 0, lambda: report({"upstream": Check("error", "node-7 refused")}), token_file=file)
    number = await port.start()

    async def get(path: str, *headers: str) -> tuple[int, str]:
        reader, writer = await asyncio.open_connection("127.0.0.1", number)
        writer.write("\r\n".join([f"GET {path} HTTP/1.1", *headers, "", ""]).encode("latin-1"))
        text = (await asyncio.wait_for(reader.read(), 60)).decode()
        writer.close()
        return int(text.split()[1]), text

    try:
        yield get
    finally:
        await port.stop()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return token_file(tmp_path)


@pytest.mark.parametrize("path", PROTECTED)
@pytest.mark.parametrize(
    "headers",
    [
        (),
        ("Authorization:",),
        ("Authorization: Bearer",),
        ("Authorization: Bearer wrong",),
        (f"Authorization: Bearer {TOKEN}x",),
        (f"Authorization: Bearer {TOKEN[:-1]}",),
        ("Authorization: Bearer t\xe9ken",),
        (f"Authorization: Basic {TOKEN}",),
        (f"Authorization: {TOKEN}",),
        (f"X-Authorization: Bearer {TOKEN}",),
    ],
)
async def test_without_the_token_nothing_is_told(file: Path, path: str, headers: tuple[str, ...]) -> None:
    async with served(file) as get:
        status, text = await get(path, *headers)
        assert status == 401 and "\r\nWWW-Authenticate: Bearer\r\n" in text
        assert f"the file that {SETTING} names" in text
        assert "node-7" not in text and "toban_" not in text and TOKEN not in text


@pytest.mark.parametrize("header", ["Authorization: Bearer {}", "authorization:bearer  {} "])
async def test_the_token_opens_both(file: Path, header: str) -> None:
    async with served(file) as get:
        status, text = await get("/healthz", header.format(TOKEN))
        assert status == 503 and "node-7 refused" in text and "WWW-Authenticate" not in text
        status, text = await get("/metrics", header.format(TOKEN))
        assert status == 200 and "toban_health_state" in text


async def test_liveness_and_readiness_need_no_token_and_tell_no_details(file: Path) -> None:
    for token in (file, None):
        async with served(token) as get:
            assert (await get("/livez"))[1].endswith("\r\n\r\nok\n")
            status, text = await get("/readyz")
            assert status == 503 and text.endswith("\r\n\r\nnot ready: see /healthz\n")


@pytest.mark.parametrize("path", PROTECTED)
async def test_without_the_setting_every_request_is_refused(path: str) -> None:
    async with served(None) as get:
        for headers in ((), (f"Authorization: Bearer {TOKEN}",), ("Authorization: Bearer ",)):
            status, text = await get(path, *headers)
            assert status == 401 and f"{SETTING} is not set: set it" in text and "node-7" not in text


async def test_a_new_token_counts_at_once_and_the_old_one_no_longer(file: Path) -> None:
    async with served(file) as get:
        assert (await get("/metrics", f"Authorization: Bearer {TOKEN}"))[0] == 200
        await asyncio.to_thread(file.write_text, "another\n")
        assert (await get("/metrics", f"Authorization: Bearer {TOKEN}"))[0] == 401
        assert (await get("/metrics", "Authorization: Bearer another"))[0] == 200


async def test_a_file_that_goes_bad_admits_no_request_until_it_is_good_again(
    file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with served(file) as get:
        for spoil in (file.unlink, lambda: file.write_text(""), lambda: file.chmod(0o644)):
            spoil()
            for given in (TOKEN, ""):
                status, text = await get("/healthz", f"Authorization: Bearer {given}")
                assert status == 401 and f"the file of {SETTING} cannot be used" in text and str(file) not in text
            token_file(file.parent).chmod(0o600)
        assert (await get("/healthz", f"Authorization: Bearer {TOKEN}"))[0] == 503
    said = [record for record in caplog.records if "no request with a token" in record.getMessage()]
    assert len(said) == 1, "six refusals, one line of the log"


@pytest.mark.parametrize(
    ("content", "mode", "problem"),
    [
        ("", 0o600, "is empty; write a random token into it"),
        (" \n", 0o600, "is empty; write a random token into it"),
        ("two words", 0o600, "is not one word; write a random token into it"),
        ("x" * (MAX_BYTES + 1), 0o600, "is not one word; write a random token into it"),
        (TOKEN, 0o644, "has mode 0644, which gives rights to every account; chmod 600 it"),
        (TOKEN, 0o602, "has mode 0602, which gives rights to every account; chmod 600 it"),
    ],
)
def test_a_file_that_holds_no_token_for_this_process_alone(file: Path, content: str, mode: int, problem: str) -> None:
    file.write_text(content)
    file.chmod(mode)
    with pytest.raises(ValueError, match=f"^{file} {problem}"):
        read_token(file)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"cannot be read .*; name a file with the token"):
        read_token(tmp_path / "none")


@pytest.mark.parametrize("mode", [0o600, 0o400, 0o440, 0o640])
def test_the_group_may_read_it_as_in_mounts_of_kubernetes(file: Path, mode: int) -> None:
    file.chmod(mode)
    assert read_token(file) == TOKEN.encode()
