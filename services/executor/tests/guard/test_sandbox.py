"""Class `isolated`: what a job is, what it reaches, and what it leaves to the next job of its slot, in real guards as root."""

import errno
import json
import os
import platform
import select
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from toban_domain.secret import SecretFile
from toban_executor.adapters import python_step_runner, warm_zygote
from toban_executor.adapters.isolation import abilities_here
from toban_executor.adapters.lease_enforcer import LeaseEnforcer
from toban_executor.decide.guard_types import FreezeTurn, Kill, SetDeadline
from toban_executor.decide.isolation import SandboxLimits, SandboxPlan, UidRange, missing
from toban_executor.decide.models import AttemptEnd, StepOrder
from toban_executor.guard import cgroup, kernel, limit_groups, uid_claims
from toban_executor.guard.clock import boottime, wall
from toban_executor.guard.guard_supervisor import own_folders
from toban_executor.guard.process_tree import children, descendants, real_uids, start_time
from toban_executor.guard.sandbox import Sandbox
from toban_executor.guard.sandbox_init import SandboxSpec
from toban_executor.guard.spawn import SpawnError
from toban_fencing.executor_lease import Instant
from toban_testing.guard_harness import GuardHarness, python, sh, supervisor
from toban_testing.waiting import wait_for

UIDS = UidRange(60706, 61183)
IOPRIO_SET = {"x86_64": 251, "aarch64": 30}[platform.machine()]
pytestmark = pytest.mark.skipif(bool(missing(abilities_here(Path("/tmp")).effective)), reason="needs root")


EXISTS = """def exists(pid):
    try: os.kill(pid, 0)
    except ProcessLookupError: return False
    return True"""


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
        # Itself and `ps`.
        assert len(lines) == 2 and "1" not in [line.split()[0] for line in lines], lines
        assert sh(guard, "echo again") == "again\n"

    @pytest.mark.parametrize("file", ["environ", "mem", "maps", "fd", "root"])
    def test_a_job_reads_nothing_of_its_sandbox(self, guard: GuardHarness, file: str) -> None:
        guard.blocks.clear()
        assert guard.run("sh", "-c", f"cat /proc/1/{file} || ls /proc/1/{file}/").exit_code != 0
        assert b"No such file" in guard.text

    def test_processes_beyond_the_limit_do_not_start(self, tmp_path: Path) -> None:
        few = guards(tmp_path, namespaces=True, processes=20)
        forks = "import os\ntry:\n    for n in range(60): os.fork() or os.execvp('sleep', ['sleep', '60'])\nexcept OSError: print(n)"
        assert 10 <= int(python(few, forks)) <= 20
        few.close()

    @pytest.mark.parametrize("number", ["USR1", "USR2", "TERM", "HUP", "XFSZ"])
    def test_a_job_can_trap_signals(self, any_guard: GuardHarness, number: str) -> None:
        """A shell cannot trap one that it found ignored, as the process that starts it does."""
        assert sh(any_guard, f"trap 'echo got' {number}; kill -{number} $$") == "got\n"


