"""The elector, rule by rule (docs/fencing.md 3.1)."""

from dataclasses import replace

import pytest

from toban_fencing import election_types as e
from toban_fencing.election_state_machine import next_due

EPOCH = 1 << 51 | 1 << 27


def row(epoch=EPOCH, beat=1, resigned=-1, holder="other"):
    return e.LeaderRow(epoch=epoch, holder=holder, resigned_epoch=resigned, beat=beat)


def kinds(effects):
    return [type(effect) for effect in effects]


def test_no_elector_tries_the_lock_while_the_beat_moves(box):
    for beat in range(20):
        assert box.see(0.2, beat=beat) == []


@pytest.mark.seed(28)
def test_a_still_beat_needs_a_second_and_the_lock(box):
    assert box.see(1.0) == []
    assert kinds(box.see(0.2)) == [e.TryLock]
    effects = box.feed(e.LockTried(sent_at=box.now, outcome=e.LockOutcome.HELD))
    assert effects == (e.TakeOver(row()),)


@pytest.mark.parametrize(("age", "takes"), [(1.4, True), (1.6, False)])
def test_a_lock_counts_from_the_send_of_its_call(box, age, takes):
    """It may have ended by its TTL while the answer was on its way."""
    box.see(1.2)
    effects = box.feed(e.LockTried(sent_at=box.now - age, outcome=e.LockOutcome.HELD))
    assert (e.TakeOver in kinds(effects)) is takes


def test_a_foreign_lock_holds_a_candidate_back(box):
    box.see(1.2)
    assert box.feed(e.LockTried(sent_at=box.now, outcome=e.LockOutcome.FOREIGN)) == ()
    assert e.TryLock in kinds(box.see(0.3))


@pytest.mark.parametrize("outcome", [e.LockOutcome.UNREACHABLE, e.LockOutcome.FOREIGN])
def test_without_the_lock_three_seconds(box, outcome):
    """Redis is gone, or its lock has an owner that beats nowhere: a value that anybody wrote there, or another installation."""
    found = []
    while e.TakeOver not in kinds(found):
        effects = box.see(0.1)
        found += effects
        if e.TryLock in kinds(effects):
            found += box.feed(e.LockTried(sent_at=box.now, outcome=outcome))
    assert 103.0 <= box.now <= 103.4


def test_death_evidence_stands_in_for_the_lock(box):
    box.see(0.2)
    assert box.feed(e.DeathEvidence(EPOCH)) == ()
    assert kinds(box.see(0.4)) == [e.TakeOver]
    assert box.now <= 100.65


def test_evidence_is_void_when_the_beat_moves_again(box):
    box.see(0.1)
    box.feed(e.DeathEvidence(EPOCH))
    for beat in (2, 3, 4):
        assert box.see(0.3, beat=beat) == []
    assert box.see(0.6, beat=4) == []


def test_the_last_beat_of_a_dead_leader_does_not_void_the_evidence(box):
    box.see(0.1)
    box.feed(e.DeathEvidence(EPOCH))
    assert kinds(box.see(0.6, beat=2)) == [e.TakeOver]


def test_evidence_of_an_older_leader_is_void(box):
    box.see(0.1)
    box.feed(e.DeathEvidence(EPOCH - (1 << 27)))
    assert box.see(0.8) == []


def test_at_once_after_a_resign(box):
    assert box.feed(e.RowRead(row=row(resigned=EPOCH))) == (e.TakeOver(row(resigned=EPOCH)),)


def test_resign_is_evidence_only_while_it_equals_the_epoch(box):
    assert box.feed(e.RowRead(row=row(resigned=EPOCH - (1 << 27)))) == ()


def test_an_own_row_of_a_term_that_is_not_led_is_taken_at_once(box):
    assert kinds(box.feed(e.RowRead(row=row(holder="me")))) == [e.TakeOver]


def test_a_stale_read_does_not_depose(box):
    box.see(1.2)
    box.now += 0.5
    assert box.feed(e.LockTried(sent_at=box.now, outcome=e.LockOutcome.HELD)) == ()


def test_a_hole_between_reads_begins_the_wait_again(box):
    box.see(0.5)
    box.now += 5.0
    assert box.see(0.9) == []


def test_the_lock_is_given_back_when_the_beat_moves(box):
    box.see(1.2)
    box.now += 0.3
    box.feed(e.LockTried(sent_at=box.now, outcome=e.LockOutcome.HELD))
    assert box.see(0.1, beat=2) == [e.ReleaseLock(0)]


