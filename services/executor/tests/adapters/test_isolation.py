"""What this process may do for the class of its jobs."""

from pathlib import Path

import pytest

from toban_executor.adapters.isolation import abilities_here


@pytest.mark.parametrize(("mode", "found"), [(0o755, False), (0o1777, False), (0o777, True), (0o2777, True)])
def test_a_folder_on_the_way_that_every_user_may_change_is_found(tmp_path: Path, mode: int, found: bool) -> None:
    """A job would put a folder of its own in place of the state of the executor."""
    (tmp_path / "above" / "state").mkdir(parents=True)
    (tmp_path / "above").chmod(mode)
    assert abilities_here(tmp_path / "above" / "state").changeable == (str(tmp_path / "above") if found else "")
