"""What this process may do for the class of its jobs."""

from pathlib import Path
from typing import Any

import pytest

from toban_domain.errors import TobanError
from toban_executor.adapters import isolation
from toban_executor.adapters.isolation import abilities_here
from toban_executor.config import ExecutorConfig
from toban_executor.decide.isolation import BY_SETTING, NO_SANDBOX, Abilities


@pytest.mark.parametrize(("mode", "found"), [(0o755, False), (0o1777, False), (0o777, True), (0o2777, True)])
def test_a_folder_on_the_way_that_every_user_may_change_is_found(tmp_path: Path, mode: int, found: bool) -> None:
    """A job would put a folder of its own in place of the state of the executor."""
    (tmp_path / "above" / "state").mkdir(parents=True)
    (tmp_path / "above").chmod(mode)
    assert abilities_here(tmp_path / "above" / "state").changeable == (str(tmp_path / "above") if found else "")


def test_who_asks_for_no_sandbox_gets_none_and_nothing_is_tried(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(isolation, "abilities_here", pytest.fail)
    assert isolation.chosen(config(tmp_path, isolation="shared"), tmp_path) == (None, BY_SETTING)


@pytest.mark.parametrize("isolated", [True, False])
def test_the_class_is_refused_by_name_or_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, isolated: bool
) -> None:
    monkeypatch.setattr(isolation, "abilities_here", lambda _: Abilities(0, "refused", "refused"))
    if not isolated:
        assert isolation.chosen(config(tmp_path), tmp_path) == (None, NO_SANDBOX)
        return
    with pytest.raises(TobanError, match="SCHEDULER_ISOLATION: isolated is not possible here: it needs root"):
        isolation.chosen(config(tmp_path, isolation="isolated"), tmp_path)


def test_a_bad_range_is_refused_by_the_name_of_its_setting(tmp_path: Path) -> None:
    with pytest.raises(TobanError, match="SCHEDULER_JOB_UIDS: '5-3' is no range of uids"):
        isolation.chosen(config(tmp_path, job_uids="5-3"), tmp_path)


def config(folder: Path, **more: Any) -> ExecutorConfig:
    return ExecutorConfig(state_dir=folder, coordinators=("127.0.0.1:1",), **more)
