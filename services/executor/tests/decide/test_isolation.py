"""Which class of jobs is possible, and what people are shown of it."""

import pytest

from toban_executor.decide.isolation import (
    CAPABILITIES,
    Abilities,
    Isolation,
    SandboxLimits,
    SandboxPlan,
    UidRange,
    describe,
    possible,
    why_not_isolated,
)

ALL = sum(1 << number for number in CAPABILITIES.values())
UIDS = UidRange(60706, 61183)
PLAN = SandboxPlan(UIDS, True, SandboxLimits(512, 100, 1.5), hidden=("/keys",), shown=("/clone",))
ROOT = Abilities(ALL, "")


@pytest.mark.parametrize("plan", [PLAN, PLAN._replace(uids=None), SandboxPlan(UidRange(1, 1), False)])
def test_a_plan_reaches_the_guards_whole(plan: SandboxPlan) -> None:
    assert SandboxPlan.decode(plan.encode()) == plan
    assert SandboxPlan.decode("") is None


def test_root_isolates_with_namespaces_where_it_may() -> None:
    assert possible(PLAN, ROOT, isolated=True) == PLAN._replace(hidden=())
    without = possible(PLAN, ROOT._replace(no_namespaces="refused"), isolated=True)
    assert without == PLAN._replace(hidden=(), namespaces=False)


def test_another_user_gets_a_sandbox_of_its_own_uid_or_none() -> None:
    assert possible(PLAN, Abilities(0, "refused"), isolated=False) == PLAN._replace(uids=None)
    assert possible(PLAN, Abilities(0, "refused", "refused"), isolated=False) is None


@pytest.mark.parametrize(
    ("abilities", "words"),
    [
        (ROOT, ""),
        (Abilities(ALL & ~(1 << CAPABILITIES["SETUID"]), ""), "and has not SETUID"),
        (ROOT._replace(no_namespaces="refused", closed="/root"), "/root is closed to other users"),
        (ROOT._replace(uid_map="0 100000 60710"), "has not all of the uids 60706-61183"),
        (ROOT._replace(changeable="/data"), "do chmod o-w /data"),
    ],
)
def test_what_is_missing_is_named(abilities: Abilities, words: str) -> None:
    reason = why_not_isolated(abilities, UIDS)
    assert words in reason and bool(reason) == bool(words)


@pytest.mark.parametrize("text", ["61000", "a-b", "9-8", "0-5", "1-99999999999", "-", "１-２"])
def test_what_is_no_range_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is no range of uids"):
        UidRange.parse(text)


def test_people_are_shown_what_it_consists_of() -> None:
    assert describe(PLAN._replace(hidden=()), limited_by="cgroup v2") == Isolation(
        "isolated",
        (
            "a uid for each slot",
            "own processes, mounts and IPC",
            "512 MiB of memory, 100 processes, 1.5 CPUs by cgroup v2",
        ),
        home="/tmp",
    )
    shown = describe(PLAN._replace(uids=None, limits=SandboxLimits()), limited_by="")
    assert shown == Isolation(
        "shared", ("the uid of the executor", "own processes, mounts and IPC", "files of Toban are hidden")
    )