class TestLeftovers:
    def test_what_a_run_sets_on_its_descriptors_is_gone_for_the_next_one(self, any_guard: GuardHarness) -> None:
        """Flags, locks and owners belong to the open file."""
        look = "import fcntl, os\nprint([fcntl.fcntl(fd, fcntl.F_GETFL) for fd in (0, 3)])\n"
        change = "for fd in (0, 3): fcntl.fcntl(fd, fcntl.F_SETFL, os.O_NONBLOCK | os.O_APPEND)\n"
        first = python(any_guard, look + change, python="python3")
        assert python(any_guard, look, python="python3") == first

    def test_proc_in_the_hands_of_another_slot_shows_no_process(self, tmp_path: Path) -> None:
        """Slots have the network in common, and so its abstract sockets, by which a job can give its folders away."""
        two = guards(tmp_path, namespaces=True, slots=2)
        name = f"\\0toban-test-{os.urandom(6).hex()}"
        taker = f"""import os, socket
s = socket.socket(socket.AF_UNIX); s.bind("{name}"); s.listen(); print("listens", flush=True)
c = s.accept()[0]; fd = socket.recv_fds(c, 1, 1)[1][0]
print([one for one in os.listdir(fd) if one.isdigit()], flush=True)
c.send(b"done")"""
        two.spawn(sys.executable, "-I", "-c", taker, slot=1)
        two.receive_text(b"listens", slot=1)
        giver = f"""import os, socket
s = socket.socket(socket.AF_UNIX); s.connect("{name}")
socket.send_fds(s, [b"x"], [os.open("/proc", os.O_RDONLY)]); s.recv(4)"""
        assert two.run(sys.executable, "-I", "-c", giver).exit_code == 0
        assert two.receive(AttemptEnd, slot=1).exit_code == 0
        assert two.text == b"listens\n[]\n"
        two.close()

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

    def test_shared_memory_is_gone(self, any_guard: GuardHarness) -> None:
        made = sh(any_guard, "ipcmk -M 100; ipcmk -Q; ipcmk -S 1; ipcs -c | grep -cw $(id -u)")
        assert made.endswith("\n3\n")
        assert sh(any_guard, "ipcs -c | grep -cw $(id -u) || true") == "0\n"

    def test_shared_memory_that_its_maker_has_given_away_is_gone(self, any_guard: GuardHarness) -> None:
        """It may still use it."""
        script = """import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
number = libc.shmget(0, 100, 0o1666)
data = (ctypes.c_uint32 * 64)()
assert not libc.shmctl(number, 2, data), "IPC_STAT"
assert data[1] == os.getuid()
data[1] = 12345
assert not libc.shmctl(number, 1, data), "IPC_SET"
print(number)"""
        number = int(python(any_guard, script, python="python3"))
        look = f"import ctypes; print(ctypes.CDLL(None).shmctl({number}, 2, (ctypes.c_uint32 * 64)()))"
        assert python(any_guard, look, python="python3") == "-1\n"

    def test_files_in_open_folders_are_gone(self, any_guard: GuardHarness) -> None:
        """Those of others stay, also when a link names them."""
        name = f"toban-left-{os.urandom(6).hex()}"
        with tempfile.NamedTemporaryFile(dir="/dev/shm") as other:
            Path(other.name).chmod(0o666)
            script = f"""for folder in /tmp /var/tmp /dev/shm; do
            touch $folder/{name}; mkdir -p $folder/{name}.d/a/b; touch $folder/{name}.d/a/b/c; chmod 000 $folder/{name}.d/a
            ln -s {other.name} $folder/{name}.l; ln -s /dev/shm $folder/{name}.m; done"""
            sh(any_guard, script)
            assert sh(any_guard, f"ls -d /tmp/{name}* /var/tmp/{name}* /dev/shm/{name}* 2>/dev/null || true") == ""
            assert Path(other.name).exists()

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


def test_without_a_namespace_of_ipc_no_attempt_starts_and_the_supervisor_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each attempt tries again."""

    def refuse(_flags: int) -> None:
        raise OSError(errno.ENOSPC, "no more namespaces")

    monkeypatch.setattr(kernel, "unshare", refuse)
    sandbox = Sandbox(spec=SandboxSpec(UIDS.first, True, "/", "/"), poll=select.poll())
    for _ in range(2):
        with pytest.raises(SpawnError, match="the sandbox of this slot does not start: no more namespaces"):
            sandbox.begin()
        sandbox.attempt_ended()


def test_what_cannot_be_removed_does_not_end_the_supervisor(monkeypatch: pytest.MonkeyPatch) -> None:
    """Such as when no process can be had for a tree that is too deep."""

    def refuse(_path: str) -> None:
        raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))

    monkeypatch.setattr(uid_claims, "remove_tree", refuse)
    uid = UIDS.last + 1000
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        os.chown(folder, uid, uid)
        file = Path(f"{folder}.file")
        file.touch()
        os.chown(file, uid, uid)
        uid_claims.remove_left(uid)
        assert (os.geteuid(), Path(folder).exists(), file.exists()) == (0, True, False)


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
        # /proc shows it to no job.
        others = "[zygote] = [pid for pid in range(2, 3000) if pid != os.getpid() and exists(pid)]"
        python(guard, f"import os, resource, signal\n{EXISTS}\n{others}\n{change}")
        guard.blocks.clear()
        other = self.warm(guard)
        assert other != zygote and b"without its zygote" not in guard.text
        assert Path(f"/proc/{other}/limits").read_text() == limits

    def test_a_job_reads_nothing_of_a_zygote(self, guard: GuardHarness) -> None:
        self.warm(guard)
        script = """for pid in $(seq 2 300); do
        test $pid = $$ && continue
        kill -0 $pid 2>/dev/null || continue
        echo there; for file in cmdline mem environ maps; do cat /proc/$pid/$file 2>/dev/null && echo $file; done
        ls /proc/$pid/fd/ 2>/dev/null && echo fd; done; exit 0"""
        assert sh(guard, script) == "there\n"


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
