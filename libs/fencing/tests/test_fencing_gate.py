"""The executor's gate for orders."""

from hypothesis import given
from hypothesis import strategies as st

from toban_fencing.gate import Gate, Refusal

GATE = Gate(incarnation="a", epoch_max=10, serial=5)


def test_orders_in_order_pass():
    gate = GATE.admit(epoch=10, serial=6, incarnation="a")
    assert gate == Gate(incarnation="a", epoch_max=10, serial=6)
    assert gate.admit(epoch=11, serial=1, incarnation="a") == Gate(incarnation="a", epoch_max=11, serial=1)


def test_refusals():
    assert GATE.admit(epoch=9, serial=99, incarnation="a") is Refusal.STALE_EPOCH
    assert GATE.admit(epoch=10, serial=5, incarnation="a") is Refusal.STALE_EPOCH
    assert GATE.admit(epoch=11, serial=1, incarnation="b") is Refusal.WRONG_INCARNATION


def test_a_higher_epoch_heard_by_heartbeat_shuts_older_leaders_out():
    gate = GATE.heard(12)
    assert gate.admit(epoch=11, serial=1, incarnation="a") is Refusal.STALE_EPOCH
    assert gate.heard(3) == gate


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), max_size=30))
def test_admitted_orders_strictly_grow(orders):
    gate, admitted = Gate(incarnation="a"), []
    for epoch, serial in orders:
        answer = gate.admit(epoch=epoch, serial=serial, incarnation="a")
        if isinstance(answer, Gate):
            gate = answer
            admitted.append((epoch, serial))
    assert admitted == sorted(set(admitted))
