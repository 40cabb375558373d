"""What this process may do for the class of its jobs."""

import os
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from toban_domain.errors import TobanError
from toban_executor.adapters import isolation
from toban_executor.adapters.isolation import abilities_here
from toban_executor.config import ExecutorConfig
from toban_executor.decide.isolation import BY_SETTING, CAPABILITIES, NO_SANDBOX, Abilities
from toban_executor.guard import cgroup, limit_groups
from toban_runtime.config import ConfigError, read

ROOT = Abilities(sum(1 << number for number in CAPABILITIES.values()), "")


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


@pytest.mark.parametrize(
    ("kind", "unused"),
    [
        ("shared", {"job_processes": 100, "job_cpus": 1.0}),
        ("shared", {"job_memory_mb": 100, "job_uids": "61000-61010"}),
        ("shared", {"hidden_folders": "/keys", "shown_folders": "/data"}),
        ("isolated", {"hidden_folders": "/keys"}),
    ],
)
def test_what_a_chosen_class_does_not_use_is_refused_by_name(tmp_path: Path, kind: str, unused: dict[str, Any]) -> None:
    with pytest.raises(TobanError, match=f"SCHEDULER_ISOLATION={kind} does not use SCHEDULER_") as refused:
        isolation.chosen(config(tmp_path, isolation=kind, **unused), tmp_path)
    assert all(f"SCHEDULER_{name.upper()}" in str(refused.value) for name in unused)


@pytest.mark.parametrize(
    ("abilities", "unused"),
    [
        (ROOT, "SCHEDULER_HIDDEN_FOLDERS"),
        (Abilities(0, ""), "SCHEDULER_JOB_UIDS"),
        (Abilities(0, "no", "no"), "SCHEDULER_HIDDEN_FOLDERS, SCHEDULER_JOB_UIDS, SCHEDULER_JOB_CPUS"),
    ],
)
def test_what_the_class_found_does_not_use_is_logged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, abilities: Abilities, unused: str
) -> None:
    monkeypatch.setattr(isolation, "abilities_here", lambda _: abilities)
    with capture_logs() as lines:
        isolation.chosen(config(tmp_path, hidden_folders="/keys", job_uids="61000-61010", job_cpus=1), tmp_path)
    assert lines[0]["unused_settings"] == unused


@pytest.mark.parametrize(
    ("processes", "pids_max", "warned"),
    [(512, "2048", False), (4096, "2048", True), (0, "2048", True), (0, "max", False), (4096, None, False)],
)
def test_a_slot_that_may_take_all_processes_of_the_container_is_warned_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, processes: int, pids_max: str | None, warned: bool
) -> None:
    """Then guards and other slots cannot start anything."""
    group = tmp_path / "group"
    group.mkdir()
    if pids_max:
        (group / "pids.max").write_text(f"{pids_max}\n")
    (tmp_path / "state").mkdir()
    monkeypatch.setattr(isolation, "abilities_here", lambda _: ROOT)
    monkeypatch.setattr(cgroup, "find_base", lambda _name, *, make=True: None if make else group)
    monkeypatch.setattr(limit_groups, "_folders", lambda *_: {})
    with capture_logs() as lines:
        isolation.chosen(config(tmp_path, job_processes=processes), tmp_path)
    assert [line["pids_max"] for line in lines if line["log_level"] == "warning"] == [2048] * warned


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


@pytest.mark.parametrize(
    ("setting", "refused", "accepted", "text"),
    [
        ("JOB_CPUS", "0.005", "0.01", "write 0 for no limit, or 0.01 or more"),
        ("JOB_MEMORY_MB", "8", "64", "write 0 for no limit, or 64 or more"),
        ("JOB_PROCESSES", "4194304", "4000000", "Input should be less than or equal to 4000000"),
    ],
)
def test_a_limit_that_no_slot_could_have_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, setting: str, refused: str, accepted: str, text: str
) -> None:
    monkeypatch.setenv("SCHEDULER_STATE_DIR", str(tmp_path))
    monkeypatch.setenv("SCHEDULER_COORDINATORS", "127.0.0.1:1")
    for value in ("0", accepted):
        monkeypatch.setenv(f"SCHEDULER_{setting}", value)
        read(ExecutorConfig)
    monkeypatch.setenv(f"SCHEDULER_{setting}", refused)
    with pytest.raises(ConfigError, match=f"SCHEDULER_{setting}: {text}; correct it in the environment"):
        read(ExecutorConfig)


@pytest.mark.parametrize("limits", [{"job_cpus": 0.01}, {"job_memory_mb": 64}])
def test_the_smallest_limits_are_taken_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limits: Any) -> None:
    monkeypatch.setattr(isolation, "abilities_here", lambda _: ROOT)
    plan, found = isolation.chosen(config(tmp_path, **limits), tmp_path)
    assert plan is not None and found.kind == "isolated"


def test_groups_that_do_not_take_a_limit_end_the_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else each slot dies of it, again and again. `/dev/full` stands for a kernel that refuses what is written."""
    monkeypatch.setattr(isolation, "abilities_here", lambda _: ROOT)
    monkeypatch.setattr(limit_groups, "find", lambda *_: limit_groups.LimitGroups(limit_groups.V1, {"cpu": tmp_path}))
    group = tmp_path / f"toban-limits-{os.getpid()}"
    group.mkdir()
    (group / "cpu.cfs_period_us").symlink_to("/dev/full")
    with pytest.raises(TobanError, match=rf"SCHEDULER_JOB_CPUS: {group}/cpu.cfs_period_us: it does not take 100000"):
        isolation.chosen(config(tmp_path, job_cpus=1), tmp_path)


def config(folder: Path, **more: Any) -> ExecutorConfig:
    return ExecutorConfig(state_dir=folder, coordinators=("127.0.0.1:1",), **more)
