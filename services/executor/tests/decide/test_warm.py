"""Which zygote a step forks from, which slot gets an attempt, and when a zygote ends."""

from dataclasses import replace

import pytest

from toban_domain.outcome import AttemptKey
from toban_domain.secret import SecretFile
from toban_executor.decide.models import StartOrder, StepOrder
from toban_executor.decide.warm import WarmLimits, choose_slot, wanted_keys, zygote_env, zygote_key

STEP = StepOrder(type="python", argv=("python", "x"), warm_argv=("python", "zygote"), warm_call=("own", "a:b"))
ENV = {"PATH": "/bin", "TOBAN_INCARNATION": "i"}


def key(step: StepOrder = STEP, env: dict[str, str] = ENV, folder: str = "") -> str:
    return zygote_key(step, env=env, working_dir=folder)


def test_the_key_holds_what_imports_may_depend_on() -> None:
    assert key() == key(STEP._replace(warm_call=("own", "c:d"), argv=("other",), id="other"))
    assert len({key(), key(STEP._replace(warm_argv=("p",))), key(env={**ENV, "A": "1"}), key(folder="/srv")}) == 4


def test_what_belongs_to_one_run_makes_no_zygote_of_its_own() -> None:
    run = {**ENV, "TOBAN_RUN_ID": "7", "TOBAN_PARAM_A": "1", "TRACEPARENT": "00-1"}
    assert zygote_env(run) == ENV and key(env=run) == key()


def test_secrets_count_by_value_and_not_by_the_path_of_a_slot() -> None:
    one = SecretFile(file="db", file_env="DB_FILE", value=b"hunter22")
    env = {**ENV, "DB_FILE": "/dev/shm/0.secrets/db", "TOBAN_SECRETS_DIR": "/dev/shm/0.secrets"}
    other = {**ENV, "DB_FILE": "/dev/shm/1.secrets/db", "TOBAN_SECRETS_DIR": "/dev/shm/1.secrets"}
    assert zygote_env(env) == env, "imports may read them"
    made = zygote_key(STEP, env=env, working_dir="", secrets=[one])
    assert made == zygote_key(STEP, env=other, working_dir="", secrets=[one])
    order = StartOrder(key=AttemptKey(1, 1), steps=(STEP,), secrets=(one,))
    assert wanted_keys(order, ENV) == [made], "which the executor names without the paths"
    changed = replace(one, value=b"hunter23")
    assert made not in (key(), zygote_key(STEP, env=env, working_dir="", secrets=[changed]))


def test_an_attempt_wants_those_of_its_own_steps() -> None:
    cold = StepOrder(type="command", argv=("true",))
    order = StartOrder(key=AttemptKey(1, 1), steps=(STEP, cold, STEP._replace(warm_argv=("p",))), first_step=1)
    assert wanted_keys(order, ENV) == [key(STEP._replace(warm_argv=("p",)))]


@pytest.mark.parametrize(
    ("keys", "wanted", "slot"),
    [
        ({}, ["a"], 3),
        ({1: ("a",), 3: ("b",)}, ["a"], 1),
        ({1: ("a",), 3: ("b",)}, [], 2),
        ({2: ("a",), 3: ("b",)}, ["c"], 1),
        ({0: ("a",)}, ["a"], 3),
        ({1: ("a",), 2: ("a", "b"), 3: ("c", "d")}, [], 1),
    ],
)
def test_the_slot_with_the_zygote_else_the_one_with_the_fewest(
    keys: dict[int, tuple[str, ...]], wanted: list[str], slot: int
) -> None:
    assert choose_slot([1, 2, 3], keys, wanted) == slot


@pytest.mark.parametrize(
    ("limits", "reason"),
    [
        ({}, ""),
        ({"memory_mb": 19}, "memory"),
        ({"forks": 5}, "forks"),
        ({"forks": 6}, ""),
        ({"idle_seconds": 3.0}, "idle"),
        ({"idle_seconds": 0.0, "forks": 0}, ""),
    ],
)
def test_why_a_zygote_ends(limits: dict[str, float], reason: str) -> None:
    found = WarmLimits(**limits)  # type: ignore[arg-type]
    assert found.reason_to_end(idle=3.0, memory_mb=20.0, forks=5) == reason
    assert WarmLimits.decode(found.encode()) == found
