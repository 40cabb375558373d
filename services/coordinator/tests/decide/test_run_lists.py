"""The index for a page of runs."""

from hypothesis import given
from hypothesis import strategies as st

from toban_coordinator.decide.runs.run_lists import MAX_SEARCHES, Driver, driver_of, looks_at
from toban_domain.run import TERMINAL, RunState

STATES = st.lists(st.sampled_from([state.value for state in RunState]), unique=True)


def test_each_part_alone_has_an_index() -> None:
    assert driver_of() is Driver.ID
    assert driver_of(states=["FAILED", "EXPIRED"]) is Driver.STATE
    assert driver_of(states=["SUCCEEDED"]) is Driver.ID
    assert driver_of(jobs=["a"]) is Driver.JOB
    assert driver_of(jobs=["a"], states=["FAILED"]) is Driver.JOB_AND_STATE
    assert driver_of(jobs=["a"], schedule="s") is Driver.SCHEDULE
    assert driver_of(workers=[7]) is Driver.EXECUTOR
    assert driver_of(origin="rerun") is Driver.ORIGIN
    assert driver_of(scope="account", scope_id="7") is Driver.SCOPE


def test_what_an_index_leaves_out_is_not_searched_for_there() -> None:
    assert driver_of(scope="system", scope_id="7") is Driver.ID
    assert driver_of(scope="account") is Driver.ID
    assert driver_of(jobs=["a"], states=["FAILED", "SUCCEEDED"]) is Driver.JOB


@given(jobs=st.integers(0, 500), workers=st.integers(0, 500), states=STATES)
def test_searches_are_bounded(jobs: int, workers: int, states: list[str]) -> None:
    driver = driver_of(jobs=["j"] * jobs, workers=[1] * workers, states=states)
    searches = {
        Driver.JOB: jobs,
        Driver.JOB_AND_STATE: jobs * len(states),
        Driver.EXECUTOR: workers,
    }
    assert searches.get(driver, 1) <= MAX_SEARCHES
    if driver in (Driver.STATE, Driver.JOB_AND_STATE):
        assert states and "SUCCEEDED" not in states


@given(states=STATES)
def test_no_table_is_left_out_that_may_hold_a_run(states: list[str]) -> None:
    live, finished = looks_at(states)
    wanted = {RunState(state) for state in states} or set(RunState)
    assert live == bool(wanted - TERMINAL) and finished == bool(wanted & TERMINAL)
