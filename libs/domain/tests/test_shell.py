"""What counts as shell."""

from __future__ import annotations

import pytest

from toban_domain.shell import shell_reason


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
