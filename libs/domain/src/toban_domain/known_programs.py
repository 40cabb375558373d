"""Programs whose arguments can be a program or code: which of them are. A list of what is known; it cannot be complete."""

from __future__ import annotations

from collections.abc import Mapping

from toban_domain.program_options import COMMAND, Program

SHELLS = frozenset(
    {"sh", "bash", "dash", "zsh", "ksh", "mksh", "fish", "csh", "tcsh", "ash", "rbash", "busybox", "pwsh"}
)

# `sh -o pipefail -c CODE`: the code is the first argument, whatever is before it.
SHELL = Program(
    also="oO",
    words="- --rcfile+ --init-file+ --norc --noprofile --login --posix --restricted --verbose",
    place=1,
    signs="-+",
)

# Matched by prefix, so that python3.11 is python.
INTERPRETERS: Mapping[str, Program] = {
    "python": Program(code="c", also="WX", end="m", words="--check-hash-based-pycs=", place=1, ends=True),
    "pypy": Program(code="c", also="WX", end="m", words="--jit=", place=1, ends=True),
    "perl": Program(code="eE", also="IMm", place=1),
    "ruby": Program(code="e", also="IrC", words="--require+", place=1),
    "node": Program(
        code="ep",
        also="r",
        value="C",
        words="-pe! --eval! --print! --require+ --import+ --loader+ --experimental-loader+ --env-file= --conditions= --inspect --no-warnings",
        place=1,
    ),
    "php": Program(code="rBRE", also="dcz", place=1),
    "lua": Program(code="e", also="l", place=1),
    "Rscript": Program(code="e", place=1),
    "deno": Program(
        words="eval! --allow-all --allow-env --allow-net --allow-read --allow-run --allow-write --quiet --unstable",
        place=2,
    ),
}

_RUN_IN_CONTAINER = Program(
    value="cehlmpuvw",
    flags="diqtPT",
    words="""--entrypoint! --name= --env= --env-file= --volume= --mount= --user= --workdir= --network= --publish= --label= --hostname= --memory=
    --cpus= --restart= --platform= --pull= --rm --interactive --tty --detach --privileged --init --read-only""",
    place=2,
    starts=True,
    anywhere=True,
)
_IN_POD = Program(
    value="cnf",
    flags="itq",
    words="--container= --namespace= --context= --image= --restart= --env= --stdin --tty --rm --command --quiet",
    place=2,
    starts=True,
    anywhere=True,
)
_OPTIONS_OF_GIT: Mapping[str, Program] = {
    "clone": Program(code="uc", value="bjo", words="--upload-pack! --config! --template!", anywhere=True),
    "init": Program(words="--template!", anywhere=True),
    "fetch": Program(words="--upload-pack!", anywhere=True),
    "pull": Program(words="--upload-pack!", anywhere=True),
    "ls-remote": Program(words="--upload-pack! --exec!", anywhere=True),
    "push": Program(value="o", words="--receive-pack! --exec!", anywhere=True),
    "archive": Program(value="o", words="--exec!", anywhere=True),
    "rebase": Program(code="x", words="--exec!", anywhere=True),
    "grep": Program(code="O", value="efABC", words="--open-files-in-pager!", anywhere=True),
    "difftool": Program(code="x", words="--extcmd!", anywhere=True),
    "bisect": Program(words="run>"),
    "submodule": Program(words="foreach!"),
    "filter-branch": Program(joins=True),
}

