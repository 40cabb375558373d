"""The fake API of Kubernetes, and the image of tests with a real engine."""

import io
import os
import shutil
import subprocess
import tarfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from toban_testing.fake_kubernetes import FakeKubernetes

SOCKET = os.environ.get("TOBAN_TEST_ENGINE", "/var/run/docker.sock")
IMAGE = "toban-test-shell:1"


@pytest.fixture(scope="module")
def _api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FakeKubernetes]:
    server = FakeKubernetes(tmp_path_factory.mktemp("api"))
    try:
        yield server
    finally:
        server.stop()


@pytest.fixture
def api(_api: FakeKubernetes) -> Iterator[FakeKubernetes]:
    """An API with an empty cluster."""
    yield _api
    _api.forget()


@pytest.fixture(scope="module")
def variables(_api: FakeKubernetes) -> dict[str, str]:
    """Those of an executor with this API."""
    return {
        "SCHEDULER_KUBERNETES_API": _api.url,
        "SCHEDULER_KUBERNETES_TOKEN_FILE": str(_api.folder / "token"),
        "SCHEDULER_KUBERNETES_CA_FILE": str(_api.folder / "ca.crt"),
        "SCHEDULER_KUBERNETES_NAMESPACES": "batch,other",
        "SCHEDULER_KUBERNETES_IMAGES": "registry.example.com/team/*",
        "SCHEDULER_KUBERNETES_SERVICE_ACCOUNTS": "report",
        "SCHEDULER_KUBERNETES_MARGIN_SECONDS": "30",
        "SCHEDULER_KUBERNETES_SETTLE_SECONDS": "2",
    }


@pytest.fixture
async def opened(world_maker: Any, variables: dict[str, str]) -> AsyncIterator[Any]:
    world = world_maker()
    try:
        await world.open(**variables)
        yield world
    finally:
        await world.close()


@pytest.fixture(scope="module")
def image() -> Iterator[str]:
    """An image with a shell, made of this machine's files: there is no registry."""
    archive = io.BytesIO()
    files = {f"bin/{name}": shutil.which(name) for name in ("sh", "sleep", "cat", "id", "ls", "touch")}
    for path in list(files.values()):
        assert path
        linked = subprocess.run(["ldd", path], capture_output=True, text=True, check=True).stdout
        files |= {word.lstrip("/"): word for word in linked.split() if word.startswith("/")}
    with tarfile.open(fileobj=archive, mode="w") as tar:
        # Engines differ in the mode of folders that an archive does not name.
        for folder in sorted({str(folder) for name in files for folder in Path(name).parents} - {"."}):
            entry = tarfile.TarInfo(folder)
            entry.type, entry.mode = tarfile.DIRTYPE, 0o755
            tar.addfile(entry)
        for name, path in files.items():
            tar.add(os.path.realpath(str(path)), name)
    command = ["docker", "-H", f"unix://{SOCKET}", "import", "-", IMAGE]
    subprocess.run(command, input=archive.getvalue(), check=True, capture_output=True)
    yield IMAGE
    subprocess.run(["docker", "-H", f"unix://{SOCKET}", "rmi", "-f", IMAGE], check=False, capture_output=True)
