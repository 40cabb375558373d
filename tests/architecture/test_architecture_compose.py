"""What docker-compose.yml gives to each executor, and the name that its container takes: no engine is needed."""

import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from toban_executor.decide.isolation import CAPABILITIES
from toban_executor.guard.uid_claims import FOLDERS

ROOT = Path(__file__).resolve().parents[2]
FILE = ROOT / "docker-compose.yml"
GUIDE = ROOT / "docs" / "docker.md"
START = ROOT / "deploy" / "docker" / "start"
SHOW = "#!/bin/sh\necho $SCHEDULER_NODE_ID $SCHEDULER_MACHINE $2\n"


@pytest.fixture(scope="module")
def file() -> dict[str, Any]:
    return dict(yaml.safe_load(FILE.read_text(encoding="utf-8")))


def volumes(service: dict[str, Any]) -> tuple[list[str], list[str]]:
    """Targets of its volumes without a name, and what else it mounts."""
    mounts: list[str] = service.get("volumes", [])
    return [one for one in mounts if ":" not in one], [one for one in mounts if ":" in one]


def test_no_executor_can_read_the_files_of_another_one(file: dict[str, Any]) -> None:
    """A volume with a name is one for all replicas of a service."""
    own, others = volumes(file["services"]["executor"])
    assert own == ["/var/lib/toban/executor", "/var/lib/toban/home"]
    assert all(mount.endswith(":ro") for mount in others)
    assert file["services"]["executor"]["environment"]["SCHEDULER_STATE_DIR"] == own[0]
    assert not any(mount.startswith("executors") for one in file["services"].values() for mount in volumes(one)[1])
    assert "executors" not in file["volumes"]
    # `up` passes on what the container before had at the same path, also a volume with a name: the one of earlier releases.
    assert "/var/lib/toban" not in own


def test_volumes_without_a_name_begin_as_folders_of_our_account(file: dict[str, Any]) -> None:
    """They are copies of the folders of the image; one that the image does not have would belong to root."""
    dockerfile = (ROOT / "deploy" / "docker" / "service.Dockerfile").read_text(encoding="utf-8")
    found = re.findall(r"install -d -o 10001 -g 10001 -m (\d+) ([^\\]+)", dockerfile)
    made = {folder: mode for mode, folders in found for folder in folders.split()}
    assert set(volumes(file["services"]["executor"])[0]) <= made.keys()
    # Jobs of class isolated pass through the first two, and reach nothing in the others.
    passed = {folder for folder, mode in made.items() if mode == "0711"}
    assert passed == {"/var/lib/toban", "/var/lib/toban/executor"} and made["/run/keys"] == "0700"


def test_an_executor_is_root_with_what_class_isolated_needs_and_nothing_else_is(file: dict[str, Any]) -> None:
    """The tests of such an executor have the same list (services/executor/tests/test_container_rights.py)."""
    for name, service in file["services"].items():
        if "cap_drop" not in service:
            assert not str(service["image"]).startswith("${TOBAN_IMAGES"), name
            continue
        assert (service["cap_drop"], service["read_only"]) == (["ALL"], True)
        assert service["security_opt"] == ["no-new-privileges:true"]
        rights = (service.get("user"), set(service.get("cap_add", [])))
        assert rights == (("0:0", set(CAPABILITIES)) if name == "executor" else (None, set())), name
    executor = file["services"]["executor"]
    assert executor["environment"]["SCHEDULER_ISOLATION"] == "${EXECUTOR_ISOLATION:-isolated}"
    assert f"{FOLDERS[0]}:size=64k,mode=700" in executor["tmpfs"]


def test_a_group_of_executors_has_volumes_of_its_own_too(file: dict[str, Any]) -> None:
    guide = (ROOT / "docs" / "executor-groups.md").read_text(encoding="utf-8")
    (given,) = re.findall(r"volumes: !override \[(.*)\]", guide)
    assert [one for one in given.split(", ") if ":" not in one] == volumes(file["services"]["executor"])[0]


def test_an_executor_is_bounded_in_memory_and_processes(file: dict[str, Any]) -> None:
    executor = file["services"]["executor"]
    assert executor["mem_limit"] == "${EXECUTOR_MEMORY:-2g}"
    assert executor["pids_limit"] == "${EXECUTOR_PIDS:-2048}"
    # One job leaves processes for guards and other slots.
    assert executor["environment"]["SCHEDULER_JOB_PROCESSES"] == "${EXECUTOR_JOB_PROCESSES:-512}"
    # Payloads are there; the engine's own default is 64 MB.
    assert executor["shm_size"] == "${EXECUTOR_SHM:-512m}"
    # Both forms of a limit in one service are an error of Compose.
    assert executor["deploy"].keys() == {"replicas"}


def test_the_guide_names_each_variable_of_an_executor() -> None:
    of_executors = set(re.findall(r"\$\{(EXECUTOR\w+)", FILE.read_text(encoding="utf-8")))
    assert of_executors
    assert {name for name in of_executors if f"`{name}`" not in GUIDE.read_text(encoding="utf-8")} == set()