def test_a_lost_take_over_releases_the_lock_and_watches_again(box):
    box.see(1.2)
    box.feed(e.LockTried(sent_at=box.now, outcome=e.LockOutcome.HELD))
    assert box.feed(e.TakeOverDone(sent_at=box.now, epoch=None)) == (e.ReleaseLock(0),)
    assert e.TakeOver not in kinds(box.see(0.9))


def test_a_won_term_beats_and_overwrites_the_lock(box):
    effects = box.lead()
    assert effects == (e.StartLeading(EPOCH), e.Beat(EPOCH), e.Renew(epoch=EPOCH, overwrite=e.Overwrite.CANDIDATE))


def test_a_healthy_leader_leads_on(box):
    box.lead()
    box.answer_first()
    assert box.run_leader(30)


def test_thirty_seconds_without_redis_depose_no_leader(box):
    box.lead()
    box.answer_first()
    assert box.run_leader(30, renew=e.LockOutcome.UNREACHABLE)
    overwrites = [x.overwrite for x in box.effects if isinstance(x, e.Renew)]
    assert overwrites[-1] is e.Overwrite.CANDIDATE
    assert box.run_leader(5)
    assert [x.overwrite for x in box.effects if isinstance(x, e.Renew)][-1] is e.Overwrite.OLDER


def test_a_term_taken_without_redis_is_held_by_the_beat(box):
    box.lead()
    box.feed(e.BeatDone(epoch=EPOCH, ok=True))
    box.feed(e.RenewDone(epoch=EPOCH, sent_at=box.now, outcome=e.LockOutcome.UNREACHABLE))
    assert box.run_leader(30, renew=e.LockOutcome.UNREACHABLE)


@pytest.mark.seed(34)
def test_a_second_without_a_commit_ends_the_term(box):
    box.lead()
    box.answer_first()
    start = box.now
    assert not box.run_leader(5, beat=None)
    assert 1.0 < box.now - start <= 1.2


def test_failed_beats_end_the_term_too(box):
    box.lead()
    box.answer_first()

    def failing():
        end = box.now + 3
        while box.now < end and box.leads:
            box.now += 0.05
            for effect in box.feed(e.Tick()):
                if isinstance(effect, e.Beat):
                    box.feed(e.BeatDone(epoch=EPOCH, ok=None))

    start = box.now
    failing()
    assert not box.leads
    assert box.now - start <= 1.2


def test_silence_about_the_lock_ends_the_term(box):
    """Neither good renewals nor a Redis that is found gone: this process itself was late."""
    box.lead()
    box.answer_first()
    start = box.now
    assert not box.run_leader(5, renew=None)
    assert 1.5 < box.now - start <= 1.7


def test_a_term_counts_from_the_send_of_its_take_over(box):
    box.feed(e.RowRead(row=row(epoch=0, beat=0, holder="")))
    assert e.StartLeading in kinds(box.feed(e.TakeOverDone(sent_at=box.now - 0.9, epoch=EPOCH)))
    assert kinds(box.feed(e.Tick(), box.now + 0.2))[0] is e.StopLeading, (
        "a second has passed since PostgreSQL may have taken it"
    )


def test_a_renewal_counts_from_its_send(box):
    box.lead()
    sent = box.now
    for at in (0.6, 1.2):
        box.feed(e.BeatDone(epoch=EPOCH, ok=True), sent + at)
    assert kinds(box.feed(e.RenewDone(epoch=EPOCH, sent_at=sent, outcome=e.LockOutcome.HELD), sent + 1.4)) == [e.Renew]
    assert kinds(box.feed(e.Tick(), sent + 1.6))[0] is e.StopLeading


def test_a_paused_leader_stops_with_its_first_word(box):
    box.lead()
    box.answer_first()
    assert kinds(box.feed(e.Tick(), box.now + 3.0))[0] is e.StopLeading


def test_a_late_beat_does_not_save_a_paused_leader(box):
    box.lead()
    assert kinds(box.feed(e.BeatDone(epoch=EPOCH, ok=True), box.now + 3.0))[0] is e.StopLeading


@pytest.mark.parametrize(
    ("event", "stops"),
    [
        (e.DegradeSeen(EPOCH), True),
        (e.DegradeSeen(1), True),
        (e.DegradeSeen(EPOCH - (1 << 27)), False),
        (e.Deposed(epoch=EPOCH, reason="a fence says so"), True),
        (e.Deposed(epoch=EPOCH - (1 << 27), reason="a fence says so"), False),
        (e.BeatDone(epoch=EPOCH, ok=False), True),
        (e.Leave(), True),
    ],
)
def test_orders_to_stop(box, event, stops):
    box.lead()
    box.answer_first()
    box.feed(event)
    assert box.leads is not stops


