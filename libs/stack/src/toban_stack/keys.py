"""Certificates and secrets of a Toban in containers: made at the first start, looked at and renewed at every later one.

Usage: python -m toban_stack.keys [STEP], where STEP is renew, trust-new-ca, use-new-ca or drop-old-ca (docs/operations.md); none = what a start
needs. TOBAN_KEYS (/keys) holds the authority and every secret; no service sees it. TOBAN_HAND_OUT (/hand-out) has a folder for each container
(a volume of its own), which gets what that container may hold and nothing else.
"""

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from toban_stack import certs, rollover
from toban_stack.errors import StackError
from toban_stack.home import Home
from toban_stack.servers.s3 import identities

USAGE = 2
OURS = 0o600
# Servers run as users of their own images; nobody but their container mounts the folder.
THEIRS = 0o444
TLS_FILES = ("tls.key", "tls.crt", "ca.crt")


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """What one container gets: the certificate of `identity` (empty = none), and `secrets`."""

    identity: str = ""
    secrets: tuple[str, ...] = ()
    mode: int = OURS


SHARES: Mapping[str, Share] = {
    "coordinator": Share(identity="coordinator", secrets=("database_url", "redis_url")),
    "log-archiver": Share(identity="log-archiver", secrets=("database_url", "s3_access_key", "s3_secret_key")),
    "executor": Share(identity="executor", secrets=("machine",)),
    "admin-web": Share(identity="admin-web"),
    "cli": Share(identity="admin-cli"),
    "migrate": Share(secrets=("database_url",)),
    "postgres": Share(secrets=("postgres_password",), mode=THEIRS),
    "valkey": Share(secrets=("valkey.conf", "valkey_password"), mode=THEIRS),
    "seaweedfs": Share(secrets=("s3.json",), mode=THEIRS),
    "grafana": Share(secrets=("grafana_password",), mode=THEIRS),
}


def make(keys: Path, hand_out: Path, *, step: str = "", now: datetime | None = None) -> list[str]:
    """Makes what is missing, renews what ends soon, does `step`, and gives each container its share. A line for each thing that changed.

    Raises StackError when a step may not be done now, OSError when a folder cannot be written.
    """
    if step and not (keys / "ca" / "ca.crt").exists():
        raise StackError(f"{keys} is empty, so {step} has nothing to change: start once, which makes everything")
    lines = [rollover.STEPS[step](keys)] if step else []
    certs.make_all(keys, now=now)
    secrets = _secrets(Home(keys))
    for name, share in SHARES.items():
        files = {file: (keys / share.identity / file).read_bytes() for file in TLS_FILES if share.identity}
        files |= {secret: secrets[secret].encode() for secret in share.secrets}
        changed = [file for file, content in files.items() if _give(hand_out / name / file, content, share.mode)]
        if changed:
            lines.append(f"{name}: {', '.join(changed)}")
    return lines


def _secrets(home: Home) -> dict[str, str]:
    """Every secret by its name; random ones are kept, the others follow from them."""
    home.secrets.mkdir(mode=0o700, parents=True, exist_ok=True)
    postgres, valkey = home.secret("postgres-password"), home.secret("valkey-password")
    access, secret = home.secret("s3-access-key", 10), home.secret("s3-secret-key", 20)
    return {
        "postgres_password": postgres,
        "database_url": f"postgresql://toban:{postgres}@postgres:5432/toban",
        "valkey_password": valkey,
        "valkey.conf": _valkey(valkey),
        "redis_url": f"redis://:{valkey}@valkey:6379/0",
        "s3_access_key": access,
        "s3_secret_key": secret,
        "s3.json": identities(access, secret),
        "grafana_password": home.secret("grafana-password", 12),
        # Names the machine to executors: their state directories live as long as this does.
        "machine": home.secret("machine", 16),
    }


def _valkey(password: str) -> str:
    # An election that finds its lock evicted would be decided anew: memory is never made free by dropping keys.
    lines = ["bind * -::*", "port 6379", f"requirepass {password}", "maxmemory-policy noeviction", "dir /data"]
    return "\n".join([*lines, 'save ""', "appendonly yes", "appendfsync everysec", ""])


def _give(path: Path, content: bytes, mode: int) -> bool:
    """Replaces a file in one step when it differs; whether it did."""
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
    """0 when all is there, 1 when something cannot be made, 2 for a wrong call."""
    if len(arguments) > 1 or any(word not in rollover.STEPS for word in arguments):
        sys.stderr.write(f"usage: python -m toban_stack.keys [{'|'.join(rollover.STEPS)}]\n")
        return USAGE
    keys = Path(os.environ.get("TOBAN_KEYS", "/keys"))
    hand_out = Path(os.environ.get("TOBAN_HAND_OUT", "/hand-out"))
    try:
        lines = make(keys, hand_out, step="".join(arguments))
    except (StackError, OSError) as error:
        sys.stderr.write(f"the keys cannot be made: {error}\n")
        return 1
    sys.stdout.write("".join(f"{line}\n" for line in lines or ["keys: all there, valid for long"]))
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
