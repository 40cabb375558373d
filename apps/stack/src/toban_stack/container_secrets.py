"""Certificates and secrets of a Toban in containers: made at the first start, checked and renewed at every later one.

Usage: python -m toban_stack.container_secrets [STEP], where STEP is renew, trust-new-ca, use-new-ca, drop-old-ca,
revoke SERVICE or deny SERIAL (docs/operations.md), or watch, which renews certificates in time for as long as it runs;
without STEP it makes what a start needs. Each folder executor-GROUP of TOBAN_HAND_OUT gets the certificate of this group
of executors (docs/executor-groups.md). TOBAN_KEYS (/keys) has the authority and every secret;
no service can read it. TOBAN_HAND_OUT (/hand-out) has a folder for each container (a volume of its own) with only the
files that this container may read.
"""

import fcntl
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from threading import Event

from toban_domain.deny_list import DENIED
from toban_domain.errors import TobanError
from toban_stack import certificate_rotation, certs
from toban_stack.errors import StackError
from toban_stack.servers.launch import COORDINATOR_ROLE, LOG_ARCHIVER_ROLE
from toban_stack.servers.postgres import role_secret
from toban_stack.servers.s3 import identities
from toban_stack.stack_paths import StackPaths

USAGE = 2
OWNER_ONLY = 0o600
# Servers run as users of their own images; only their container mounts the folder.
ANY_USER = 0o444
ROLES = (COORDINATOR_ROLE, LOG_ARCHIVER_ROLE)
TLS_FILES = ("tls.key", "tls.crt", "ca.crt")
WATCH_SECONDS = 300.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """The files of one container: the certificate of `identity` (empty = none), and `secrets` (file to secret)."""

    identity: str = ""
    secrets: Mapping[str, str] = field(default_factory=dict)
    mode: int = OWNER_ONLY


def _named(*names: str) -> Mapping[str, str]:
    """Secrets whose files have their names."""
    return dict(zip(names, names, strict=True))


# Each service has a database URL with its own role, in a file of the same name. Only migrations have the administrator's.
SHARES: Mapping[str, Share] = {
    "coordinator": Share(
        identity="coordinator",
        secrets={"database_url": "coordinator_database_url", **_named("redis_url", "secrets_key", "admin_token")},
    ),
    "log-archiver": Share(
        identity="log-archiver",
        secrets={
            "database_url": "log_archiver_database_url",
            **_named("s3_access_key", "s3_secret_key", "admin_token"),
        },
    ),
    # Jobs of class `shared` can read it: a token of their own, which opens the admin ports of executors only.
    "executor": Share(identity="executor", secrets={"admin_token": "executor_admin_token", **_named("machine")}),
    "admin-web": Share(identity="admin-web", secrets=_named("admin_token")),
    "cli": Share(identity="admin-cli"),
    "migrate": Share(secrets=_named("database_url", *(f"{role}_password" for role in ROLES))),
    "postgres": Share(secrets=_named("postgres_password"), mode=ANY_USER),
    "valkey": Share(secrets=_named("valkey.conf", "valkey_password"), mode=ANY_USER),
    "seaweedfs": Share(secrets=_named("s3.json"), mode=ANY_USER),
    "grafana": Share(secrets=_named("grafana_password"), mode=ANY_USER),
    "prometheus": Share(secrets=_named("admin_token", "executor_admin_token"), mode=ANY_USER),
}


def make(keys: Path, hand_out: Path, *, step: Sequence[str] = (), now: datetime | None = None) -> list[str]:
    """Makes what is missing, renews what expires soon, does `step`, and writes the share of each container.

    Returns a line for each change. Raises StackError when a step is not possible now, OSError when a folder cannot be written.
    """
    change = certificate_rotation.step(step)
    if change is not None and not (keys / "ca" / "ca.crt").exists():
        raise StackError(
            f"{keys} is empty, so {step[0]} has nothing to change: start once without a step, which makes everything"
        )
    with _alone(keys):
        lines = [change(keys)] if change is not None else []
        certs.make_all(keys, groups=_groups(hand_out), now=now)
        return lines + _hand_out(keys, hand_out)


def renew(keys: Path, hand_out: Path, *, now: datetime | None = None) -> list[str]:
    """As `make` for what runs already: certificates that expire soon, and the deny-list. Nothing before the first start."""
    if not (keys / "ca" / "ca.crt").exists():
        return []
    with _alone(keys):
        certs.renew_due(keys, now=now)
        return [*_hand_out(keys, hand_out), *_without_folder(keys, hand_out)]


def _without_folder(keys: Path, hand_out: Path) -> list[str]:
    """A line for each group of executors whose certificate is renewed here and handed out nowhere."""
    return [
        f"{folder.name}: its certificate cannot be handed out; mount its volume at {hand_out / folder.name} of this container"
        for folder in sorted(keys.glob("executor-*"))
        if not (hand_out / folder.name).is_dir()
    ]


def _groups(hand_out: Path) -> list[str]:
    """Groups of executors that have a folder."""
    return [path.name.removeprefix("executor-") for path in sorted(hand_out.glob("executor-*")) if path.is_dir()]