def test_answers_of_an_older_term_are_ignored(box):
    box.lead()
    box.answer_first()
    old = EPOCH - (1 << 27)
    assert box.feed(e.BeatDone(epoch=old, ok=False)) == ()
    assert box.feed(e.RenewDone(epoch=old, sent_at=box.now, outcome=e.LockOutcome.FOREIGN)) == ()
    assert box.leads


def test_it_stands_aside_for_two_seconds_and_may_stand_again(box):
    box.lead()
    box.answer_first()
    box.feed(e.Deposed(epoch=EPOCH, reason="asked"))
    assert box.see(1.9, resigned=EPOCH, holder="me") == []
    assert kinds(box.see(0.3, resigned=EPOCH, holder="me")) == [e.TakeOver]


def test_a_take_over_that_is_won_after_the_leave_is_resigned(box):
    box.feed(e.RowRead(row=row(epoch=0, beat=0, holder="")))
    box.feed(e.Leave())
    effects = box.feed(e.TakeOverDone(sent_at=box.now, epoch=EPOCH))
    assert effects == (e.Resign(EPOCH), e.ReleaseLock(EPOCH), e.ReleaseLock(0))
    assert box.feed(e.Tick()) == ()


def test_the_next_tick_is_never_late_for_a_deadline(box):
    box.lead()
    # Its calls give no answer: a second after the last commit it has to stop.
    assert next_due(box.state, box.now) <= box.now + 0.3
    assert next_due(box.state, box.now + 0.9) <= box.now + 1.0
    assert next_due(replace(box.state, role=e.Role.LEFT, term=None), box.now) <= box.now + 0.15


def test_a_leader_that_gives_way_stops_and_does_not_stand(box):
    box.lead()
    box.answer_first()
    assert kinds(box.feed(e.YieldLeadership(True))) == [e.StopLeading, e.Resign, e.ReleaseLock]
    assert box.see(10.0, resigned=EPOCH, holder="me") == []
    assert kinds(box.feed(e.YieldLeadership(False))) == [e.TakeOver]


def test_a_candidate_that_gives_way_gives_the_lock_back(box):
    box.see(1.2)
    box.now += 0.3
    box.feed(e.LockTried(sent_at=box.now, outcome=e.LockOutcome.HELD))
    assert box.feed(e.YieldLeadership(True)) == (e.ReleaseLock(0),)
    assert box.see(3.0) == []
    assert kinds(box.feed(e.YieldLeadership(False))) == [e.TryLock]


def test_who_never_gave_way_leads_on(box):
    box.lead()
    box.answer_first()
    assert box.feed(e.YieldLeadership(False)) == ()
    assert box.leads


def test_a_take_over_that_is_won_while_giving_way_is_given_up_with_the_next_word(box):
    box.feed(e.RowRead(row=row(epoch=0, beat=0, holder="")))
    box.feed(e.YieldLeadership(True))
    box.feed(e.TakeOverDone(sent_at=box.now, epoch=EPOCH))
    assert kinds(box.feed(e.YieldLeadership(True)))[0] is e.StopLeading


def test_a_candidate_reads_a_moving_beat_once_and_a_still_one_at_each_poll(box):
    timings = box.state.timings
    assert kinds(box.feed(e.Tick())) == [e.ReadRow]
    box.feed(e.RowRead(row=row(beat=1)))
    assert next_due(box.state, box.now) == pytest.approx(box.now + timings.poll), "a first sight is no movement"
    box.feed(e.Tick(), now=box.now + timings.poll)
    box.feed(e.RowRead(row=replace(row(beat=2), beat_age=0.1)))
    due = box.now + timings.beat - 0.1 + timings.after_beat
    assert next_due(box.state, box.now) == pytest.approx(due)
    assert box.feed(e.Tick(), now=due - 0.01) == ()
    assert kinds(box.feed(e.Tick(), now=due)) == [e.ReadRow]
    box.feed(e.RowRead(row=replace(row(beat=2), beat_age=timings.beat + timings.after_beat)))
    assert next_due(box.state, box.now) == pytest.approx(due + timings.poll), "the beat stands still"


def test_evidence_of_death_is_looked_at_without_a_wait_for_the_next_beat(box):
    box.see(0.1)
    box.see(0.1, beat=2)
    assert next_due(box.state, box.now) > box.now
    box.feed(e.DeathEvidence(EPOCH))
    assert next_due(box.state, box.now) == box.now
