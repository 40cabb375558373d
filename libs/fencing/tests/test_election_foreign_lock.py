"""The elector when Redis names another owner of the lock: PostgreSQL alone decides (docs/fencing.md 3.1)."""

import pytest

from toban_fencing import election_types as e
from toban_fencing.election_state_machine import next_due

EPOCH = 1 << 51 | 1 << 27


def kinds(effects):
    return [type(effect) for effect in effects]


def see_foreign_lock(box):
    return box.feed(e.RenewDone(epoch=EPOCH, sent_at=box.now, outcome=e.LockOutcome.FOREIGN))


def test_a_foreign_owner_makes_a_leader_ask_postgresql_and_overwrite_the_lock(box):
    box.lead()
    box.answer_first()
    assert see_foreign_lock(box) == (e.Beat(EPOCH),)
    effects = box.feed(e.BeatDone(epoch=EPOCH, ok=True), box.now + 0.1)
    assert effects == (e.ReportForeignLock(EPOCH), e.Renew(epoch=EPOCH, overwrite=e.Overwrite.ANY))
    box.feed(e.RenewDone(epoch=EPOCH, sent_at=box.now, outcome=e.LockOutcome.HELD))
    assert box.run_leader(30)
    assert [x.overwrite for x in box.effects if isinstance(x, e.Renew)][-1] is e.Overwrite.OLDER


def test_a_beat_from_before_the_foreign_owner_confirms_nothing(box):
    box.lead()
    box.feed(e.RenewDone(epoch=EPOCH, sent_at=box.now, outcome=e.LockOutcome.HELD))
    assert see_foreign_lock(box) == (), "its first beat is still under way"
    assert box.feed(e.BeatDone(epoch=EPOCH, ok=True), box.now + 0.1) == (e.Beat(EPOCH),)
    assert e.ReportForeignLock(EPOCH) in box.feed(e.BeatDone(epoch=EPOCH, ok=True), box.now + 0.1)


def test_no_renewal_leaves_while_postgresql_is_asked(box):
    box.lead()
    box.answer_first()
    see_foreign_lock(box)
    assert box.feed(e.Tick(), box.now + 0.45) == ()
    assert next_due(box.state, box.now) <= box.now + 0.05 + 1e-9


@pytest.mark.seed(34)
def test_a_foreign_owner_ends_the_term_when_postgresql_names_another_leader(box):
    box.lead()
    box.answer_first()
    see_foreign_lock(box)
    effects = box.feed(e.BeatDone(epoch=EPOCH, ok=False))
    assert kinds(effects) == [e.StopLeading, e.Resign, e.ReleaseLock]


@pytest.mark.parametrize("answers", [True, False])
def test_a_foreign_owner_ends_the_term_when_postgresql_confirms_nothing_within_half_a_second(box, answers):
    box.lead()
    box.answer_first()
    see_foreign_lock(box)
    start = box.now
    while box.leads and box.now < start + 2:
        if answers and box.state.term.beating:
            box.feed(e.BeatDone(epoch=EPOCH, ok=None))
        box.feed(e.Tick(), box.now + 0.05)
    assert 0.5 < box.now - start <= 0.6


def test_another_installation_that_renews_its_own_lock_deposes_no_leader(box):
    """Each renewal finds the other one's lock there again."""

    def answer(effect):
        return e.LockOutcome.HELD if effect.overwrite is e.Overwrite.ANY else e.LockOutcome.FOREIGN

    box.lead()
    box.answer_first()
    assert box.run_leader(30, renew=answer)
    assert box.effects.count(e.ReportForeignLock(EPOCH)) > 20


def test_a_read_from_before_the_take_over_is_not_taken_for_the_present(box):
    box.lead()
    box.answer_first()
    box.feed(e.RowRead(row=e.LeaderRow(epoch=0, beat=0, holder="", resigned_epoch=-1)))
    assert box.state.candidate.seen is None
