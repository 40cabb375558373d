"""What counts as shell."""

from __future__ import annotations

import re

import pytest

from toban_domain.shell_detection import Place, callable_reason, code_places, shell_reason, templates_in_code

COUNTED = [
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
]


@pytest.mark.parametrize("argv", COUNTED)
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
sh -o (pipefail) -c (code)
bash +x -c (code)
bash +o (pipefail) -c (code)
bash --norc --rcfile (x) -c (code)
bash -co (pipefail) (code)
sh -c -- (code) x
bash - (file) x
/bin/bash (file) x
busybox (sh) -c (code) x
busybox (awk) (code) x
timeout 5 (bash) -c (code) x
timeout -k 9 x (true) x
timeout --signal KILL 10 (sh) -c (code)
timeout --kill-after 5 10 (program) x
timeout --sig KILL 10 (program) x
timeout --foreground 10 (program) x
timeout --unknown a (10) (program)
python3 -c (code) x
python3.11 -W (ignore) -c (code) x
python3 -m (module) x
python3 (file) -c x
node (--eval=code) x
node -pe (code)
node -r (module) -pe (code)
node -r (module) (file) x
deno eval (code) x
deno run (file) x
deno run --allow-net (file) x
perl -ne (code) x
perl (-Mmodule) (file) x
php -d (setting) (file) x
lua -l (module) (file) x
awk (code) x
goawk (code) x
gawk -v a=x -F : (code) x
gawk -i (inplace) (code) f
gawk -l (readdir) (code) f
gawk --assign a=1 (code) f
awk -f (file) x
sed -n (code) -- x
sed -E (code) f
sed -nE (code) f
sed -l 5 (code) f
sed -e (code) -e (code)
sed x -e (code)
env (program) x
env - (program) x
env - (sh) -c (code)
env A=x B=x (awk) (code) x
env -u A -S (code) (program)
env (--split-string=code)
env (--split=code)
nice -n 5 (program) x
nice -5 (program) x
nice --adjustment 5 (program) x
nohup (program) x
sudo -u x (program) x
sudo --user x (sh) -c (code)
sudo --user x (git) clone x
xargs -0 -n 1 (program) x
xargs --max-args 1 (sh) -c (code)
find x -name x -exec (program) x ; -ok (sh) -c (code) ;
chroot x (program) x
flock x (program) x
flock x -c (code)
flock -n x --command (code)
flock --timeout 5 x (sh) -c (code)
watch (a) (b)
su (user) (-c) (code)
script (-c) (code) (x)
ssh (host) (ls)
psql -v a=x -f (file)
psql x -c (code)
psql x -v
psql -f
psql -c (code)
mysql -e (code)
sqlite3 base (code)
sqlite3 -init (file) base (code)
make (-f) (file) (--) (x)
make (VERSION=x)
gmake (--eval=x)
tar -czf x -- x
tar (--to-command=code)
tar -xf x (--to-com=code)
tar -xf x -I (program)
rsync -e (code) -- x
scp -o (option) x h:/x
sftp -S (program) x
split --filter (code) x
split (--filter=code) x
sort --compress-program (program) x
zip -TT (code) x
gdb -ex (code) x
dc -e (code)
m4 (file)
guile -c (code)
julia -e (code)
R -e (code)
git (x)
git -c (setting) (status)
git (--exec-path=x) (status)
git clone --upload-pack (program) x
git clone -c (setting) x
git fetch (--upload-pack=program) x
git push (--receive-pack=program) x
git rebase -x (code) x
git archive (--exec=program)
git bisect run (program) x
git submodule foreach (code)
git filter-branch (--tree-filter) (code)
docker exec x (sh) -c (code)
docker exec -it -u x x (program) x
docker run --rm -e A=x x (sh) -c (code)
docker run --entrypoint (program) x (x)
podman exec --unknown x (x) (sh) -c (code)
podman container exec x (program) x
nerdctl run -v a:b x (program) x
docker --unknown (x) exec z (sh) -c (code)
docker compose -f x exec x (program) x
kubectl exec x -c x -- (sh) -c (code)
kubectl -n x exec x -- (program) x
kubectl run x --image=x -- (program) x
oc exec x -- (program) x
strace -f -o (file) (program) x
strace -e x (sh) -c (code)
ltrace (program) x
tini -s -- (program) x
dumb-init --rewrite 15:2 (program) x
gosu x (program) x
su-exec x (program) x
setuidgid x (program) x
s6-setuidgid x (program) x
chpst -u x (program) x
pkexec --user x (program) x
fakeroot (program) x
runcon -t x x (program) x
catchsegv (program) x
valgrind --tool=x (program) x
numactl --interleave all (program) x
systemd-run --user --unit x (program) x
systemd-run -p (setting) (program)
unshare --map-user 1 -n (program) x
nsenter --target 1 -m (program) x
setpriv --reuid 1 (program) x
bwrap --ro-bind / / --dev /dev (program) x
prlimit --nofile=9 (program) x
chrt --rr 5 (program) x
taskset -c 0 (program) x
npx --yes (program) x
uv run (program) x
bundle exec (program) x
"""
# What stays allowed: V is a value.
ALLOWED = """
echo V
sh -c code sh V
python3 x.py V --day=V
python3 -u x.py V
python3 -c code V
perl -pe code -- V
node -e code -- V
awk -v day=V code f
sed -n 1p -- V
sed -n 1p ./V
timeout V prog x
timeout --signal KILL 5 prog V
timeout --foreground 5 prog V
env A=V prog V
env -i prog V
sudo --user x --login prog V
xargs --null prog V
find V -name V
find x -name x -exec prog V ;
flock -n x prog V
tar -cf a.tar -- V
tar -cf V -- x
rsync -a -- V h:/x
psql -v day=V -f file -- V
psql -U V
git clone -- V
git checkout V
git log V
git -C V status
git commit -m V
git fetch origin -- V
git push -o V
docker exec x prog V
docker exec -e A=V x prog V
docker run --rm -v V:/x image prog V
docker pull V
docker logs --follow V
docker cp x V
kubectl get pod V
kubectl -n V delete job V
kubectl exec x -- prog V
strace prog V
tini -- prog V
systemd-run --unit V prog V
scp -P 22 -- V h:/x
split -b V -- x
sort -k 1 -- V
"""
# A value at V could become an option, so that the remedy is "--"; or it is code, or a program.
REMEDIES = {
    Place.OPTION: "tar -cf a.tar V|rsync -a V h:x|psql V|sed -n 1p V|git clone V|scp V h:x|docker run V x|sh -V"
    "|sed -e x V|perl -pe x V|node -e x V|awk -f x V",
    Place.CODE: "sh -c V|make V|sed V|ssh h V|git -c V status|docker run --entrypoint V x|make -- V|make ./V",
    Place.PROGRAM: "env V|V x|docker exec x V|sudo -u x V",
}


def in_parentheses(line: str) -> tuple[list[str], set[int]]:
    words = line.split()
    return [word.strip("()") for word in words], {at for at, word in enumerate(words) if word.startswith("(")}


def with_values(line: str) -> list[str]:
    return [re.sub(r"\bV\b", VALUE, word) for word in line.split()]


def test_a_value_may_not_become_a_program_or_its_code(subtests: pytest.Subtests) -> None:
    for line in CODE.strip().splitlines():
        argv, places = in_parentheses(line)
        with subtests.test(line):
            assert set(code_places(argv)) == {0, *places}
        for at in places:
            with subtests.test(line, at=at):
                word = argv[at].partition("=")[0] + f"={VALUE}" if "=" in argv[at] else VALUE
                assert at in templates_in_code([*argv[:at], word, *argv[at + 1 :]])


def test_values_that_are_arguments(subtests: pytest.Subtests) -> None:
    for line in ALLOWED.strip().splitlines():
        with subtests.test(line):
            assert not templates_in_code(with_values(line))


def test_the_remedy_fits_the_place(subtests: pytest.Subtests) -> None:
    for place, lines in REMEDIES.items():
        for line in lines.split("|"):
            with subtests.test(line):
                assert list(templates_in_code(with_values(line)).values()) == [place]


def test_what_an_earlier_rule_refused_is_refused(subtests: pytest.Subtests) -> None:
    """It refused each template from a shell on, or an interpreter with code, up to the first word that is no option, which is the code."""
    corpus = [*COUNTED, *(in_parentheses(line)[0] for line in CODE.strip().splitlines())]
    refused = 0
    for argv in corpus:
        for at in range(len(argv)):
            changed = [*argv[:at], VALUE, *argv[at + 1 :]]
            first, code = refused_earlier(changed)
            if first <= at <= code:
                refused += 1
                with subtests.test(" ".join(changed)):
                    assert at in templates_in_code(changed)
    assert refused > 50


def refused_earlier(argv: list[str]) -> tuple[int, int]:
    """The shell or interpreter that is named first, and its code; (0, -1): there is none."""
    for first, word in enumerate(argv):
        if shell_reason(argv) and shell_reason(argv[first:]).startswith(f"{word.rpartition('/')[2]} "):
            words = [at for at in range(first + 1, len(argv)) if not argv[at].startswith("-")]
            words = words[1:] if words and argv[words[0]] == "eval" else words
            return first, words[0] if words else len(argv)
    return 0, -1


@pytest.mark.parametrize("word", ["env", "find -exec", "find -exec sh"])
def test_a_command_of_many_commands_is_judged_in_short_time(word: str) -> None:
    argv = [*(word.split() * 10_000), "-c", VALUE]
    assert len(argv) - 1 in templates_in_code(argv)


@pytest.mark.parametrize("program", ["sed -n 1p", "psql", "mysql", "tar -czf a.tgz", "rsync -a", "git clone", "scp"])
def test_a_value_may_not_become_an_option_that_takes_code(program: str) -> None:
    argv = program.split()
    assert set(code_places([*argv, VALUE, f"./{VALUE}"])) >= {len(argv)}
    assert len(argv) + 1 not in code_places([*argv, "--", VALUE])
    assert len(argv) + 1 not in code_places([*argv, "x", f"./{VALUE}"])
    for interpreter in ("python3", "sh", "awk", "env", "sudo"):
        assert 1 in code_places([interpreter, f"-{VALUE}", "x", "y"])
