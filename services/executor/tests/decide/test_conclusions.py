"""An outcome waits for its lines: it is given back once, and early only when the disk has refused for long."""

from hypothesis import given
from hypothesis import strategies as st

from toban_domain.outcome import AttemptKey
from toban_executor.decide.models import Report
from toban_executor.decide.pending_outcomes import PATIENCE_SECONDS, Conclusions


def report(number: int) -> Report:
    return Report(key=AttemptKey(number, 100 + number), seq=2)


steps = st.lists(
    st.one_of(
        st.tuples(st.just("wait"), st.integers(0, 5)),
        st.tuples(st.just("stored"), st.integers(0, 5)),
        st.tuples(st.just("refused"), st.floats(0, PATIENCE_SECONDS)),
    ),
    max_size=40,
)


@given(steps)
def test_each_outcome_comes_once_and_none_early_while_the_disk_has_patience_left(
    steps: list[tuple[str, int | float]],
) -> None:
    it, now = Conclusions(), 0.0
    since: dict[AttemptKey, float] = {}
    given_back: list[AttemptKey] = []
    for kind, value in steps:
        if kind == "wait":
            one = report(len(since) + int(value) * 1000)
            since[one.key] = now
            it.wait(one, now)
        elif kind == "stored":
            keys = [one.key for one in it.waiting][: int(value)]
            assert [one.key for one in it.stored(keys)] == keys
            given_back += keys
        else:
            now += float(value)
            overdue = [one.key for one in it.overdue(now)]
            assert all(now - since[key] >= PATIENCE_SECONDS for key in overdue)
            given_back += overdue
            assert all(now - since[one.key] < PATIENCE_SECONDS for one in it.waiting)
    given_back += [one.key for one in it.all()]
    assert sorted(given_back) == sorted(since)
    assert (it.waiting, it.all()) == ([], [])


def test_what_was_not_waited_for_is_nothing() -> None:
    it = Conclusions()
    it.wait(report(1), 0.0)
    assert it.stored([AttemptKey(9, 9)]) == []
    assert it.stored([AttemptKey(1, 101)] * 2) == [report(1)]