# Their code is ordinary in a definition, where it needs no permission, but it can start programs: no value may become a part of it.
LANGUAGES: Mapping[str, Program] = {
    **dict.fromkeys(
        ("awk", "gawk", "mawk", "nawk", "goawk", "original-awk"),
        Program(
            code="feE",
            also="il",
            value="vF",
            words="--file! --source! --exec! --include+ --load+ --assign= --field-separator=",
            place=1,
        ),
    ),
    **dict.fromkeys(
        ("sed", "gsed"),
        Program(
            code="ef",
            value="l",
            words="--expression! --file! --line-length= --quiet --silent --regexp-extended --in-place --null-data",
            place=1,
            anywhere=True,
        ),
    ),
    **dict.fromkeys(("mysql", "mariadb"), Program(code="e", value="DhPSu", words="--execute!", anywhere=True)),
    "psql": Program(code="cf", value="dhpUvotFRTPL", words="--command! --file!", anywhere=True),
    "sqlite3": Program(words="-cmd+ -init+ -separator= -newline= -nullvalue=", place=2, anywhere=True),
    "expect": Program(code="cf", place=1),
    "tclsh": Program(words="-encoding=", place=1),
    "guile": Program(code="ces", also="lL", place=1),
    "julia": Program(code="eE", also="L", words="--eval! --print! --load+", place=1),
    "R": Program(code="ef", words="--file!"),
    "dc": Program(code="ef", words="--expression! --file!", place=1),
    "m4": Program(joins=True),
    "gdb": Program(code="x", words="-ex! -x! --command! --eval-command! --init-command! --args>", anywhere=True),
    # Every word may be a variable, whose value may call $(shell ...), behind "--" and with "./" in front as well.
    **dict.fromkeys(("make", "gmake", "remake"), Program(joins=True)),
    **dict.fromkeys(
        ("tar", "gtar"),
        Program(
            code="IF",
            value="fCTXbg",
            words="""--checkpoint-action! --to-command! --use-compress-program! --info-script! --new-volume-script! --rsh-command!
            --rmt-command! --file= --directory= --exclude= --transform= --checkpoint""",
            anywhere=True,
        ),
    ),
    "rsync": Program(code="e", value="fBTM", words="--rsh! --rsync-path!", anywhere=True),
    **dict.fromkeys(("scp", "sftp"), Program(code="oSFD", value="ciJlPX", anywhere=True)),
    "split": Program(value="abClnt", words="--filter!", anywhere=True),
    "sort": Program(value="kStT", words="--compress-program!", anywhere=True),
    "zip": Program(words="-TT! --unzip-command!", anywhere=True),
    "git": Program(
        also="c", value="C", words="--exec-path+ --config-env+ --git-dir= --work-tree= --namespace=", place=1
    ),
    **{f"git {verb}": program for verb, program in _OPTIONS_OF_GIT.items()},
    # The engines for containers, and clusters.
    **{
        f"{name}{verb}": program
        for name in ("docker", "podman", "nerdctl")
        for verb, program in {
            "": Program(value="cHl", words="--context= --host= --log-level= --config= --debug --tls", place=1),
            **dict.fromkeys((" container", " compose"), Program(value="fp", words="--file= --project-name=", place=1)),
            **{
                f"{group} {verb}": _RUN_IN_CONTAINER
                for group in ("", " container", " compose")
                for verb in ("exec", "run", "create")
            },
        }.items()
    },
    **{
        f"{name}{verb}": program
        for name in ("kubectl", "oc")
        for verb, program in {
            "": Program(value="ns", words="--namespace= --context= --kubeconfig= --server= --cluster=", place=1),
            **dict.fromkeys((" exec", " run", " debug", " rsh"), _IN_POD),
        }.items()
    },
    # They start the program named in their arguments, but need no permission for a shell so far.
    "gosu": Program(place=2, starts=True),
    "su-exec": Program(place=2, starts=True),
    "setuidgid": Program(place=2, starts=True),
    "s6-setuidgid": Program(place=2, starts=True),
    "chpst": Program(value="uUbemdfco/n", flags="vP012", place=1, starts=True),
    "tini": Program(value="pe", flags="svgwlh", place=1, starts=True),
    "dumb-init": Program(value="r", flags="vch", words="--rewrite= --verbose --single-child", place=1, starts=True),
    "catchsegv": Program(place=1, starts=True),
    "fakeroot": Program(value="lsib", flags="uhv", place=1, starts=True),
    "pkexec": Program(words="--user= --disable-internal-agent --keep-cwd", place=1, starts=True),
    "runcon": Program(
        value="turl", flags="c", words="--type= --user= --role= --range= --compute", place=2, starts=True
    ),
    "numactl": Program(
        value="iNmpCP",
        flags="absHl",
        words="--interleave= --cpunodebind= --membind= --physcpubind= --all --localalloc",
        place=1,
        starts=True,
    ),
    "valgrind": Program(flags="hvq", words="--trace-children --quiet --verbose", place=1, starts=True),
    **dict.fromkeys(
        ("strace", "ltrace"),
        Program(
            also="o",
            value="abeEIOpPsSuUXlxnADF",
            flags="cCdfhikqrtTvVwyYzZL",
            words="--output+ --trace= --follow-forks",
            place=1,
            starts=True,
        ),
    ),
    "prlimit": Program(
        value="po",
        flags="cdefhilmnqrstuvxyV",
        words="--pid= --output= --verbose --nofile --nproc --as --core --cpu",
        place=1,
        starts=True,
    ),
    "systemd-run": Program(
        also="p",
        value="uEHM",
        flags="hrdtPqGS",
        words="""--property+ --unit= --setenv= --host= --machine= --uid= --gid= --nice= --slice= --description= --working-directory= --on-active=
        --on-calendar= --service-type= --scope --user --wait --pty --pipe --quiet --collect --no-block --same-dir --remain-after-exit""",
        place=1,
        starts=True,
    ),
    "bwrap": Program(
        words="""--bind== --ro-bind== --dev-bind== --bind-try== --ro-bind-try== --symlink== --setenv== --tmpfs= --proc= --dev= --dir= --chdir=
        --unsetenv= --uid= --gid= --hostname= --unshare-all --unshare-net --unshare-pid --share-net --die-with-parent --new-session
        --clearenv""",
        place=1,
        starts=True,
    ),
    **dict.fromkeys(
        ("npx", "uvx", "uv run", "poetry run", "pipenv run", "bundle exec"),
        Program(code="c", value="p", words="--call! --package= --with= --python= --yes", place=1, starts=True),
    ),
    **dict.fromkeys(("uv", "poetry", "pipenv", "bundle"), Program(place=1)),
}

