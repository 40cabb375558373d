"""What a task prints, logs and writes, on its way to the log of its run: batches, repeats, and a site that does not take it."""

import asyncio
import logging
import sys
import threading
from typing import Any

import pytest

from toban.errors import ConflictError, InvalidRequestError, UnavailableError
from toban.worker import LogHandler
from toban.worker.output import BATCH_BYTES, LINE_BYTES, WAITING_BYTES, StepOutput, captured, within

KEY = (7, "4611686018427387905")


class Site:
    """Keeps the calls; `script` has what the next ones raise, None = an answer."""

    def __init__(self) -> None:
        self.calls: list[tuple[int, list[Any]]] = []
        self.script: list[Exception | None] = []
        self.cancel = False

    def append_log(self, key: Any, first_seq: int, lines: list[Any], timeout: float) -> bool:
        assert key == KEY and timeout > 0
        self.calls.append((first_seq, lines))
        if self.script and (failure := self.script.pop(0)) is not None:
            raise failure
        return self.cancel

    @property
    def texts(self) -> list[tuple[str, str]]:
        return [(line["stream"], line["text"]) for _, lines in self.calls for line in lines]


@pytest.fixture
def site() -> Site:
    return Site()


@pytest.fixture
def output(site: Site) -> StepOutput:
    return StepOutput(KEY, site, lambda: None)  # type: ignore[arg-type]


def test_lines_are_numbered_over_both_streams_and_sent_together(site: Site, output: StepOutput) -> None:
    output.write("a\nb")
    output.write("oops\n", "stderr")
    output.write("c\r\n\n")
    output.send()
    assert site.texts == [("stdout", "a"), ("stderr", "oops"), ("stdout", "bc"), ("stdout", "")]
    output.write("no end")
    output.close()
    assert [(first, len(lines)) for first, lines in site.calls] == [(1, 4), (5, 1)]
    assert all(line["at_unix_ms"] > 1_700_000_000_000 for _, lines in site.calls for line in lines)


def test_a_call_without_an_answer_is_repeated_as_it_was(site: Site, output: StepOutput) -> None:
    site.script = [UnavailableError("away"), None]
    output.write("a\n")
    output.send()
    output.write("b\n")
    output.send()
    assert [(first, [line["text"] for line in lines]) for first, lines in site.calls] == [
        (1, ["a"]),
        (1, ["a"]),
        (2, ["b"]),
    ]


def test_much_output_goes_in_bounded_calls_and_wakes_the_sender(site: Site, output: StepOutput) -> None:
    woken = threading.Event()
    output.wake = woken.set
    output.write("x" * 1000 + "\n")
    assert not woken.is_set()
    output.write(("é" * 500 + "\n") * 200)
    assert woken.is_set()
    output.write("\n" * 3000)
    output.close()
    assert sum(len(lines) for _, lines in site.calls) == 3201
    assert max(len(lines) for _, lines in site.calls) == 1000
    sizes = [sum(len(line["text"].encode()) for line in lines) for _, lines in site.calls]
    assert BATCH_BYTES // 2 < max(sizes) <= BATCH_BYTES


def test_a_long_line_comes_in_pieces_of_whole_characters(site: Site, output: StepOutput) -> None:
    text = "x" + "é" * LINE_BYTES
    output.write(text + "\n")
    output.close()
    assert "".join(line for _, line in site.texts) == text
    assert max(len(line.encode()) for _, line in site.texts) <= LINE_BYTES


@pytest.mark.parametrize("failure", [InvalidRequestError("no"), ConflictError("sent before"), ValueError("no JSON")])
def test_what_the_site_refuses_is_counted_once(
    site: Site, output: StepOutput, failure: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    site.script = [failure]
    output.write("a\nb\n")
    output.send()
    output.write("c\n")
    output.close()
    assert site.calls[-1][0] == 3, "the numbers go on, so the log of the run counts what is missing"
    assert [record.getMessage() for record in caplog.records] == [
        f"2 lines of output are not in the log of run 7: {failure}"
    ]


def test_a_lost_claim_ends_the_output(site: Site, output: StepOutput, caplog: pytest.LogCaptureFixture) -> None:
    site.script = [ConflictError("lost", code="CLAIM_LOST")]
    output.write("a\n")
    output.close()
    assert len(site.calls) == 1 and "1 lines of output" in caplog.text


def test_a_site_that_is_away_costs_bounded_memory_and_time(
    site: Site, output: StepOutput, caplog: pytest.LogCaptureFixture
) -> None:
    site.script = [UnavailableError("away")] * 100
    for _ in range(WAITING_BYTES // 1000 + 10):
        output.write("x" * 1000 + "\n")
    output.close(0.0)
    assert len(site.calls) == 1
    assert "lines of output are not in the log of run 7: INTERNAL: away" in caplog.text


def test_an_answer_may_tell_of_a_cancel(site: Site) -> None:
    told = threading.Event()
    output = StepOutput(KEY, site, told.set)  # type: ignore[arg-type]
    site.cancel = True
    output.write("a\n")
    output.send()
    assert told.is_set()


def test_what_is_printed_and_logged_within_a_task_is_captured(
    site: Site, output: StepOutput, capsys: pytest.CaptureFixture[str]
) -> None:
    logger = logging.getLogger("test_worker_output")
    logger.addHandler(LogHandler())
    before = sys.stdout, sys.stderr

    async def work() -> None:
        print("in a coroutine")  # noqa: T201
        await asyncio.to_thread(print, "in a thread of its loop")

    with captured(), captured():
        print("outside")  # noqa: T201
        logger.error("outside")
        with within(output):
            print("inside", flush=True)  # noqa: T201
            print("oops", file=sys.stderr)  # noqa: T201
            logger.error("logged")
            asyncio.run(work())
            thread = threading.Thread(target=print, args=("another thread",))
            thread.start()
            thread.join()
    assert (sys.stdout, sys.stderr) == before
    output.close()
    assert site.texts == [
        ("stdout", "inside"),
        ("stderr", "oops"),
        ("stderr", "logged"),
        ("stdout", "in a coroutine"),
        ("stdout", "in a thread of its loop"),
    ]
    assert capsys.readouterr().out.splitlines()[:2] == ["outside", "inside"]
