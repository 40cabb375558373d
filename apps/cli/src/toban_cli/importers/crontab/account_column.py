"""Whether a crontab has a column for the account (/etc/crontab, /etc/cron.d), and the account in it."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from toban_cli.importers.crontab.schedule_rule import TimingError, split_timing

_ACCOUNT = re.compile(r"[A-Za-z_][\w.-]*\$?(?::[\w.-]+)?(?:/[\w.-]+)?")
# A heading of columns with one for the account, as Debian, Red Hat and FreeBSD write it. After plain words and five asterisks the word
# "command" must follow: `# * * * * * user /bin/x` is an old job.
_ACCOUNT_WORD = r"[<\[{(]?(?:user(?:[-_ ]?name)?|who|account)\b[>\]})]?"
_HEADER = re.compile(
    rf"#.*\b(?:dow|wday)[>\]}})]?[ \t|,]+{_ACCOUNT_WORD}[ \t|,]+\S"
    rf"|#.*(?:\*(?:[ \t]+\*){{4}}|\b(?:weekday|week|day)[>\]}})]?)[ \t|,]+{_ACCOUNT_WORD}[ \t|,]+(?:the )?[<\[{{(]?(?:command|cmd)\b",
    re.IGNORECASE,
)
_SYSTEM_PATHS = re.compile(r"(?:^|/)etc/crontab$|(?:^|/)cron\.d/[^/]+$")
# Accounts that crontabs of other machines name and this one may not have.
USUAL_ACCOUNTS = frozenset(
    """root daemon www-data www apache nginx postgres pgsql mysql mail mailman news uucp list backup munin nagios icinga zabbix
    smmsp operator _ntp _www asterisk git gitlab redis jenkins deploy ubuntu debian admin tomcat ftp proxy squid clamav amavis
    logcheck debian-spamd postfix dovecot vmail man games irc gnats sys bin ntp sshd messagebus systemd-timesync oracle splunk""".split()  # noqa: SIM905
) | {"nobody"}


@dataclass(frozen=True, slots=True)
class Layout:
    """Whether there is a column for the account, and why we think so."""

    system: bool
    reason: str


def detect(*, source: str, comments: Sequence[str], jobs: Sequence[str], accounts: Collection[str]) -> Layout:
    """From the path, a comment over the columns, and the words behind the times; `accounts` are those of this machine."""
    if _SYSTEM_PATHS.search(source):
        return Layout(True, f"{source} is a system crontab by its path")
    for comment in comments:
        if _HEADER.match(comment.strip()):
            return Layout(True, f"a comment names a column for the account: {comment.strip()}")
    words = [word for job in jobs if (word := _first_two(job)) is not None]
    if not words:
        return Layout(False, "no line shows otherwise")
    known = set(accounts) | USUAL_ACCOUNTS
    other = next((first for first, second in words if first.partition(":")[0] not in known or not second), "")
    if other:
        return Layout(False, f"{other!r} behind a time is no account; --system if it is one")
    names = ", ".join(sorted({first for first, _ in words})[:3])
    return Layout(True, f"behind every time there is an account ({names}); --user if these are commands")


def split_account(rest: str) -> tuple[str, str]:
    """(account, what follows) of a line with the column; the account is "" when the word cannot be one."""
    first, second = _words(rest)
    return (first, second) if _ACCOUNT.fullmatch(first) else ("", rest)


def _first_two(job: str) -> tuple[str, str] | None:
    try:
        _, rest = split_timing(job)
    except TimingError:
        return None
    return _words(rest) if rest else None


def _words(rest: str) -> tuple[str, str]:
    parts = re.split(r"[ \t]+", rest, maxsplit=1)
    return parts[0], parts[1] if len(parts) > 1 else ""