# They start the program named in their arguments, and count as a shell with one.
WRAPPERS: Mapping[str, Program] = {
    "env": Program(
        also="S",
        value="uC",
        flags="i0v",
        words="- --split-string+ --unset= --chdir= --ignore-environment --null --debug --block-signal --default-signal --ignore-signal",
        place=1,
        starts=True,
        variables=True,
    ),
    "nice": Program(value="n", flags="0123456789", words="--adjustment=", place=1, starts=True),
    "ionice": Program(value="cnpPu", flags="t", words="--class= --classdata= --ignore", place=1, starts=True),
    "nohup": Program(place=1, starts=True),
    "setsid": Program(flags="cfw", words="--ctty --fork --wait", place=1, starts=True),
    "timeout": Program(
        value="ks",
        flags="v",
        words="--kill-after= --signal= --preserve-status --foreground --verbose",
        place=2,
        starts=True,
    ),
    "stdbuf": Program(value="ioe", words="--input= --output= --error=", place=1, starts=True),
    "time": Program(
        value="fo",
        flags="apqv",
        words="--format= --output= --append --portability --quiet --verbose",
        place=1,
        starts=True,
    ),
    "xargs": Program(
        value="adEILnPs",
        flags="0eilroptx",
        words="""--arg-file= --delimiter= --max-lines= --max-args= --max-procs= --process-slot-var= --max-chars= --null --eof --replace --open-tty
        --interactive --no-run-if-empty --verbose --exit""",
        place=1,
        starts=True,
    ),
    "sudo": Program(
        value="ugpCTrthDRU",
        flags="ABbEeHiKklnPSsVvN",
        words="""--user= --group= --prompt= --close-from= --command-timeout= --role= --type= --host= --chdir= --chroot= --other-user=
        --background --preserve-env --set-home --login --non-interactive --preserve-groups --stdin --shell --reset-timestamp""",
        place=1,
        starts=True,
        variables=True,
    ),
    "doas": Program(value="uC", flags="Lns", place=1, starts=True),
    "chroot": Program(words="--groups= --userspec= --skip-chdir", place=2, starts=True),
    "unshare": Program(
        value="RwSG",
        flags="muinpUCTfrchV",
        words="""--root= --wd= --setuid= --setgid= --map-user= --map-group= --map-users= --map-groups= --propagation= --setgroups= --monotonic=
        --boottime= --mount --uts --ipc --net --pid --user --cgroup --time --fork --map-root-user --map-current-user --map-auto --kill-child
        --mount-proc --keep-caps""",
        place=1,
        starts=True,
    ),
    "nsenter": Program(
        value="tSGW",
        flags="amuinpCUTrwFZ",
        words="""--target= --setuid= --setgid= --wdns= --all --mount --uts --ipc --net --pid --cgroup --user --time --preserve-credentials
        --root --wd --no-fork --follow-context""",
        place=1,
        starts=True,
    ),
    "flock": Program(
        code="c",
        value="wE",
        flags="sxunoFe",
        words="--command! --timeout= --conflict-exit-code= --shared --exclusive --unlock --nonblock --close --no-fork --verbose",
        place=2,
        starts=True,
    ),
    "chrt": Program(
        value="TPD",
        flags="bdfiorRampv",
        words="--sched-runtime= --sched-period= --sched-deadline= --batch --deadline --fifo --idle --other --rr --reset-on-fork",
        place=2,
        starts=True,
    ),
    "taskset": Program(flags="apc", words="--all-tasks --pid --cpu-list", place=2, starts=True),
    "setpriv": Program(
        flags="d",
        words="""--ambient-caps= --inh-caps= --bounding-set= --ruid= --euid= --rgid= --egid= --reuid= --regid= --groups= --securebits= --pdeathsig=
        --selinux-label= --apparmor-profile= --nnp --no-new-privs --clear-groups --keep-groups --init-groups --reset-env""",
        place=1,
        starts=True,
    ),
    "find": Program(words="-exec> -execdir> -ok> -okdir>"),
    **dict.fromkeys(("su", "runuser", "script", "watch", "parallel", "ssh"), Program(joins=True)),
}
_BUSYBOX = Program(place=1, starts=True)


def find(name: str) -> Program | None:
    """The program of this name; a version behind it counts as none."""
    if name in ("busybox", "toybox"):
        return _BUSYBOX
    for each in (name, without_version(name)):
        if known := WRAPPERS.get(each) or LANGUAGES.get(each) or (SHELL if each in SHELLS else None):
            return known
    return interpreter(name)


def verb(name: str, word: str) -> Program | None:
    """How a program such as git reads the arguments behind this first one."""
    return LANGUAGES.get(f"{name} {word}")


def wraps(name: str) -> bool:
    """Whether it starts the program named in its arguments, perhaps behind a first one."""
    program = find(name)
    verbs = (item for start, item in LANGUAGES.items() if start.startswith(f"{name} "))
    return any(item.starts or COMMAND in item.words for item in (program, *verbs) if item)


def interpreter(name: str) -> Program | None:
    """The interpreter whose name this one begins with."""
    return next((item for start, item in INTERPRETERS.items() if name.startswith(start)), None)


def without_version(name: str) -> str:
    """A name such as python3.11 without its end."""
    return name.rstrip("0123456789.-") or name
