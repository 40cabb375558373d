"""What counts as shell."""

from __future__ import annotations

import pytest

from toban_domain.shell_detection import callable_reason, shell_reason


@pytest.mark.parametrize(
    "argv",
    [
        ["sh", "-c", "date"],
        ["/bin/bash", "script.sh"],
        ["/usr/bin/env", "bash", "x"],
        ["env", "A=1", "-i", "zsh"],
        ["nice", "-n", "5", "dash", "-c", "x"],
        ["timeout", "5", "sh", "-c", "x"],
        ["python3", "-c", "print()"],
        ["python3.11", "-Ic", "print()"],
        ["/usr/bin/python3", "-I", "-c", "print()"],
        ["perl", "-e", "1"],
        ["perl", "-ne", "print"],
        ["node", "--eval", "1"],
        ["ruby", "-e", "1"],
        ["busybox", "date"],
        ["python3", "-W", "ignore", "-c", "print()"],
        ["python3", "-X", "dev", "-uc", "print()"],
        ["deno", "eval", "1"],
        ["find", ".", "-exec", "sh", "-c", "x", ";"],
        ["xargs", "python3", "-c", "1"],
    ],
)
def test_shell(argv: list[str]) -> None:
    assert shell_reason(argv)


@pytest.mark.parametrize(
    "argv",
    [
        ["/bin/true"],
        ["echo", "sh", "-c"],
        ["tar", "-czf", "a.tgz", "dir"],
        ["python3", "scripts/x.py", "--count", "3"],
        ["python3", "-m", "http.server"],
        ["grep", "-c", "bash", "file"],
        ["env", "A=1", "/bin/true"],
        ["cat", "bash"],
        ["python3", "x.py", "-c", "config.ini"],
        ["python3", "-u", "x.py", "-c", "config.ini"],
        ["python3", "-mcalendar"],
        ["python3", "-m", "tool", "-c", "x"],
        ["python3", "-Wdc", "x.py"],
        ["nice", "-n", "5", "tar", "-c", "x"],
        [],
    ],
)
def test_no_shell(argv: list[str]) -> None:
    assert not shell_reason(argv)


@pytest.mark.parametrize(
    "name",
    [
        "os:system",
        "subprocess:run",
        "os.path:exists",
        "shutil:os.system",
        "asyncio:create_subprocess_shell",
        "asyncio.subprocess:create_subprocess_shell",
        "pdb:run",
        "bdb:Bdb.run",
        "multiprocessing.util:os.system",
        "cProfile:run",
        "trace:main",
        "concurrent.futures.process:mp.util.os.system",
        "ctypes:CDLL",
        "importlib:import_module",
        "pty:spawn",
        "code:interact",
        "codeop:compile_command",
        "runpy:run_path",
        "timeit:timeit",
        "builtins:eval",
        "logging.config:dictConfig",
        "_posixsubprocess:fork_exec",
        "shop.report:builtins.eval",
        "shop.report:make.os.popen",
    ],
)
def test_callables_that_start_programs_or_run_code(name: str) -> None:
    assert "can start programs or execute arbitrary code" in callable_reason(name)


@pytest.mark.parametrize(
    "name",
    ["shop.report:make", "osprey:fly", "shop.commands:send", "shop.code:profile", "shop:Trace.run", "time:sleep"],
)
def test_callables_of_ones_own(name: str) -> None:
    assert not callable_reason(name)
