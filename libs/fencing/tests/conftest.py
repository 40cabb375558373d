"""An elector in a box: events in, effects collected, time by hand."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from toban_fencing import election_types as e
from toban_fencing import redis_client
from toban_fencing.election_state_machine import decide

EPOCH = 1 << 51 | 1 << 27


def row(epoch: int = EPOCH, beat: int = 1, resigned: int = -1, holder: str = "other") -> e.LeaderRow:
    """A leader row; another process leads."""
    return e.LeaderRow(epoch=epoch, holder=holder, resigned_epoch=resigned, beat=beat)


class Box:
    """`state`, `now` (seconds) and all `effects` so far."""

    def __init__(self) -> None:
        self.state = e.ElectorState(me="me")
        self.now = 100.0
        self.effects: list[e.Effect] = []

    @property
    def leads(self) -> bool:
        """Whether a term runs."""
        return self.state.role is e.Role.LEADING

    def feed(self, event: e.Event, now: float | None = None) -> tuple[e.Effect, ...]:
        """The effects of this event, at `now` (None: the time stands still)."""
        if now is not None:
            self.now = now
        self.state, effects = decide(self.state, event, self.now)
        self.effects += effects
        return effects

    def see(self, seconds: float, **fields: int | str) -> list[e.Effect]:
        """The same row, read every 0.1 s for so long; everything that was asked for meanwhile."""
        found: list[e.Effect] = []
        end = self.now + seconds
        while self.now < end - 1e-9:
            self.now += 0.1
            found += self.feed(e.RowRead(row=row(**fields)))  # type: ignore[arg-type]
        return found

    def lead(self, epoch: int = EPOCH) -> tuple[e.Effect, ...]:
        """Win the first term; its first beat and renewal are not answered."""
        self.feed(e.RowRead(row=row(epoch=0, beat=0, holder="")))
        return self.feed(e.TakeOverDone(sent_at=self.now, epoch=epoch))

    def answer_first(self) -> None:
        """The first beat is committed and the first renewal good."""
        self.feed(e.BeatDone(epoch=EPOCH, ok=True))
        self.feed(e.RenewDone(epoch=EPOCH, sent_at=self.now, outcome=e.LockOutcome.HELD))

    def run_leader(
        self,
        seconds: float,
        *,
        beat: bool | None = True,
        renew: e.LockOutcome | Callable[[e.Renew], e.LockOutcome] | None = e.LockOutcome.HELD,
    ) -> bool:
        """Answer every effect of a leader for so long (None: no answer); False when it stops."""
        end = self.now + seconds
        while self.now < end - 1e-9:
            self.now += 0.05
            effects = list(self.feed(e.Tick()))
            while effects:
                effect = effects.pop(0)
                if isinstance(effect, e.Beat) and beat is not None:
                    effects += self.feed(e.BeatDone(epoch=effect.epoch, ok=beat))
                if isinstance(effect, e.Renew) and renew is not None:
                    outcome = renew(effect) if callable(renew) else renew
                    effects += self.feed(e.RenewDone(epoch=effect.epoch, sent_at=self.now, outcome=outcome))
            if not self.leads:
                return False
        return True


@pytest.fixture
def box() -> Box:
    """An elector that has seen nothing."""
    return Box()


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Calls of Redis wait longer than production's: a busy machine delays the response of a server that is there."""
    monkeypatch.setattr(redis_client, "CALL_SECONDS", 30.0)
