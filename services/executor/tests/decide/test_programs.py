"""What counts as a shell, and what the allow-list lets through."""

from dataclasses import replace

import pytest

from toban_domain.outcome import AttemptKey
from toban_domain.secret import SecretFile
from toban_executor.decide.allow_list import AllowList, parse_allow_list
from toban_executor.decide.models import StartOrder, StepOrder
from toban_executor.decide.programs import ProgramRules, why_shell


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
    assert bool(why_shell(tuple(argv), real)) is shell


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
        (("/opt/jobs/backup",), False, "/opt/jobs/*", ""),
        (("/opt/jobs/../../bin/cat",), False, "/opt/jobs/*", "PROGRAM_NOT_ALLOWED"),
        (("/opt/jobs/old/backup",), False, "/opt/jobs/*", "PROGRAM_NOT_ALLOWED"),
        (("/opt/jobs/..",), False, "/opt/jobs/*", "PROGRAM_NOT_ALLOWED"),
        (("tar", "-czf", "/backup/x y.tgz", "/srv"), False, "tar\nargs: -czf /backup/*.tgz /srv", ""),
        (
            ("/usr/bin/tar", "-czf", "/backup/x.tgz", "/srv"),
            False,
            "tar\nargs: -czf /backup/*.tgz /srv",
            "PROGRAM_NOT_ALLOWED",
        ),
        (("tar", "-czf", "/backup/x.tgz", "/etc"), False, "tar\nargs: -czf /backup/*.tgz /srv", "PROGRAM_NOT_ALLOWED"),
        (("tar", "--to-command=id", "-xf", "x"), False, "tar\nargs: -xf ...", "PROGRAM_NOT_ALLOWED"),
        (("tar", "-t"), False, "tar\nargs: -c ...\nargs: -t", ""),
        (("tar", "-t"), False, "tar\nargs: -c\n/usr/bin/tar", ""),
    ],
)
def test_orders(argv: tuple[str, ...], allow_shell: bool, file: str | None, refusal: str) -> None:
    assert verdict(argv, allow_shell=allow_shell, file=file) == refusal


@pytest.mark.parametrize(
    ("kind", "guarded", "words"),
    [
        ("container", "container", ""),
        ("http", "container", ""),
        ("container", "", "has no SCHEDULER_CONTAINER_ENGINE"),
        ("command", "container", "has the socket of a container engine, which such a job could use"),
        ("python", "container", "has the socket of a container engine, which such a job could use"),
        ("django", "container", "has the socket of a container engine, which such a job could use"),
        ("kubernetes", "kubernetes", ""),
        ("http", "kubernetes", ""),
        ("kubernetes", "", "has no SCHEDULER_KUBERNETES_API"),
        ("kubernetes", "container", "has no SCHEDULER_KUBERNETES_API"),
        ("command", "kubernetes", "has a token for a cluster, which such a job could use"),
    ],
)
def test_an_executor_has_an_engine_or_starts_programs(kind: str, guarded: str, words: str) -> None:
    rules = ProgramRules(allowed=AllowList(), resolve=lambda name: (name, name), guarded=[guarded] if guarded else [])
    step = StepOrder(type=kind, argv=("/x",), callable="a:b")
    unfit = rules.unfit(StartOrder(key=AttemptKey(1, 1), steps=(step,)))
    assert (unfit is None) if not words else (unfit is not None and words in unfit.message)
    # Another executor may run it.
    assert unfit is None or unfit.refusal == "STEP_NOT_HERE"


