"""Class `isolated`: what a job is, what it reaches, and what it leaves to the next job of its slot, in real guards as root."""

import json
import os
import platform
import select
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from toban_domain.secret import SecretFile
from toban_executor.adapters import python_step_runner, warm_zygote
from toban_executor.adapters.isolation import abilities_here
from toban_executor.adapters.lease_enforcer import LeaseEnforcer
from toban_executor.decide.guard_types import FreezeTurn, Kill, SetDeadline
from toban_executor.decide.isolation import SandboxLimits, SandboxPlan, UidRange, missing
from toban_executor.decide.models import AttemptEnd, StepOrder
from toban_executor.guard import cgroup, limit_groups, sandbox
from toban_executor.guard.clock import boottime, wall
from toban_executor.guard.guard_supervisor import own_folders
from toban_executor.guard.process_tree import children, descendants, real_uids, slot_of, start_time
from toban_executor.guard.sandbox import Sandbox
from toban_executor.guard.sandbox_init import SandboxSpec
from toban_fencing.executor_lease import Instant
from toban_testing.guard_harness import GuardHarness
from toban_testing.waiting import wait_for

UIDS = UidRange(60706, 61183)
IOPRIO_SET = {"x86_64": 251, "aarch64": 30}[platform.machine()]
pytestmark = pytest.mark.skipif(bool(missing(abilities_here(Path("/tmp")).effective)), reason="needs root")


def guards(folder: Path, *, namespaces: bool, slots: int = 1, processes: int = 200) -> GuardHarness:
    plan = SandboxPlan(UIDS, namespaces, SandboxLimits(processes=processes))
    return GuardHarness(folder, slots, sandboxes=plan)


@pytest.fixture(params=["namespaces", "uids alone"])
def any_guard(request: pytest.FixtureRequest) -> Iterator[GuardHarness]:
    """One slot; without namespaces its folders must be open on the way, which those of a test are not."""
    folder = Path(f"/var/tmp/toban-test-{os.urandom(6).hex()}")
    harness = guards(folder, namespaces=request.param == "namespaces")
    yield harness
    harness.close()
    shutil.rmtree(folder)


@pytest.fixture(scope="module")
def _guard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GuardHarness]:
    harness = guards(tmp_path_factory.mktemp("sandbox"), namespaces=True)
    yield harness
    harness.close()


@pytest.fixture
def guard(_guard: GuardHarness) -> Iterator[GuardHarness]:
    """One slot with namespaces, which the tests of this module share."""
    yield _guard
    _guard.next_test()


def sh(guard: GuardHarness, text: str, **fields: Any) -> str:
    """The output of a script that ends with 0."""
    guard.blocks.clear()
    end = guard.run("sh", "-c", text, **fields)
    assert (end.exit_code, end.reason) == (0, ""), guard.text
    return guard.text.decode()


def python(guard: GuardHarness, text: str, *, python: str = sys.executable) -> str:
    """The output of a program; without namespaces jobs may not reach the interpreter of the tests."""
    guard.blocks.clear()
    end = guard.run(python, "-I", "-c", text)
    assert end.exit_code == 0, guard.text
    return guard.text.decode()


def supervisor(guard: GuardHarness, slot: int = 0) -> int:
    """It has its name a moment after it was forked."""
    return int(wait_for(lambda: next(iter(p for p in children(guard.guards.supervisor.pid) if slot_of(p) == slot), 0)))


