from toban_coordinator.decide.placement.search_pace import QUICK_SECONDS, SHARE, SearchPace


def test_what_is_quick_is_made_each_time() -> None:
    pace = SearchPace()
    for at in range(9):
        assert pace.waits(at) == 0
        pace.took(at, at + QUICK_SECONDS)


def test_a_slow_search_is_followed_by_a_pause() -> None:
    pace = SearchPace()
    for at in (1.0, 2.0, 3.0):
        pace.took(at, at + 0.012)
    assert round(pace.pause_seconds, 6) == SHARE * 0.010
    assert round(pace.waits(3.012), 6) == 0.5
    assert pace.waits(4.0) == 0


def test_one_slow_search_among_quick_ones_is_no_reason() -> None:
    pace = SearchPace()
    for at, seconds in ((1.0, 0.001), (2.0, 0.5), (3.0, 0.5)):
        pace.took(at, at + seconds)
    assert pace.waits(3.5) == 0
    pace.took(4.0, 4.5)
    assert pace.waits(4.5) > 0
