"""How long a sign-in must wait after failures, and when a session or token is good."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from hashlib import sha256

# A session ends without use, and at the latest after a working day.
IDLE = timedelta(minutes=30)
LONGEST = timedelta(hours=12)
# Failures without delay, and after how long they are forgotten.
FREE = 5
FORGET = timedelta(hours=1)
# The longest delay of one address, and of an account for addresses it has not signed in from.
MOST = timedelta(minutes=15)
MOST_OF_ACCOUNT = timedelta(seconds=30)
# From an address that it signed in from within this time an account does not wait for failures of others, at this address neither.
KNOWN = timedelta(days=30)
MAX_NAME = 64


@dataclass(frozen=True, slots=True)
class Failures:
    """Failed sign-ins under one key."""

    count: int
    last_at: datetime
    blocked_until: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class ThrottleKeys:
    """What failures are counted by. An attacker at other addresses delays only addresses that are new to the account."""

    account: str
    address: str

    @classmethod
    def of(cls, user: str, address: str) -> ThrottleKeys:
        """The keys of one sign-in; the same for a name that no account has. A long name is cut to its hash."""
        name = user if len(user) <= MAX_NAME else f"sha256:{sha256(user.encode('utf-8', 'replace')).hexdigest()}"
        return cls(account=f"account {name}", address=f"address {address}")

    @property
    def pair(self) -> str:
        """The account from this address."""
        return f"{self.account} from {self.address}"

    def counted(self, *, known: bool) -> tuple[str, ...]:
        """Every key that a failure counts for, in the order of their locks. From a `known` address of the account it counts for the pair alone,
        so that failures of others, there or elsewhere, do not hold it up."""
        return (self.pair,) if known else tuple(sorted({self.address, self.pair, self.account}))


def wait(found: list[Failures], now: datetime) -> timedelta:
    """How long this sign-in is refused still; zero or less = it may be tried."""
    return max((one.blocked_until - now for one in found), default=timedelta(0))


def after_failure(found: Failures | None, now: datetime, *, of_account: bool) -> Failures:
    """The count with one failure more: from the sixth on the delay doubles, from one second to its bound."""
    count = 1 if found is None or now - found.last_at > FORGET else found.count + 1
    bound = MOST_OF_ACCOUNT if of_account else MOST
    delay = timedelta(0) if count <= FREE else min(bound, timedelta(seconds=2 ** min(count - FREE - 1, 20)))
    return Failures(count, now, now + delay)


def session_is_good(*, last_used_at: datetime, ends_at: datetime, revoked: bool, now: datetime) -> bool:
    """Whether a session still stands for its user."""
    return not revoked and now < ends_at and now - last_used_at < IDLE