class TestRights:
    def test_nothing_of_root_is_left(self, any_guard: GuardHarness) -> None:
        status = sh(any_guard, "cat /proc/self/status")
        fields = dict(line.split(":\t", 1) for line in status.splitlines())
        [uid] = set(fields["Uid"].split())
        assert UIDS.first <= int(uid) <= UIDS.last
        assert fields["Gid"].split() == [uid] * 4 and fields["Groups"].split() in ([], [uid])
        assert {name: int(fields[name], 16) for name in fields if name.startswith("Cap")} == dict.fromkeys(
            ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"), 0
        )
        assert fields["NoNewPrivs"] == "1"

    def test_no_descriptor_but_its_own(self, any_guard: GuardHarness) -> None:
        assert sorted(sh(any_guard, "ls /proc/$$/fd").split()) == ["0", "1", "2", "3"]

    def test_the_payload_and_secrets_of_a_run_are_read_and_not_changed(self, any_guard: GuardHarness) -> None:
        secret = SecretFile(file="token", file_env="TOKEN_FILE", value=b"hush")
        script = """cat $TOBAN_PAYLOAD_FILE; wc -c < $TOKEN_FILE
        (echo x > $TOBAN_PAYLOAD_FILE) 2>/dev/null || echo kept
        rm -f $TOBAN_PAYLOAD_FILE $TOBAN_SOCKET 2>/dev/null || echo there"""
        text = sh(any_guard, script, payload_json='{"n": 1}', secrets=(secret,))
        assert text == '{"n": 1}4\nkept\nthere\n'

    def test_the_socket_answers(self, any_guard: GuardHarness) -> None:
        script = """import json, os, socket
s = socket.socket(socket.AF_UNIX); s.connect(os.environ["TOBAN_SOCKET"])
s.sendall(b'{"op":"heartbeat"}\\n'); print(s.recv(1000).decode())"""
        assert json.loads(python(any_guard, script, python="python3"))["ok"] is True

    def test_a_job_cannot_signal_its_sandbox_nor_see_who_watches_it(self, guard: GuardHarness) -> None:
        script = "kill -STOP 1; kill -KILL 1; kill -TERM 1; ps -eo pid,args --no-headers"
        lines = sh(guard, script).splitlines()
        assert [line.split()[0] for line in lines][:1] == ["1"] and len(lines) == 3, lines
        assert sh(guard, "echo again") == "again\n"

    @pytest.mark.parametrize("file", ["environ", "mem", "maps", "fd", "root"])
    def test_a_job_reads_nothing_of_its_sandbox(self, guard: GuardHarness, file: str) -> None:
        guard.blocks.clear()
        assert guard.run("sh", "-c", f"cat /proc/1/{file} || ls /proc/1/{file}/").exit_code != 0
        assert b"Permission denied" in guard.text

    def test_processes_beyond_the_limit_do_not_start(self, tmp_path: Path) -> None:
        few = guards(tmp_path, namespaces=True, processes=20)
        forks = "import os\ntry:\n    for n in range(60): os.fork() or os.execvp('sleep', ['sleep', '60'])\nexcept OSError: print(n)"
        assert 10 <= int(python(few, forks)) <= 20
        few.close()


