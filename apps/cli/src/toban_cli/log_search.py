"""Searches the output of many runs: page after page of runs, call after call, over replicas that come and go."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from toban_domain.errors import ErrorCode, TobanError

if TYPE_CHECKING:
    from toban_cli.ports import Client

RUNS_PAGE = 500
MAX_NUMBER = (1 << 63) - 1
_ENDED = frozenset({ErrorCode.UNAVAILABLE, ErrorCode.DEADLINE_EXCEEDED})


@dataclass(frozen=True, slots=True)
class Place:
    """How far a search is: everything up to this line of this run, or the whole run when token and seq are 0."""

    run: int
    token: int = 0
    seq: int = 0

    def __str__(self) -> str:
        return f"{self.run}.{self.token}.{self.seq}" if self.token else str(self.run)


def read_place(text: str) -> Place | None:
    """The reverse of `str(place)`; None for an empty text. Raises INVALID_ARGUMENT."""
    if not text:
        return None
    parts = text.split(".")
    if len(parts) not in (1, 3) or not all(map(_is_number, parts)):
        raise TobanError(
            ErrorCode.INVALID_ARGUMENT,
            f"--after: {text!r} is not a position; give the one that an earlier search printed",
        )
    return Place(*map(int, parts))


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 20 and int(text) <= MAX_NUMBER


class Search:
    """`runs` gives pages of runs, in the order in which they are searched. The counts grow while hits are yielded."""

    def __init__(self, client: Client, *, query: Any, limit: int, after: Place | None) -> None:
        self._client = client
        self._query = query
        self._left = limit
        self.place = after
        """Where to continue; None: at the beginning."""
        self.cut = False
        """There may be more than `limit`."""
        self.lines = 0
        self.runs = 0
        self.bytes = 0
        self.expired = 0

    def hits(self, pages: Iterator[Sequence[Any]]) -> Iterator[tuple[Any, Any]]:
        """(run, hit) of every line. Raises TobanError when no log-archiver responds."""
        for page in pages:
            wanted = [run for run in page if self.place is None or run.id <= self.place.run]
            if not wanted:
                continue
            by_id = {run.id: run for run in wanted}
            for answer in self._answers([run.id for run in wanted]):
                for hit in answer.hits:
                    yield by_id[hit.run_id], hit
            if self.cut:
                return

    def _answers(self, run_ids: Sequence[int]) -> Iterator[Any]:
        """As many calls as it takes to search these runs to their end, or to the limit."""
        first = True
        while first or not self.cut:
            first = False
            whole = yield from self._call(run_ids)
            if whole:
                return

    def _call(self, run_ids: Sequence[int]) -> Generator[Any, None, bool]:
        """One call; True when it came to the end of these runs. A stream that breaks after some responses is continued."""
        request = type(self._query)()
        request.CopyFrom(self._query)
        request.run_ids.extend(run_ids)
        request.limit = self._left
        if self.place is not None and self.place.run in run_ids:
            request.after.run_id, request.after.token, request.after.seq = (
                self.place.run,
                self.place.token,
                self.place.seq,
            )
        answer, runs, size, expired = None, self.runs, self.bytes, self.expired
        try:
            for answer in self._client.stream("LogReader.Search", request):
                yield answer
                self._left -= len(answer.hits)
                self.lines += len(answer.hits)
                self.runs, self.bytes = runs + answer.runs, size + answer.bytes
                self.expired = expired + answer.expired_attempts
                if answer.position.run_id:
                    self.place = Place(answer.position.run_id, answer.position.token, answer.position.seq)
        except TobanError as error:
            if answer is None or error.code not in _ENDED:
                raise
            self.cut = self._left <= 0
            return False
        self.cut = self._left <= 0
        return answer is not None and not answer.cut


def run_pages(fetch: Callable[[str], Any]) -> Iterator[Sequence[Any]]:
    """Runs page by page; `fetch` gets a cursor and returns a ListRunsResponse."""
    cursor = ""
    while True:
        page = fetch(cursor)
        yield page.runs
        cursor = page.next_cursor
        if not cursor:
            return
