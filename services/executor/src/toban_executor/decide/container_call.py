"""A `container` step as the engine gets it, and what of the executor's machine it may see: SCHEDULER_CONTAINER_MOUNTS."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any, NamedTuple

VARIABLE = "SCHEDULER_CONTAINER_MOUNTS"
MEBIBYTE = 1 << 20


class MountError(Exception):
    """The executor's configuration does not allow the mount; the text names folder and setting."""


class MountRule(NamedTuple):
    """A folder that containers may see with all below it; `writable`: not only for reading."""

    folder: PurePosixPath
    writable: bool


def parse_mounts(text: str) -> tuple[MountRule, ...]:
    """Folders separated by commas, `:rw` behind those that may be written to. Raises ValueError that names the wrong one."""
    rules = []
    for entry in (part.strip() for part in text.split(",")):
        if entry:
            path, _, mode = entry.partition(":")
            folder = PurePosixPath(path)
            if not folder.is_absolute() or ".." in folder.parts or mode not in ("", "ro", "rw"):
                raise ValueError(f"{entry!r} is not an absolute folder; write such as /srv/data,/srv/out:rw")
            rules.append(MountRule(folder, mode == "rw"))
    return tuple(rules)


def mount_sources(container: Mapping[str, Any]) -> list[str]:
    """The folders of the machine that the step asks for."""
    return [mount["source"] for mount in container.get("mounts", ())]


def creation(
    given: Mapping[str, Any], *, sources: Mapping[str, str], own: Mapping[str, str], cgroup_parent: str
) -> dict[str, Any]:
    """The body of the engine's call. `sources` are the folders behind links, `own` Toban's variables. Raises MountError."""
    container, rules = given["container"], parse_mounts(given["mounts"])
    variables = {**given["env"], **container.get("env", {}), **own}
    body: dict[str, Any] = {
        "Image": container["image"],
        "Env": [f"{name}={value}" for name, value in variables.items()],
        "Labels": given["labels"],
        "User": container.get("user", ""),
        "WorkingDir": container.get("working_dir", ""),
        "AttachStdout": True,
        "AttachStderr": True,
        "HostConfig": {
            "AutoRemove": True,
            "CgroupParent": cgroup_parent,
            "NetworkMode": container.get("network", "none"),
            "ReadonlyRootfs": container.get("read_only", False),
            "SecurityOpt": ["no-new-privileges"],
            "Mounts": [_mount(mount, rules, sources) for mount in container.get("mounts", ())],
            "LogConfig": {"Type": "none"},
            **_limits(container.get("limits", {})),
        },
    }
    if container.get("argv"):
        body["Cmd"] = list(container["argv"])
    return body


def _limits(limits: Mapping[str, Any]) -> dict[str, int]:
    found: dict[str, int] = {}
    if memory := limits.get("memory_mb"):
        found |= {"Memory": memory * MEBIBYTE, "MemorySwap": memory * MEBIBYTE}
    if cpus := limits.get("cpus"):
        found["NanoCpus"] = int(cpus * 1e9)
    if pids := limits.get("pids"):
        found["PidsLimit"] = pids
    return found


def _mount(mount: Mapping[str, Any], rules: Sequence[MountRule], sources: Mapping[str, str]) -> dict[str, Any]:
    source, read_only = PurePosixPath(sources[mount["source"]]), mount.get("read_only", True)
    for rule in rules:
        if rule.writable and source != rule.folder and source.is_relative_to(rule.folder):
            raise MountError(
                f"mount {str(source)!r} is below {str(rule.folder)!r}, where containers can put links in its place; "
                f"mount that folder, or list this one without :rw above it: see {VARIABLE} of this executor"
            )
    fitting = [rule for rule in rules if source.is_relative_to(rule.folder)]
    if not any(rule.writable or read_only for rule in fitting):
        how = "for writing; add :rw to it" if fitting else "at all"
        raise MountError(f"mount {str(source)!r} is not allowed {how}: see {VARIABLE} of this executor")
    return {"Type": "bind", "Source": str(source), "Target": mount["target"], "ReadOnly": read_only}
