"""The names of terms."""

from __future__ import annotations

from toban_admin_web.decide.dashboard import term_name
from toban_domain.epoch import Epoch


def test_a_term_is_the_counter_with_the_generation_in_front_from_the_second_on() -> None:
    assert term_name(2251799947902976) == "1" and term_name(str(Epoch(1, 3).pack())) == "3"
    assert term_name(Epoch(2, 1).pack()) == "2.1"


def test_what_is_no_term_has_no_name() -> None:
    assert [term_name(one) for one in (0, "", "–", -1, 1 << 63)] == ["–"] * 5
