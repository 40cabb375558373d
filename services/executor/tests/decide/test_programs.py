"""What counts as a shell, and what the allow-list lets through."""

import pytest

from toban_domain.outcome import AttemptKey
from toban_executor.decide.messages import StartOrder, StepOrder
from toban_executor.decide.programs import AllowList, ProgramRules, parse_allow_list, why_shell


@pytest.mark.parametrize(
    ("argv", "real", "shell"),
    [
        (["sh", "script.sh"], "", True),
        (["/usr/bin/bash"], "", True),
        (["tool"], "/usr/bin/dash", True),
        (["env", "A=1", "sh", "-c", "x"], "", True),
        (["nice", "-n", "5", "timeout", "3", "/bin/bash"], "", True),
        (["python3", "-c", "print()"], "", True),
        (["python3.11", "-Ic", "print()"], "", True),
        (["env", "perl", "-ne", "print"], "", True),
        (["node", "--eval", "1"], "", True),
        (["tool", "-c", "x"], "/usr/bin/python3.11", True),
        (["tool", "x.py", "-c"], "/usr/bin/python3.11", False),
        (["python3", "-Wdc", "x.py"], "", False),
        (["python3", "script.py", "-c"], "", False),
        (["python3", "-m", "tool"], "", False),
        (["tar", "-c", "x"], "", False),
        (["echo", "sh"], "", False),
        (["timeout", "3", "sleep", "5"], "", False),
        ([], "", False),
    ],
)
def test_shells(argv: list[str], real: str, shell: bool) -> None:
    assert bool(why_shell(argv, real)) is shell


def test_the_file() -> None:
    listed = parse_allow_list("# ours\n\ntar  # backup\n/opt/x/run\nshell: true\n")
    assert listed == AllowList(listed=True, programs=frozenset({"tar", "/opt/x/run"}), shell=True)
    assert parse_allow_list("").shell is False


@pytest.mark.parametrize("line", ["two words", "relative/path", "shell: yes"])
def test_a_bad_line_is_named(line: str) -> None:
    with pytest.raises(ValueError, match="line 2"):
        parse_allow_list(f"tar\n{line}\n")


def verdict(argv: tuple[str, ...], *, allow_shell: bool, file: str | None, kind: str = "command") -> str:
    found = {"tar": "/usr/bin/tar", "/usr/bin/tar": "/usr/bin/tar", "sh": "/bin/sh"}
    rules = ProgramRules(
        allowed=AllowList() if file is None else parse_allow_list(file),
        resolve=lambda name: (found.get(name, ""), "/bin/dash" if name == "sh" else found.get(name, "")),
    )
    step = StepOrder(type=kind, argv=argv)
    unfit = rules.unfit(StartOrder(key=AttemptKey(1, 1), steps=(step,), allow_shell=allow_shell))
    return unfit.refusal if unfit else ""


@pytest.mark.parametrize(
    ("argv", "allow_shell", "file", "refusal"),
    [
        (("tar",), False, None, ""),
        (("tar",), False, "tar", ""),
        (("tar",), False, "/usr/bin/tar", ""),
        (("/usr/bin/tar",), False, "/usr/bin/tar", ""),
        (("/tmp/tar",), False, "tar", "PROGRAM_NOT_ALLOWED"),
        (("cat",), False, "tar", "PROGRAM_NOT_ALLOWED"),
        (("sh", "-c", "x"), False, None, "PROGRAM_NOT_ALLOWED"),
        (("sh", "-c", "x"), True, None, ""),
        (("sh", "-c", "x"), True, "sh", "PROGRAM_NOT_ALLOWED"),
        (("sh", "-c", "x"), True, "sh\nshell: true", ""),
        (("sh", "-c", "x"), True, "shell: true", "PROGRAM_NOT_ALLOWED"),
        ((), False, None, "UNSUPPORTED_STEP"),
    ],
)
def test_orders(argv: tuple[str, ...], allow_shell: bool, file: str | None, refusal: str) -> None:
    assert verdict(argv, allow_shell=allow_shell, file=file) == refusal


def test_other_kinds_of_steps() -> None:
    assert verdict(("x",), allow_shell=False, file=None, kind="python") == "UNSUPPORTED_STEP"
