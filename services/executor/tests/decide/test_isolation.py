"""Which class an executor has, and why not the better one."""

import pytest

from toban_executor.decide.isolation import CAPABILITIES, Abilities, SandboxPlan, UidRange, choose, why_not_isolated

ALL = sum(1 << number for number in CAPABILITIES.values())
PLAN = SandboxPlan(UidRange(1, 2), True)


@pytest.mark.parametrize(
    ("abilities", "why"),
    [
        (Abilities(ALL, ""), ""),
        (Abilities(ALL, "not permitted"), ""),
        (Abilities(ALL, "", closed="/root"), ""),
        (Abilities(ALL, "not permitted", closed="/root"), "/root is closed to other users"),
        (Abilities(ALL, "", changeable="/srv"), "do chmod o-w /srv"),
        (Abilities(ALL & ~(1 << 5), ""), "and has not KILL"),
    ],
)
def test_what_the_class_needs(abilities: Abilities, why: str) -> None:
    assert why in why_not_isolated(abilities) and bool(why) == bool(why_not_isolated(abilities))
    plan = choose("auto", PLAN, abilities)
    assert plan is not None and (plan.uids is None) == bool(why)
    assert choose("shared", PLAN, abilities) is None
    if not why:
        assert plan.namespaces == (not abilities.no_namespaces)
        return
    assert choose("auto", PLAN, abilities._replace(no_user_namespace="not permitted")) is None
    with pytest.raises(ValueError, match="isolated is not possible here"):
        choose("isolated", PLAN, abilities)
