"""Folders that containers may see, what of this machine they must not, and the cgroup that they need."""

from pathlib import Path

import pytest

from toban_domain.errors import ErrorCode, TobanError
from toban_executor.adapters.container_steps import ContainerSteps
from toban_executor.guard import cgroup


@pytest.mark.parametrize("own", ["run", "state"])
def test_the_engine_and_the_state_stay_out_of_containers(own: str, tmp_path: Path) -> None:
    for name in ("run", "state"):
        (tmp_path / name).mkdir()
    (tmp_path / "link").symlink_to(tmp_path / own)
    for folder in (tmp_path / own, tmp_path / "link", tmp_path, Path("/")):
        with pytest.raises(TobanError, match="list other folders") as raised:
            ContainerSteps(
                socket=tmp_path / "run" / "engine.sock",
                mounts=str(folder),
                state_dir=tmp_path / "state",
                incarnation="i",
                earlier=(),
            )
        assert raised.value.code == ErrorCode.CONFIG_INVALID


def test_an_executor_without_a_cgroup_for_containers_does_not_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before the engine is asked: each container step would fail."""
    monkeypatch.setattr(cgroup, "mount_root", lambda *_: None)
    with pytest.raises(TobanError, match="show no cgroup of version 2; run the executor as root") as raised:
        ContainerSteps(
            socket=tmp_path / "engine.sock", mounts="", state_dir=tmp_path / "state", incarnation="i", earlier=()
        )
    assert raised.value.code == ErrorCode.CONFIG_INVALID
    assert raised.value.message.startswith("SCHEDULER_CONTAINER_ENGINE: container steps need a writable cgroup")


def test_why_a_cgroup_cannot_be_used(tmp_path: Path) -> None:
    (tmp_path / "own").write_text("1:cpu:/\n0::/service\n")
    (tmp_path / "mounts").write_text(f"cgroup2 {tmp_path} cgroup2 rw 0 0\n")

    def why() -> str:
        return cgroup.why_unusable(tmp_path / "mounts", tmp_path / "own")

    assert why().endswith("No such file or directory")
    (tmp_path / "service").mkdir()
    assert why() == f"{tmp_path}/service gives no cgroup.kill to groups in it, which Linux 5.14 has"
    assert list((tmp_path / "service").iterdir()) == []
    (tmp_path / "mounts").write_text("")
    assert why() == f"{tmp_path}/mounts and {tmp_path}/own show no cgroup of version 2"