@pytest.mark.parametrize(
    ("env", "secrets", "file", "words"),
    [
        ({"BASH_ENV": "$(id)"}, (), None, ""),
        ({"LANG": "C", "LC_ALL": "C", "TZ": "UTC"}, (), "tar", ""),
        ({"BASH_ENV": "$(id)"}, (), "tar", "variable 'BASH_ENV' changes what programs run"),
        ({"GIT_CONFIG_COUNT": "1"}, (), "tar\nenv: *", "variable 'GIT_CONFIG_COUNT' changes what programs run"),
        ({"PATH": "/tmp"}, (), "tar", "variable 'PATH' changes"),
        ({"DAY": "1"}, (), "tar", "variable 'DAY' is not in this executor's allow-list (env: LANG LC_* TZ)"),
        ({"DAY": "1"}, (), "tar\nenv: DAY", ""),
        ({"TZ": "UTC"}, (), "tar\nenv: DAY", "variable 'TZ' is not in"),
        ({"TZ": "UTC"}, (), "tar\nenv:", "(env: none)"),
        # The path of a file with a value of the author is as good as the value.
        ({}, (SecretFile(file="x", file_env="BASH_ENV", value=b""),), "tar", "variable 'BASH_ENV' changes"),
        ({}, (SecretFile(file="x", file_env="", value=b""),), "tar", ""),
    ],
)
def test_variables_of_a_definition(
    env: dict[str, str], secrets: tuple[SecretFile, ...], file: str | None, words: str
) -> None:
    rules = ProgramRules(
        allowed=AllowList() if file is None else parse_allow_list(file), resolve=lambda name: (name, name)
    )
    order = StartOrder(
        key=AttemptKey(1, 1), steps=(StepOrder(type="command", argv=("tar",)),), env=env, secrets=secrets
    )
    unfit = rules.unfit(order)
    assert (words and words in unfit.message and unfit.refusal == "PROGRAM_NOT_ALLOWED") if unfit else words == ""
    # A program of the executor itself gets none of them.
    own = replace(order, steps=(StepOrder(type="http", argv=("/opt/python",)),))
    assert rules.unfit(own) is None


def test_other_kinds_of_steps() -> None:
    assert verdict(("x",), allow_shell=False, file=None, kind="external") == "UNSUPPORTED_STEP"
    assert verdict((), allow_shell=False, file=None, kind="http") == "UNSUPPORTED_STEP"
    assert verdict(("/opt/venv/bin/python",), allow_shell=False, file="tar", kind="http") == "", "a program of its own"


def test_steps_of_earlier_dispatches_are_not_looked_at() -> None:
    rules = ProgramRules(allowed=AllowList(), resolve=lambda name: (name, name))
    steps = (StepOrder(type="external", argv=()), StepOrder(type="command", argv=("tar",)))
    order = StartOrder(key=AttemptKey(1, 1), steps=steps, allow_shell=False)
    assert rules.unfit(replace(order, first_step=1)) is None
    unfit = rules.unfit(order)
    assert unfit is not None and unfit.message.startswith("step 1 has type 'external'")


@pytest.mark.parametrize(
    ("name", "allow_shell", "file", "words"),
    [
        ("shop:make", False, None, ""),
        ("shop:make", False, "/opt/venv/bin/python", ""),
        ("shop:make", False, "tar\npython3", ""),
        ("shop:make", False, "/usr/bin/python3.11", ""),
        ("shop:make", False, "python3\nargs: -m tool", "in this executor's allow-list, without args:"),
        ("shop:make", False, "tar", "python steps need the interpreter '/opt/venv/bin/python'"),
        ("os:system", False, None, "set allow_shell in the definition"),
        ("os:system", True, None, ""),
        ("os:system", True, "python3", "no line 'shell: true'"),
        ("os:system", True, "python3\nshell: true", ""),
    ],
)
def test_a_python_step_counts_as_its_interpreter(name: str, allow_shell: bool, file: str | None, words: str) -> None:
    real = {"/opt/venv/bin/python": "/usr/bin/python3.11", "python3": "/usr/bin/python3.11", "tar": "/usr/bin/tar"}
    real["/usr/bin/python3.11"] = "/usr/bin/python3.11"
    rules = ProgramRules(
        allowed=AllowList() if file is None else parse_allow_list(file),
        resolve=lambda entry: (entry if entry.startswith("/") else f"/usr/bin/{entry}", real[entry]),
    )
    step = StepOrder(type="python", argv=("/opt/venv/bin/python", "-I", "-S", "x.py", name), callable=name)
    unfit = rules.unfit(StartOrder(key=AttemptKey(1, 1), steps=(step,), allow_shell=allow_shell))
    assert (words in unfit.message and unfit.refusal == "PROGRAM_NOT_ALLOWED") if unfit else words == ""
