"""What counts as shell."""

from __future__ import annotations

import pytest

from toban_domain.shell_detection import callable_reason, code_places, shell_reason


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


VALUE = "${{ payload.x }}"
# The words of a command, in which those that may be no template are in parentheses.
CODE = """
echo x
sh -c (code) sh x
sh -ec (code)
sh -o pipefail -c (code)
/bin/bash (file) x
timeout 5 (bash) -c (code) x
timeout -k 9 x (true) x
python3 -c (code) x
python3.11 -W ignore -c (code) x
python3 -m (module) x
python3 (file) -c x
node (--eval=code) x
deno eval (code) x
deno run (file) x
perl -ne (code) x
awk (code) x
gawk -v a=x -F : (code) x
awk -f (file) x
sed -n (code) -- x
sed -e (code) -e (code)
env (program) x
env A=x B=x (awk) (code) x
env -u A -S (code)
nice -n 5 (program) x
nohup (program) x
sudo -u x (program) x
xargs -0 -n 1 (program) x
find x -name x -exec (program) x ; -ok (sh) -c (code) ;
chroot x (program) x
flock x (program) x
flock -c (code)
watch (a) (b)
su (user) (-c) (code)
ssh (host) (ls)
psql -v a=x -f (file)
psql -c (code)
mysql -e (code)
sqlite3 base (code)
make -f (file) -- x
make (--eval=x)
tar -czf x -- x
tar (--to-command=code)
rsync -e (code) -- x
"""


def test_a_value_may_not_become_a_program_or_its_code(subtests: pytest.Subtests) -> None:
    for line in CODE.strip().splitlines():
        words = line.split()
        argv = [word.strip("()") for word in words]
        with subtests.test(line):
            assert code_places(argv) == {0, *(at for at, word in enumerate(words) if word.startswith("("))}


@pytest.mark.parametrize("program", ["sed -n 1p", "psql", "mysql", "make", "tar -czf a.tgz", "rsync -a"])
def test_a_value_may_not_become_an_option_that_takes_code(program: str) -> None:
    argv = program.split()
    assert code_places([*argv, VALUE, f"./{VALUE}"]) >= {len(argv)}
    assert not code_places([*argv, "--", VALUE]) & {len(argv) + 1}
    assert len(argv) + 1 not in code_places([*argv, "x", f"./{VALUE}"])
    for interpreter in ("python3", "sh", "awk", "env", "sudo"):
        assert 1 in code_places([interpreter, f"-{VALUE}", "x", "y"])