@pytest.mark.parametrize(
    ("isolation", "uid", "by"), [("isolated", 0, ""), ("shared", 10001, ""), ("shared", 0, "setpriv")]
)
def test_an_executor_of_class_shared_is_not_root(tmp_path: Path, isolation: str, uid: int, by: str) -> None:
    """Its jobs would be root, too."""
    for name, script in {
        "id": f"echo {uid}",
        "chown": 'echo "chown $*"',
        "setpriv": 'while [ "$1" != python ]; do echo "$1"; shift; done; echo setpriv "$@" $SCHEDULER_JOB_PROCESSES',
        "python": "echo $HOME $SCHEDULER_JOB_PROCESSES",
        "stat": "echo 2777",
        "chmod": 'echo "chmod $*"',
    }.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{script}\n")
        (tmp_path / name).chmod(0o755)
    start = START.read_text(encoding="utf-8").replace("/opt/toban/bin/python", "python")
    environment = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "HOME": "/root", "TOBAN_SERVICE": "executor"}
    environment |= {
        "SCHEDULER_STATE_DIR": "/toban/state",
        "SCHEDULER_ISOLATION": isolation,
        "SCHEDULER_JOB_PROCESSES": "512",
    }
    done = subprocess.run(
        ["bash", "-c", start], env=environment, capture_output=True, text=True, timeout=60, check=True
    )
    lines = done.stdout.splitlines()
    if isolation == "isolated":
        # A volume of Kubernetes: the set-group-id bit goes, so that the kubelet prepares it again for an executor of the other class.
        assert lines.pop(0) == "chmod 00711 /toban"
    if not by:
        assert lines == ["/root 512" if isolation == "isolated" else "/root"]
        return
    assert lines[0] == "chown -hR 10001:10001 /toban/state"
    assert {"--reuid", "--regid", "--clear-groups", "--bounding-set=-all"} <= set(lines)
    assert lines[-1] == "setpriv python -m toban_executor watch"


@pytest.mark.parametrize(
    ("service", "arguments", "runs"),
    [
        ("executor", [], "python -m toban_executor watch"),
        ("executor", ["id", "-u"], "tini -s -- id -u"),
        ("admin-web", [], "tini -s -- python -m toban_admin_web"),
        ("tools", [], "tini -s -- sleep infinity"),
    ],
)
def test_a_container_has_an_init(tmp_path: Path, service: str, arguments: list[str], runs: str) -> None:
    """The first process of an executor also watches it: no other process of the container could stop that one."""
    for name in ("tini", "python", "id"):
        (tmp_path / name).write_text(f'#!/bin/sh\necho {name} "$@"\n')
        (tmp_path / name).chmod(0o755)
    start = START.read_text(encoding="utf-8").replace("/opt/toban/bin/python", "python")
    environment = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "TOBAN_SERVICE": service}
    command = ["bash", "-c", start, "start", *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == runs
    dockerfile = (ROOT / "deploy" / "docker" / "service.Dockerfile").read_text(encoding="utf-8")
    assert dockerfile.endswith('ENTRYPOINT ["/opt/toban/bin/start"]\n')


def test_an_executor_keeps_its_name_with_its_volume(tmp_path: Path) -> None:
    """As containers of three replicas start, and one of them again in another container."""
    python = tmp_path / "python"
    python.write_text(SHOW)
    python.chmod(0o755)
    script = tmp_path / "start"
    script.write_text(START.read_text(encoding="utf-8").replace("/opt/toban/bin/python", str(python)))
    (tmp_path / "machine").write_text("m1")

    def started(volume: str, **more: str) -> list[str]:
        state = tmp_path / volume
        state.mkdir(exist_ok=True)
        given = {"TOBAN_SERVICE": "executor", "SCHEDULER_STATE_DIR": str(state), **more}
        environment = {"PATH": os.environ["PATH"], "TOBAN_MACHINE_FILE": str(tmp_path / "machine"), **given}
        done = subprocess.run(
            ["bash", str(script)], env=environment, capture_output=True, text=True, timeout=60, check=True
        )
        return done.stdout.split()

    name, machine, module = started("first")
    assert re.fullmatch(r"executor-[0-9a-f]{6}", name)
    assert (machine, module) == (f"m1/{name}", "toban_executor")
    assert started("first") == [name, machine, module]
    assert (tmp_path / "first" / "name").stat().st_mode & 0o777 == 0o600
    assert len({name, started("second")[0], started("third")[0]}) == 3
    # A name that is given is only what people see: the machine stays.
    assert started("first", SCHEDULER_NODE_ID="batch") == ["batch", machine, module]
    assert started("none", TOBAN_MACHINE_FILE="") == ["toban_executor"]
    assert not (tmp_path / "none" / "name").exists()