class TestLeftovers:
    def test_files_are_gone_for_the_next_run(self, any_guard: GuardHarness) -> None:
        script = """mkdir -p a/b; touch a/b/c d .hidden; chmod 000 a; ls -A
        cd $(dirname $TOBAN_PAYLOAD_FILE); touch mine; mkdir -p m/n"""
        assert sh(any_guard, script).split() == [".hidden", "a", "d"]
        assert sh(any_guard, "ls -A . ; ls $(dirname $TOBAN_PAYLOAD_FILE)").split() == ["job.sock", "payload.json"]

    @pytest.mark.parametrize("make", ["mkdir", "touch", "ln -s /tmp"])
    def test_a_job_takes_no_name_from_the_secrets_of_the_next_run(self, any_guard: GuardHarness, make: str) -> None:
        folder = "$(dirname $TOBAN_PAYLOAD_FILE)"
        sh(any_guard, f"{make} {folder}/payload.secrets")
        assert sh(any_guard, f"ls {folder}").split() == ["job.sock", "payload.json"]
        sh(any_guard, f"{make} {folder}/payload.secrets")
        secret = SecretFile(file="token", file_env="TOKEN_FILE", value=b"hush")
        assert sh(any_guard, "wc -c < $TOKEN_FILE", secrets=(secret,)) == "4\n"

    def test_a_tree_deeper_than_python_can_go_is_gone(self, guard: GuardHarness) -> None:
        deep = "import os\nfor _ in range(3000):\n    os.mkdir('d'); os.chdir('d')"
        python(guard, deep)
        assert sh(guard, "ls -A") == ""

    def test_shared_memory_is_gone(self, guard: GuardHarness) -> None:
        sh(guard, "ipcmk -M 100; ipcmk -Q; ipcmk -S 1")
        assert "0x" not in sh(guard, "ipcs")

    def test_queues_of_messages_cannot_be_made(self, guard: GuardHarness) -> None:
        script = """import ctypes, errno
libc = ctypes.CDLL(None, use_errno=True)
libc.mq_open(b"/left", 0o102, 0o600, None); print(errno.errorcode[ctypes.get_errno()])"""
        assert python(guard, script) in ("EMFILE\n", "ENOSYS\n")

    def test_keys_of_the_kernel_cannot_be_made(self, any_guard: GuardHarness) -> None:
        """The keyring of a uid outlives its processes; other calls go on, also with numbers beside these."""
        first = {"x86_64": 248, "aarch64": 217}[platform.machine()]
        script = f"""import ctypes, errno
libc = ctypes.CDLL(None, use_errno=True)
for number in range({first - 1}, {first + 4}):
    given = [ctypes.c_long(one) for one in (number, -1, -1, 0, 0, 0)]
    print(libc.syscall(*given) == -1 and errno.errorcode[ctypes.get_errno()] == "ENOSYS")"""
        refused = python(any_guard, script, python="python3").split()
        assert refused == ["False", "True", "True", "True", "False"]
        # The session keyring is a new one; programs of the machine may have made those of the uid.
        assert sh(any_guard, "grep -Ev '(_ses|_uid.*): empty' /proc/keys || true") == ""

    @pytest.mark.parametrize(
        "change",
        [
            "resource.prlimit(1, resource.RLIMIT_FSIZE, (0, 0))",
            "resource.prlimit(1, resource.RLIMIT_NOFILE, (4, 4))",
            "os.setpriority(os.PRIO_PROCESS, 1, 19)",
            "os.sched_setaffinity(1, {0})",
            f"ctypes.CDLL(None).syscall({IOPRIO_SET}, 1, 1, 3 << 13)",
        ],
    )
    def test_limits_of_the_sandbox_are_as_before(self, guard: GuardHarness, change: str) -> None:
        show = "ulimit -f; ulimit -n; nice; ionice; grep Cpus_allowed: /proc/self/status"
        before = sh(guard, show)
        python(guard, f"import ctypes, os, resource\n{change}")
        assert sh(guard, show) == before

    def test_a_job_that_stops_its_processes_leaves_none(self, any_guard: GuardHarness) -> None:
        guard = any_guard
        end = guard.run("sh", "-c", "setsid sleep 100 & kill -STOP $!; (setsid env -i sleep 100 &); exit 3")
        assert end.exit_code == 3
        wait_for(lambda: [pid for pid in descendants(supervisor(guard)) if b"sleep" in cmdline(pid)] == [])


