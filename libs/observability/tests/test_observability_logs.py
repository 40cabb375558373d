"""Log lines: one event a line, and never a secret."""

import io
import json
import logging
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toban_observability.logs import get_logger, setup_logging
from toban_observability.masking import MASK, mask_event, mask_text, one_line

CANARY = "hunter2-canary"


@pytest.fixture(autouse=True)
def restored() -> Iterator[None]:
    """pytest's own handlers come back after each test."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:], root.level = handlers, level
    setup_logging("toban", "json", "info", io.StringIO())
    root.handlers[:], root.level = handlers, level


def lines(fmt: str, *, level: str = "info") -> tuple[io.StringIO, Any]:
    out = io.StringIO()
    setup_logging("coordinator", fmt, level, out)
    return out, get_logger("tests")


def test_json_lines_name_service_level_time_and_values() -> None:
    out, log = lines("json")
    log.info("run started", run_id=7, token=2**62, labels={"zone": "a"})
    event = json.loads(out.getvalue())
    assert event["event"] == "run started"
    assert (event["service"], event["level"], event["logger"]) == ("coordinator", "info", "tests")
    assert (event["run_id"], event["token"], event["labels"]) == (7, 2**62, {"zone": "a"})
    assert event["timestamp"].endswith("Z")


@pytest.mark.parametrize("fmt", ["json", "console"])
def test_line_breaks_and_terminal_codes_forge_nothing(fmt: str) -> None:
    out, log = lines(fmt)
    log.warning("bad\r\n2030 [info] forged", value="a\nb\x1b[2Jc\u2028d\x85e", names=["x\ny"])
    assert len(out.getvalue().splitlines()) == 1
    assert "\x1b[2J" not in out.getvalue()


@pytest.mark.parametrize("fmt", ["json", "console"])
def test_secrets_never_appear(fmt: str) -> None:
    out, log = lines(fmt)
    named = ("password", "s3_secret_key", "key", "Authorization", "incarnation_key", "token_value", "api_key", "cookie")
    for name in named:
        log.info("x", **{name: CANARY})
        log.info("x", nested={"deeper": [{name: CANARY}]})
        log.info("x", raw={name: CANARY.encode()})
    log.info("x", token=CANARY)
    log.info(f"connecting to postgresql://u:{CANARY}@db/x", url=f"redis+sentinel://:{CANARY}@a:1,b:2/m")
    log.info("x", dsn=f"host=db password={CANARY} user=u", query=f"a=1&secret={CANARY}&b=2")
    logging.getLogger("library").warning("failed for %s", f"https://u:{CANARY}@host/")
    try:
        raise ConnectionError(f"postgresql://u:{CANARY}@db/x refused; password='{CANARY}'")
    except ConnectionError:
        log.exception("no database")
        logging.getLogger("library").exception("no database")
    assert CANARY not in out.getvalue()
    assert out.getvalue().count(MASK) >= 3 * len(named)


@pytest.mark.parametrize(
    "text", ["the Secret of that service (x)", "no password for user ada", "an API key that ended"]
)
def test_sentences_about_secrets_keep_their_words(text: str) -> None:
    assert mask_text(text) == text


@pytest.mark.parametrize("text", ["Authorization: Bearer {}", "bearer: {}", "api_key={}", "PASSWORD: {}, x"])
def test_values_in_text_are_masked(text: str) -> None:
    assert mask_text(text.format(CANARY)) == text.format(MASK)


def test_a_traceback_is_kept() -> None:
    out, log = lines("json")
    try:
        raise ValueError("why")
    except ValueError:
        log.exception("failed")
    assert "ValueError: why" in json.loads(out.getvalue())["exception"]


def test_levels_and_the_automatic_format() -> None:
    out, log = lines("auto", level="warning")
    log.info("quiet")
    log.warning("loud")
    assert [json.loads(line)["event"] for line in out.getvalue().splitlines()] == ["loud"]


def test_fencing_tokens_stay_and_secret_tokens_do_not() -> None:
    assert mask_event(None, "", {"token": 5, "key": None})["token"] == 5
    assert mask_event(None, "", {"token": "tbn_abc"})["token"] == MASK


def test_masking_bounds_its_depth() -> None:
    deep: dict[str, Any] = {}
    deep["self"] = deep
    assert MASK in str(mask_event(None, "", {"deep": deep}))


@given(st.text())
def test_one_line_is_one_printable_line(text: str) -> None:
    assert one_line(text).isprintable()


@given(st.text(alphabet=st.characters(exclude_characters="/@'\" \t\n\r", exclude_categories=["Z", "C"]), min_size=1))
def test_credentials_of_urls_are_masked(secret: str) -> None:
    assert mask_text(f"see amqp://u:{secret}@host/x") == f"see amqp://{MASK}@host/x"


def test_repeated_messages_of_a_library_are_throttled() -> None:
    """As psycopg's pools do with each try to connect, several a second and pool."""
    out, _ = lines("json")
    pool = logging.getLogger("psycopg.pool")

    def tries(at: float, name: str = "toban/grants") -> None:
        record = pool.makeRecord(pool.name, logging.WARNING, "f", 1, "error connecting in %r: %s", (name, "gone"), None)
        record.created = at
        pool.handle(record)

    for at in (100.0, 100.5, 101.0, 129.9):
        tries(at)
    tries(101.0, "toban/election")
    tries(130.0)
    tries(70.0)
    logged = [json.loads(line)["event"] for line in out.getvalue().splitlines()]
    grants = "error connecting in 'toban/grants': gone"
    others = [grants, "error connecting in 'toban/election': gone"]
    assert logged == [*others, f"{grants} (3 similar messages suppressed)", grants]


def test_logs_load_no_library_for_tracebacks_in_colour() -> None:
    """They take longer than all the rest of it, and others can load them afterwards."""
    pytest.importorskip("rich")
    code = "import sys, toban_observability.logs as l; assert 'rich' not in sys.modules; import rich.console; l.setup_logging('x', 'console')"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
