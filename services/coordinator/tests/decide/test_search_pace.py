from toban_coordinator.decide.placement.search_pace import MOST_SECONDS, QUICK_SECONDS, SHARE, SearchPace


def test_what_is_quick_is_made_each_time() -> None:
    pace = SearchPace()
    for at in range(9):
        assert pace.waits(at) == 0
        pace.took(at, QUICK_SECONDS)


def test_a_slow_search_is_followed_by_a_pause() -> None:
    pace = SearchPace()
    for at in (1.0, 2.0, 3.0):
        pace.took(at, QUICK_SECONDS + 0.5 / SHARE)
    assert round(pace.pause_seconds, 6) == 0.5
    assert round(pace.waits(3.2), 6) == 0.3
    assert pace.waits(4.0) == 0
    assert pace.waits(2.9) == 0, "the clock went back"


def test_the_pause_has_an_end() -> None:
    pace = SearchPace()
    for at in (1.0, 2.0, 3.0):
        pace.took(at, 60.0)
    assert pace.pause_seconds == MOST_SECONDS


def test_one_slow_search_among_quick_ones_is_no_reason() -> None:
    pace = SearchPace()
    for at, seconds in ((1.0, 0.001), (2.0, 0.5), (3.0, 0.5)):
        pace.took(at, seconds)
    assert pace.waits(3.1) == 0
    pace.took(4.0, 0.5)
    assert pace.waits(4.1) > 0
