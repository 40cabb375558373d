"""How long to wait before the next try: exponential, capped, spread by jitter."""

import random
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class Backoff:
    """Delay of attempt n (from 1) is `base * factor ** (n - 1)`, at most `cap`; all in seconds.

    `jitter` 0.5 spreads each delay evenly over its lower half: what an outage has cut off at one instant must not return in step.
    """

    base: float
    cap: float
    factor: float = 2.0
    jitter: float = 0.5
    rng: random.Random = field(default_factory=random.Random, repr=False, compare=False)

    def delay(self, attempt: int) -> float:
        """Seconds to wait after the failed try number `attempt`."""
        # 2 ** 64 is past every cap already; a larger exponent would overflow a float after days of failing.
        exponent = min(max(attempt, 1) - 1, 64)
        full = min(self.cap, self.base * self.factor**exponent)
        return full * (1.0 - self.jitter * self.rng.random())
