"""What the engine gets for a container step, and which folders it may see."""

from typing import Any

import pytest

from toban_executor.decide.container_call import MountError, creation, parse_mounts


def made(container: dict[str, Any], mounts: str = "", **sources: str) -> dict[str, Any]:
    given = {
        "container": {"image": "a:1", **container},
        "env": {"A": "1", "B": "1"},
        "mounts": mounts,
        "labels": {"l": "v"},
    }
    asked = {one["source"]: one["source"] for one in container.get("mounts", ())} | sources
    return creation(given, sources=asked, own={"TOBAN_RUN_ID": "7"}, cgroup_parent="/toban-x/slot-0-containers")


def test_the_least() -> None:
    body = made({})
    assert "Cmd" not in body, "the image's own"
    host = body["HostConfig"]
    assert (host["AutoRemove"], host["CgroupParent"]) == (True, "/toban-x/slot-0-containers")
    assert (host["NetworkMode"], host["ReadonlyRootfs"], host["Mounts"]) == ("none", False, [])
    assert host["SecurityOpt"] == ["no-new-privileges"]
    assert not {"Memory", "NanoCpus", "PidsLimit", "Privileged", "CapAdd", "PidMode"} & host.keys()


def test_everything() -> None:
    limits = {"memory_mb": 64, "cpus": 0.5, "pids": 9}
    body = made({"argv": ["x"], "env": {"B": "2"}, "user": "5", "limits": limits, "network": "bridge"})
    assert body["Env"] == ["A=1", "B=2", "TOBAN_RUN_ID=7"]
    assert (body["Cmd"], body["User"], body["Labels"]) == (["x"], "5", {"l": "v"})
    host = body["HostConfig"]
    assert (host["Memory"], host["MemorySwap"]) == (64 << 20, 64 << 20)
    assert (host["NanoCpus"], host["PidsLimit"], host["NetworkMode"]) == (500_000_000, 9, "bridge")


@pytest.mark.parametrize(
    ("mounts", "source", "read_only", "words"),
    [
        ("/srv", "/srv/data", True, ""),
        ("/srv:rw", "/srv", False, ""),
        ("/srv/data:rw,/srv", "/srv/data", False, ""),
        ("/srv/data:rw,/srv", "/srv/data/a", False, "mount '/srv/data/a' is below '/srv/data', where"),
        ("/srv:rw,/srv/data", "/srv/data", True, "is below '/srv', where"),
        ("", "/srv", True, "mount '/srv' is not allowed at all: see SCHEDULER_CONTAINER_MOUNTS"),
        ("/srv", "/srv2", True, "is not allowed at all"),
        ("/srv", "/", True, "is not allowed at all"),
        ("/srv", "/srv", False, "is not allowed for writing; add :rw to it"),
    ],
)
def test_mounts(mounts: str, source: str, read_only: bool, words: str) -> None:
    asked = {"mounts": [{"source": source, "target": "/x", "read_only": read_only}]}
    if words:
        with pytest.raises(MountError) as caught:
            made(asked, mounts)
        assert words in str(caught.value)
    else:
        assert made(asked, mounts)["HostConfig"]["Mounts"] == [
            {"Type": "bind", "Source": source, "Target": "/x", "ReadOnly": read_only}
        ]


def test_a_link_is_judged_by_what_it_leads_to() -> None:
    with pytest.raises(MountError, match="mount '/etc' is not allowed"):
        made({"mounts": [{"source": "/srv/link", "target": "/x"}]}, "/srv", **{"/srv/link": "/etc"})


@pytest.mark.parametrize("entry", ["srv", "/srv/../etc", "/srv:rx"])
def test_folders_that_mean_nothing(entry: str) -> None:
    with pytest.raises(ValueError, match="is not an absolute folder") as caught:
        parse_mounts(f"/a,{entry}")
    assert repr(entry) in str(caught.value)
