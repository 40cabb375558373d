"""A process that is stopped goes on, and one that is stopped again and again ends everything."""

from hypothesis import given
from hypothesis import strategies as st

from toban_executor.decide.stopped import LOOK_SECONDS, MOST_STOPS, WINDOW_SECONDS, Reaction, Stops, react


def test_what_is_stopped_goes_on() -> None:
    stops, reaction = react(Stops(), [7, 3], 1.0)
    assert reaction == Reaction(resume=(3, 7))
    assert react(stops, [], 2.0)[1] == Reaction()


def test_one_that_is_stopped_again_and_again_ends_everything() -> None:
    stops = Stops()
    for number in range(MOST_STOPS):
        stops, reaction = react(stops, [3], number * LOOK_SECONDS)
        assert not reaction.end_all
    assert react(stops, [3], MOST_STOPS * LOOK_SECONDS)[1].end_all
    assert not react(stops, [3], WINDOW_SECONDS + MOST_STOPS)[1].end_all, "long ago"


@given(st.lists(st.tuples(st.integers(1, 3), st.floats(0.1, 20.0)), max_size=40))
def test_stops_of_different_times_do_not_add_up(looks: list[tuple[int, float]]) -> None:
    stops, now = Stops(), 0.0
    seen: list[tuple[int, float]] = []
    for pid, later in looks:
        now += later
        seen.append((pid, now))
        stops, reaction = react(stops, [pid], now)
        within = [at for one, at in seen if one == pid and at > now - WINDOW_SECONDS]
        assert reaction.resume == (pid,)
        assert not (
            reaction.end_all
            and max(len([1 for o, a in seen if o == p and a > now - WINDOW_SECONDS]) for p in (1, 2, 3)) <= MOST_STOPS
        )
        assert reaction.end_all or len(within) <= MOST_STOPS
