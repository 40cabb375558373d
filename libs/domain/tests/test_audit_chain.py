"""The hash chain of the audit: what was changed, removed or inserted is found, and where."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toban_domain.audit_chain import START, Link, Mark, check_links

AT = datetime(2026, 11, 23, 9, 0, 0, 123456, UTC)


def chain(count: int, previous: Mark = START) -> list[Link]:
    links = []
    for seq in range(previous.seq + 1, previous.seq + count + 1):
        link = Link(
            seq=seq,
            id=seq + 100,
            at=AT + timedelta(microseconds=seq),
            actor="user ada",
            action="run.start",
            target=f"run {seq}",
            before="",
            after='{"jobs": ["夜間"]}',
            reason="",
            address="192.0.2.7",
            service="admin-web",
            hash=b"",
        )
        links.append(replace(link, hash=link.hash_after(previous.hash)))
        previous = links[-1].mark
    return links


def kinds(links: list[Link], *, head: Mark, previous: Mark = START) -> list[tuple[str, int, int]]:
    return [(one.kind, one.first, one.last) for one in check_links(previous, links, head=head, complete=True)]


def test_a_whole_chain_and_its_parts_are_good() -> None:
    links = chain(6)
    assert kinds(links, head=links[-1].mark) == [] == kinds([], head=START)
    assert check_links(START, links[:3], head=links[-1].mark, complete=False) == []
    assert kinds(links[3:], head=links[-1].mark, previous=links[2].mark) == []


@pytest.mark.parametrize(
    "change",
    [
        {"id": 1},
        {"at": AT},
        {"actor": "user bob"},
        {"action": "run.cancel"},
        {"target": "run 99"},
        {"before": "{}"},
        {"after": '{"jobs": []}'},
        {"reason": "none"},
        {"address": "192.0.2.8"},
        {"service": "admin-cli"},
        {"hash": bytes(32)},
    ],
)
def test_a_changed_value_is_found(change: dict[str, object]) -> None:
    links = chain(5)
    links[2] = replace(links[2], **change)  # type: ignore[arg-type]
    assert ("changed", 3, 3) in kinds(links, head=links[-1].mark)


@given(st.integers(2, 12), st.data())
def test_removed_rows_are_named_wherever_they_were(count: int, data: st.DataObject) -> None:
    links = chain(count)
    first = data.draw(st.integers(1, count))
    last = data.draw(st.integers(first, count))
    kept = [link for link in links if not first <= link.seq <= last]
    assert kinds(kept, head=links[-1].mark) == [("removed", first, last)]


def test_rows_that_were_added_are_found() -> None:
    links = chain(4)
    assert kinds(links, head=links[2].mark) == [("inserted", 4, 4)]
    forged = replace(links[1], target="run 99")
    forged = replace(forged, hash=forged.hash_after(links[0].hash))
    assert kinds([links[0], forged, *links[2:]], head=links[-1].mark) == [("changed", 3, 3)], (
        "its successor knows the old one"
    )
    assert kinds([*links[:3], replace(links[3], hash=bytes(32))], head=links[-1].mark)[-1] == ("changed", 4, 4)


@given(st.lists(st.text(max_size=4), min_size=7, max_size=7), st.lists(st.text(max_size=4), min_size=7, max_size=7))
def test_different_rows_have_different_hashes(one: list[str], other: list[str]) -> None:
    names = ("actor", "action", "target", "before", "after", "reason", "address")
    [link] = chain(1)
    first, second = (replace(link, **dict(zip(names, texts, strict=True))) for texts in (one, other))
    assert (first.hash_after(START.hash) == second.hash_after(START.hash)) is (one == other)


def test_marks_are_written_and_read() -> None:
    links = chain(3)
    assert all(before.mark != after.mark for before, after in pairwise(links))
    assert Mark.parse(str(links[1].mark)) == links[1].mark and Mark.parse(f" {START}\n") == START
    for wrong in ("", "7", "7:", "7:abcd", "x:" + "00" * 32, "-1:" + "00" * 32, "7:" + "zz" * 32):
        with pytest.raises(ValueError):
            Mark.parse(wrong)