def cmdline(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


class TestShownFolders:
    @pytest.mark.parametrize("above", ["/tmp", "/var/tmp", "/root"])
    def test_a_folder_below_a_closed_one_is_seen_in_every_run(self, tmp_path: Path, above: str) -> None:
        """And nothing beside it."""
        with tempfile.TemporaryDirectory(dir=above) as outer:
            shown = Path(outer) / "shown"
            shown.mkdir()
            Path(outer).chmod(0o755)
            (shown / "file").write_text("seen")
            (Path(outer) / "beside").touch()
            plan = SandboxPlan(UIDS, True, SandboxLimits(), shown=(str(shown),))
            harness = GuardHarness(tmp_path, sandboxes=plan)
            try:
                for _ in range(2):
                    assert (
                        sh(harness, f"cat {shown}/file; ls {outer}; touch /tmp/left; ls -A /tmp | grep left")
                        == "seenshown\nleft\n"
                    )
                    assert harness.run("touch", f"{shown}/made").exit_code != 0
            finally:
                harness.close()
            assert (shown / "file").exists()


def test_the_folder_in_which_the_executor_was_started_is_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend("/root")
    assert "/root" not in own_folders() and os.path.realpath(sys.prefix) in own_folders()


class TestNeighbours:
    """Two slots at once."""

    @pytest.fixture
    def two(self, tmp_path: Path) -> Iterator[GuardHarness]:
        harness = guards(tmp_path, namespaces=True, slots=2)
        yield harness
        harness.close()

    def test_a_run_reaches_nothing_of_another(self, two: GuardHarness) -> None:
        secret = SecretFile(file="token", file_env="TOKEN_FILE", value=b"hush")
        two.spawn("sh", "-c", "echo mine > /tmp/file; echo ready; sleep 100", secrets=(secret,))
        two.receive_text(b"ready")
        # A child that has not executed its program yet has the same words.
        victim = next(pid for pid in descendants(supervisor(two)) if cmdline(pid).startswith(b"sh\0"))
        two.blocks.clear()
        guarding = two.guards.supervisor.pid
        script = f"""
        for pid in {victim} {guarding} {supervisor(two)} {supervisor(two, 1)}; do kill -STOP $pid && echo stopped; done
        ls -A /tmp; ls /dev/shm; find / -name token -newer /proc/1 2>/dev/null; ps -e --no-headers | wc -l; exit 0"""
        token = two.spawn("sh", "-c", script, slot=1)
        end = two.receive(AttemptEnd, slot=1)
        assert end.key.token == token and end.exit_code == 0
        assert b"stopped" not in two.text and b"token" not in two.text and b"file" not in two.text, two.text
        assert start_time(victim)

    def test_each_slot_has_its_uid(self, two: GuardHarness, tmp_path: Path) -> None:
        other = guards(tmp_path / "other", namespaces=True, slots=1)
        try:
            uids = {sh(other, "id -u")}
            for slot in (0, 1):
                two.blocks.clear()
                two.spawn("id", "-u", slot=slot)
                two.receive(AttemptEnd, slot=slot)
                uids.add(two.text.decode())
        finally:
            other.close()
        assert len(uids) == 3, "also beside the executors of the same machine"


class TestLease:
    def test_a_frozen_job_stands_still_and_goes_on(self, any_guard: GuardHarness) -> None:
        guard = any_guard
        token = guard.spawn("sh", "-c", "while :; do echo x; sleep 0.01; done", lease=0.6, on_lease_loss="freeze")
        guard.receive(FreezeTurn)
        sandbox = children(supervisor(guard))[0]
        below = [sandbox, *descendants(sandbox)]
        later = Instant(boottime() + 60, wall() + 60)
        assert all(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "TDS" for pid in below)
        guard.blocks.clear()
        guard.send(SetDeadline(token=token, deadline=later, thaw=True))
        guard.receive_text(b"x\nx\nx\n")
        guard.send(Kill(token=token, cause="cancel", reason="", grace=0.0))
        assert guard.receive(AttemptEnd).cause == "cancel"
        assert sh(guard, "echo again") == "again\n"

    def test_everything_ends_with_the_executor(self, tmp_path: Path) -> None:
        guard = guards(tmp_path, namespaces=True)
        guard.spawn("sh", "-c", "setsid sleep 100 & echo ready; sleep 100")
        guard.receive_text(b"ready")
        below = descendants(guard.guards.supervisor.pid)
        guard.close()
        assert [pid for pid in below if start_time(pid)] == []

    def test_everything_ends_with_killed_guards(self, tmp_path: Path) -> None:
        guard = guards(tmp_path, namespaces=True)
        guard.spawn("sh", "-c", "trap '' TERM; setsid env -i sleep 100 & echo ready; sleep 100")
        guard.receive_text(b"ready")
        below = descendants(guard.guards.supervisor.pid)
        os.kill(guard.guards.supervisor.pid, signal.SIGKILL)
        os.kill(below[0], signal.SIGKILL)
        wait_for(lambda: not any(start_time(pid) for pid in below))
        guard.close()

    @pytest.mark.parametrize("any_guard", ["uids alone"], indirect=True)
    def test_the_executor_ends_what_dead_guards_have_left(
        self, any_guard: GuardHarness, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Where neither a namespace nor a control group ends it; neither a tree nor a variable shows it."""
        any_guard.spawn("sh", "-c", "setsid env -i sleep 100 & echo ready; exec env -i sleep 100")
        any_guard.receive_text(b"ready")
        guards, [uid] = any_guard.guards, any_guard.guards.claims.uids
        wait_for(lambda: [cmdline(pid) for pid, its in real_uids() if its == uid].count(b"sleep\x00100\x00") == 2)
        slot = supervisor(any_guard)
        for number in (signal.SIGSTOP, signal.SIGKILL):
            for pid in (guards.supervisor.pid, slot):
                os.kill(pid, number)
        guards.supervisor.wait()
        wait_for(lambda: not start_time(slot))
        monkeypatch.setattr(cgroup, "find_base", lambda _name, *, make: None)
        LeaseEnforcer(guards).kill_abandoned()
        assert [pid for pid, its in real_uids() if its == uid and start_time(pid)] == []


class TestUserNamespace:
    """Class `shared` where user namespaces are possible: the uid of the executor, and neither its processes nor its files."""

    @pytest.fixture
    def shared(self) -> Iterator[GuardHarness]:
        folder = Path(f"/var/tmp/toban-test-{os.urandom(6).hex()}")
        (folder / "state").mkdir(parents=True)
        (folder / "state" / "instance-secret").write_text("hush")
        plan = SandboxPlan(None, True, SandboxLimits(processes=200), hidden=(str(folder / "state"), "/no/such"))
        harness = GuardHarness(folder / "state", sandboxes=plan)
        yield harness
        harness.close()
        shutil.rmtree(folder)

    def test_a_job_has_the_uid_of_the_executor_and_no_capability(self, shared: GuardHarness) -> None:
        status = sh(shared, "cat /proc/self/status")
        assert f"Uid:\t{os.geteuid()}\t" in status
        assert {line.split()[1] for line in status.splitlines() if line.startswith("Cap")} == {"0" * 16}
        assert "NoNewPrivs:\t1" in status

    def test_it_sees_its_folders_and_no_file_of_the_executor(self, shared: GuardHarness) -> None:
        text = sh(
            shared,
            f"touch left; ls -A {shared.state} {shared.state}/work; cat $TOBAN_PAYLOAD_FILE; touch {shared.state.parent}/kept",
        )
        assert "instance-secret" not in text and "guards" not in text and text.endswith("{}")
        assert (shared.state.parent / "kept").exists(), "other files of the user are there"
        assert sh(shared, "ls -A") == ""

    def test_a_folder_that_a_job_has_closed_is_open_to_the_next(self, shared: GuardHarness) -> None:
        sh(shared, "touch left; chmod 000 . $(dirname $TOBAN_PAYLOAD_FILE)")
        assert sh(shared, "stat -c %a . $(dirname $TOBAN_PAYLOAD_FILE); ls -A") == "700\n700\n"

    def test_it_reaches_no_process_outside(self, shared: GuardHarness) -> None:
        script = f"kill -STOP {shared.guards.supervisor.pid} {supervisor(shared)} 2>&1; kill -KILL 1; ps -e --no-headers | wc -l"
        lines = sh(shared, script).splitlines()
        assert [line for line in lines if "No such process" in line] != [] and int(lines[-1]) <= 5
        assert not shared.guards.supervisor.poll()

    def test_a_covered_folder_is_not_uncovered_in_a_namespace_below(self, shared: GuardHarness) -> None:
        shared.blocks.clear()
        shared.run(
            "unshare", "--user", "--mount", "sh", "-c", f"umount {shared.state}; cat {shared.state}/instance-secret"
        )
        assert b"hush" not in shared.text

    def test_shared_memory_and_processes_are_gone_for_the_next_run(self, shared: GuardHarness) -> None:
        sh(shared, "ipcmk -M 100; setsid sleep 100 >/dev/null 2>&1 &")
        assert "0x" not in sh(shared, "ipcs -m; ps -e --no-headers | grep -c sleep || true")

    def test_guards_are_not_dumpable(self, shared: GuardHarness) -> None:
        assert sh(shared, "echo there") == "there\n"
        for pid in (shared.guards.supervisor.pid, supervisor(shared), *children(supervisor(shared))):
            assert not is_dumpable(pid)


def is_dumpable(pid: int) -> bool:
    """Asked as the kernel decides it for a process of the same user without rights: by the owner of its files."""
    if os.geteuid():
        return os.access(f"/proc/{pid}/environ", os.R_OK)
    done = subprocess.run(
        ["setpriv", "--bounding-set=-all", "--inh-caps=-all", "cat", f"/proc/{pid}/environ"],
        capture_output=True,
        check=False,
    )
    return done.returncode == 0


class TestWarm:
    @staticmethod
    def warm(guard: GuardHarness) -> int:
        """Runs a warm step; returns its zygote."""
        runner, folder, call = python_step_runner.__file__, "/usr/share", ("own", "platform:platform", "/usr/share")
        argv = (sys.executable, "-I", "-S")
        step = StepOrder(
            type="python",
            argv=(*argv, runner, *call),
            warm_argv=(*argv, warm_zygote.__file__, runner, folder, "--", "platform"),
            warm_call=call,
        )
        end = guard.run("-", steps=(step,), env={"PATH": "/usr/bin:/bin"})
        assert (end.exit_code, end.cause) == (0, ""), guard.text
        [sandbox] = children(supervisor(guard))
        [zygote] = children(sandbox)
        return zygote

    def test_a_zygote_has_the_uid_of_its_slot_and_serves_the_next_run(self, guard: GuardHarness) -> None:
        zygote = self.warm(guard)
        status = Path(f"/proc/{zygote}/status").read_text()
        uid = int(status.split("Uid:\t")[1].split()[0])
        assert f"CapPrm:\t{0:016x}" in status and UIDS.first <= uid <= UIDS.last
        assert self.warm(guard) == zygote and b"without its zygote" not in guard.text

    @pytest.mark.parametrize(
        "change",
        [
            "resource.prlimit(zygote, resource.RLIMIT_FSIZE, (0, 0))",
            "os.setpriority(os.PRIO_PROCESS, zygote, 19)",
            "os.kill(zygote, signal.SIGSTOP)",
            "os.kill(zygote, signal.SIGKILL)",
        ],
    )
    def test_a_zygote_that_another_job_has_changed_serves_no_run(self, guard: GuardHarness, change: str) -> None:
        zygote = self.warm(guard)
        limits = Path(f"/proc/{zygote}/limits").read_text()
        others = (
            "[zygote] = [int(pid) for pid in os.listdir('/proc') if pid.isdigit() and int(pid) not in (1, os.getpid())]"
        )
        python(guard, f"import os, resource, signal\n{others}\n{change}")
        guard.blocks.clear()
        other = self.warm(guard)
        assert other != zygote and b"without its zygote" not in guard.text
        assert Path(f"/proc/{other}/limits").read_text() == limits

    def test_a_job_reads_nothing_of_a_zygote(self, guard: GuardHarness) -> None:
        self.warm(guard)
        script = """for pid in $(ls /proc | grep -E '^[0-9]+$' | grep -vx -e 1 -e $$); do
        grep -q warm_zygote /proc/$pid/cmdline 2>/dev/null || continue
        echo there; for file in mem environ maps; do cat /proc/$pid/$file 2>/dev/null && echo $file; done
        ls /proc/$pid/fd/ 2>/dev/null && echo fd; done; exit 0"""
        assert sh(guard, script) == "there\n"


def test_a_sandbox_is_not_alone_while_it_has_an_end_to_tell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It reaps a process before it tells of it: what looked in between would take the end for lost."""
    one = Sandbox(spec=SandboxSpec(UIDS.last, False, str(tmp_path), str(tmp_path)), poll=select.poll())
    # The process of the tests has other children, too.
    monkeypatch.setattr(sandbox, "children", lambda pid: [one.pid] if pid == os.getpid() else children(pid))
    one.begin()
    assert one.is_alone(set())
    null = os.open("/dev/null", os.O_RDWR)
    pid = one.start(program="/bin/true", argv=["true"], env={}, directory="/", fds=[null] * 4)
    os.close(null)
    wait_for(lambda: children(one.pid) == [])
    assert not one.is_alone(set())
    wait_for(lambda: one.ended() == [(pid, 0)])
    assert one.is_alone(set())
    one.close()


def test_a_range_that_is_too_small_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="SCHEDULER_JOB_UIDS=61190-61191 has 2 free uids, and 3 slots need one each"):
        GuardHarness(tmp_path, 3, sandboxes=SandboxPlan(UidRange(61190, 61191), True))


def test_a_working_directory_that_the_uid_may_not_enter(guard: GuardHarness) -> None:
    with tempfile.TemporaryDirectory(dir="/run") as closed:
        end = guard.run("/bin/true", working_dir=closed)
    assert end.cause == "spawn_failed" and "Permission denied" in end.reason


def test_memory_beyond_the_limit_ends_the_job_and_nothing_else(tmp_path: Path) -> None:
    plan = SandboxPlan(UIDS, True, SandboxLimits(memory_mb=64, processes=100, cpus=0.5))
    harness = GuardHarness(tmp_path, sandboxes=plan)
    try:
        assert harness.run(sys.executable, "-I", "-c", "x = bytearray(200 << 20)").exit_code != 0
        groups = limit_groups.find(plan.limits, None)
        if groups.kind == limit_groups.V1:
            assert "toban" in sh(harness, "grep -E 'memory|pids|cpu' /proc/self/cgroup")
            [quota] = groups.folders["cpu"].glob(f"toban-{harness.incarnation}-*/cpu.cfs_quota_us")
            assert quota.read_text() == "50000\n"
        assert sh(harness, "echo again") == "again\n"
    finally:
        harness.close()
    assert not any(list(folder.glob(f"toban-{harness.incarnation}*")) for folder in groups.folders.values())
