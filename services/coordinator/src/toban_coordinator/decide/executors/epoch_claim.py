"""Which epoch of an executor is believed (docs/fencing.md 3.2).

Epochs are few: a claim that counts can consume a generation of 4095. So a claim above the leader row counts only with what a coordinator has
signed, and only where PostgreSQL can have gone back: it is another cluster than the settled one, or a grant was signed that it does not hold.
"""

from __future__ import annotations

from dataclasses import dataclass

from toban_domain.epoch import Epoch, EpochProof, generation_above, term_of

# A grant that PostgreSQL does not hold proves lost commits for so long, seconds: rows of executors are kept for much longer.
FRESH_SECONDS = 3600


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """What PostgreSQL holds: the leader's epoch, whether the cluster is settled, the time (Unix, seconds), and the grant_seq of the proof's
    incarnation (None: it has no row)."""

    epoch: int
    settled: bool
    now: int
    grant_seq: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """`raise_to`: the epoch that the leader row must get first, 0 for none. `lost_commits`: PostgreSQL lacks a grant that was signed.

    `believed`: the claim is at most the leader's epoch, once that is raised.
    """

    raise_to: int
    lost_commits: bool
    believed: bool


def judge(claimed: int, proof: EpochProof | None, known: Known) -> Verdict:
    """`proof` is verified: signed by a coordinator of this cluster. Raises EpochExhausted when no generation is left to take."""
    lost = proof is not None and _lost_commits(proof, known)
    raise_to = 0
    if proof is not None and (lost or (not known.settled and proof.epoch > known.epoch)):
        raise_to = generation_above(max(proof.epoch, known.epoch))
    return Verdict(raise_to=raise_to, lost_commits=lost, believed=term_of(claimed) <= max(raise_to, known.epoch))


def _lost_commits(proof: EpochProof, known: Known) -> bool:
    """A proof of an older generation than the leader's says nothing new: that generation was given up for what was lost with it."""
    if Epoch.unpack(proof.epoch).generation < Epoch.unpack(known.epoch).generation:
        return False
    return proof.grant_seq > (known.grant_seq or 0) and abs(known.now - proof.signed_at) <= FRESH_SECONDS