def _hand_out(keys: Path, hand_out: Path) -> list[str]:
    secrets, lines = _secrets(StackPaths(keys)), []
    given = (*TLS_FILES, DENIED) if (keys / DENIED).exists() else TLS_FILES
    of_groups = {
        name: replace(SHARES["executor"], identity=name)
        for name in (f"executor-{group}" for group in _groups(hand_out))
        # A folder that came after the last start has no certificate yet.
        if (keys / name).exists()
    }
    for name, share in {**SHARES, **of_groups}.items():
        files = {file: (keys / share.identity / file).read_bytes() for file in given if share.identity}
        files |= {file: secrets[secret].encode() for file, secret in share.secrets.items()}
        changed = [
            file for file, content in files.items() if _write_if_changed(hand_out / name / file, content, share.mode)
        ]
        if changed:
            lines.append(f"{name}: {', '.join(changed)}")
    return lines


@contextmanager
def _alone(keys: Path) -> Iterator[None]:
    """One process at a time: a start and the renewal share the folder."""
    keys.mkdir(mode=0o700, parents=True, exist_ok=True)
    with (keys / "lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _secrets(home: StackPaths) -> dict[str, str]:
    """Every secret by its name; random ones are stored, the others follow from them."""
    home.secrets.mkdir(mode=0o700, parents=True, exist_ok=True)
    postgres, valkey = home.secret("postgres-password"), home.secret("valkey-password")
    roles = {role: home.secret(role_secret(role)) for role in ROLES}
    access, secret = home.secret("s3-access-key", 10), home.secret("s3-secret-key", 20)
    return {
        "postgres_password": postgres,
        "database_url": _database_url("toban", postgres),
        "coordinator_database_url": _database_url(COORDINATOR_ROLE, roles[COORDINATOR_ROLE]),
        "log_archiver_database_url": _database_url(LOG_ARCHIVER_ROLE, roles[LOG_ARCHIVER_ROLE]),
        **{f"{role}_password": password for role, password in roles.items()},
        "valkey_password": valkey,
        "valkey.conf": _valkey(valkey),
        "redis_url": f"redis://:{valkey}@valkey:6379/0",
        "s3_access_key": access,
        "s3_secret_key": secret,
        "s3.json": identities(access, secret),
        "secrets_key": home.secrets_key().read_text(encoding="ascii"),
        "grafana_password": home.secret("grafana-password", 12),
        "admin_token": home.secret("admin-token"),
        "executor_admin_token": home.secret("executor-admin-token"),
        # Identifies the machine to executors; as durable as their state directories.
        "machine": home.secret("machine", 16),
    }


def _database_url(user: str, password: str) -> str:
    return f"postgresql://{user}:{password}@postgres:5432/toban"


def _valkey(password: str) -> str:
    # Evicting the lock of the leader would start an election, so no key is evicted.
    lines = ["bind * -::*", "port 6379", f"requirepass {password}", "maxmemory-policy noeviction", "dir /data"]
    return "\n".join([*lines, 'save ""', "appendonly yes", "appendfsync everysec", ""])


def _write_if_changed(path: Path, content: bytes, mode: int) -> bool:
    """Replaces a file atomically when its content differs; returns whether it did."""
    if path.exists() and path.read_bytes() == content:
        return False
    draft = path.with_name(f".{path.name}.new")
    draft.unlink(missing_ok=True)
    with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
        file.write(content)
    draft.chmod(mode)
    draft.replace(path)
    return True


def main(arguments: list[str]) -> int:
    """Runs the command. Exit codes: 0 when everything exists, 1 for a failure, 2 for a wrong call."""
    if arguments and arguments != ["watch"] and certificate_rotation.step(arguments) is None:
        sys.stderr.write(
            f"usage: python -m toban_stack.container_secrets [{'|'.join(certificate_rotation.USAGE)}|watch]\n"
        )
        return USAGE
    keys = Path(os.environ.get("TOBAN_KEYS", "/keys"))
    hand_out = Path(os.environ.get("TOBAN_HAND_OUT", "/hand-out"))
    if arguments == ["watch"]:
        watch(lambda: renew(keys, hand_out), Event().wait)
        return 0
    try:
        lines = make(keys, hand_out, step=arguments)
    except (StackError, TobanError, ValueError, OSError) as error:
        sys.stderr.write(f"certificates and secrets cannot be made: {error}\n")
        return 1
    _print(lines or ["certificates and secrets: complete and valid"])
    return 0


def watch(renew_due: Callable[[], list[str]], wait: Callable[[float], bool]) -> None:
    """Renews what is due, again and again, until `wait` is true. A failure is printed, and tried again after the wait."""
    while True:
        try:
            _print(renew_due())
        except (StackError, ValueError, OSError) as error:
            sys.stderr.write(f"certificates and secrets cannot be renewed: {error}\n")
        if wait(WATCH_SECONDS):
            return


def _print(lines: list[str]) -> None:
    sys.stdout.write("".join(f"{line}\n" for line in lines))
    sys.stdout.flush()


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
