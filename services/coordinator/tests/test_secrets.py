"""Secrets over a real PostgreSQL: the key file, what is stored, who gets which value, and what `toban doctor` says."""

import base64
import os
from collections.abc import AsyncIterator
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from toban_coordinator.adapters.secret_keys import FileKeys
from toban_coordinator.app.cluster.audit_log import list_audit
from toban_coordinator.app.secrets.operations_secrets import SecretChange, SecretOperations
from toban_coordinator.app.secrets.secret_values import StoredSecretValues
from toban_coordinator.decide.cluster.diagnose.secret_keys import KeyFile, secret_keys
from toban_coordinator.ports.secrets import Sealed, SecretUse
from toban_coordinator.store.definitions import jobs
from toban_domain.errors import ErrorCode, TobanError
from toban_domain.job import JobSpec, StepSpec
from toban_domain.outcome import AttemptKey
from toban_domain.secret import MAX_VALUE, SecretRef
from toban_store.pool import Pool
from toban_store.tx import autocommit, tx
from toban_testing.kept_sessions import kept_pool

VALUE = b"hunter2-Zaphod"
ACTOR = "ada"


def key() -> str:
    return base64.b64encode(os.urandom(32)).decode()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "keys"
    path.write_text(key() + "\n")
    path.chmod(0o600)
    return path


@pytest.fixture
async def pool(coordinator_url: str) -> AsyncIterator[Pool]:
    opened = await kept_pool(coordinator_url, max_size=4)
    yield opened
    await opened.close()


@pytest.fixture
def desk(pool: Pool, file: Path) -> SecretOperations:
    return SecretOperations(pool=pool, keys=FileKeys(file))


def write(file: Path, *keys: str) -> None:
    file.write_text("\n".join(keys) + "\n")


def read(file: Path) -> list[str]:
    return file.read_text().split()


def use(*names: str, job: str = "report") -> SecretUse:
    refs = [SecretRef(name=name, file_env=f"{name.upper()}_FILE") for name in names]
    return SecretUse(key=AttemptKey(1, 2), job=job, secrets=refs)


async def test_a_deleted_job_uses_no_secret(desk: SecretOperations, pool: Pool) -> None:
    await desk.set(SecretChange(name="db", value=VALUE), ACTOR)
    await jobs_with(pool, "db")
    async with tx(pool) as t:
        for one in (await jobs.lock_current(t, ["a", "b"])).values():
            assert await jobs.delete(t, one, actor=ACTOR)
    assert [one.stored.used_by for one in await desk.list()] == [[]]
    await desk.remove("db", force=False, reason="", actor=ACTOR)
    assert await desk.list() == []


async def jobs_with(pool: Pool, secret: str) -> None:
    """Two jobs that name the secret, and one that does not."""
    step = StepSpec(id="s", body={"argv": ["true"]})
    refs = (SecretRef(name=secret), SecretRef(name=secret, file="again"))
    async with tx(pool) as t:
        for name, secrets in (("a", refs), ("b", refs[:1]), ("c", ())):
            await jobs.create(t, JobSpec(name=name, steps=(step,), secrets=secrets), "hash", actor=ACTOR)


async def given(desk: SecretOperations, one: SecretUse) -> list[bytes] | str:
    """The values, or why there are none."""
    found = (await StoredSecretValues(pool=desk.pool, keys=desk.keys).values([one]))[one.key]
    return found.problem or [file.value for file in found.files]


# ---- keys


def test_a_value_opens_in_its_own_row_only(file: Path) -> None:
    keys = FileKeys(file)
    sealed = keys.seal("one", VALUE)
    assert keys.open("one", sealed) == VALUE
    assert VALUE not in sealed.ciphertext
    assert keys.seal("one", VALUE).nonce != sealed.nonce
    changed = bytes([sealed.ciphertext[0] ^ 1]) + sealed.ciphertext[1:]
    for name, other in (
        ("two", sealed),
        ("one", Sealed(key_id=sealed.key_id, nonce=sealed.nonce, ciphertext=changed)),
        ("one", Sealed(key_id="0" * 16, nonce=sealed.nonce, ciphertext=sealed.ciphertext)),
    ):
        with pytest.raises(TobanError, match="cannot be decrypted") as refused:
            keys.open(name, other)
        assert refused.value.code is ErrorCode.SECRETS_KEY_MISSING


def test_the_first_key_encrypts_and_all_decrypt(file: Path) -> None:
    keys = FileKeys(file)
    old = keys.seal("one", VALUE)
    file.write_text(f"# newer\n\n{key()}\n{file.read_text()}")
    new = keys.seal("one", VALUE)
    assert new.key_id != old.key_id
    assert (keys.open("one", old), keys.open("one", new)) == (VALUE, VALUE)
    assert keys.status().ids == (new.key_id, old.key_id)


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("", "has no key"),
        ("# only this\n", "has no key"),
        ("not base64!\n", "line 1 is not base64"),
        (base64.b64encode(b"x" * 16).decode(), "line 1 has 16 bytes, a key has 32"),
        (base64.b64encode(bytes(32)).decode(), "line 1 is no random key"),
        ("k\u00e9y", "is not plain ASCII text"),
        ("A" * 70_000, "is too large"),
    ],
)
def test_a_wrong_key_file_says_what_to_do(tmp_path: Path, content: str, problem: str) -> None:
    path = tmp_path / "keys"
    path.write_text(content)
    keys = FileKeys(path)
    with pytest.raises(TobanError) as refused:
        keys.seal("one", VALUE)
    assert f"key file {path}: {problem}; write one with `openssl rand -base64 32`" in refused.value.message
    # It is read again as soon as it has changed; in the middle of a write the last good keys stay.
    path.write_text(key())
    sealed = keys.seal("one", VALUE)
    path.write_text(content)
    assert keys.open("one", sealed) == VALUE
    assert problem in keys.status().problem
    path.unlink()
    assert "No such file" in keys.status().problem
    with pytest.raises(TobanError, match="No such file"):
        keys.open("one", sealed)


def test_modes_of_the_key_file(file: Path) -> None:
    keys = FileKeys(file)
    for mode, loose in ((0o600, False), (0o400, False), (0o440, False), (0o640, False), (0o644, True), (0o660, True)):
        file.chmod(mode)
        assert bool(keys.status().loose) is loose, oct(mode)


# ---- what is stored


async def test_set_list_and_remove_without_a_value_anywhere(desk: SecretOperations, pool: Pool) -> None:
    made = await desk.set(SecretChange(name="db", value=VALUE, reason="new"), ACTOR)
    assert (made.stored.version, made.readable) == (1, True)
    assert (await desk.set(SecretChange(name="db", value=b"another value"), ACTOR)).stored.version == 2
    assert [(one.stored.name, one.stored.updated_by) for one in await desk.list()] == [("db", ACTOR)]
    assert await given(desk, use("db")) == [b"another value"]
    await jobs_with(pool, "db")
    assert [one.stored.used_by for one in await desk.list()] == [["a", "b"]]
    with pytest.raises(TobanError, match="secret 'db' is used by jobs a, b: their runs would fail"):
        await desk.remove("db", force=False, reason="", actor=ACTOR)
    await desk.remove("db", force=True, reason="", actor=ACTOR)
    assert await desk.list() == []
    noted = (await list_audit(pool)).rows
    assert [(row["action"], row["target"]) for row in noted][:3] == [
        ("secret.remove", "secret db"),
        ("secret.set", "secret db"),
        ("secret.set", "secret db"),
    ]
    assert "hunter2" not in str(noted)
    with pytest.raises(TobanError, match="there is no secret 'db'"):
        await desk.remove("db", force=False, reason="", actor=ACTOR)


@pytest.mark.parametrize(
    ("name", "value", "problem"),
    [
        ("Db", VALUE, "is not a name of a secret"),
        ("../db", VALUE, "is not a name of a secret"),
        ("hook.repo", VALUE, "is for hook 'repo' alone; run `toban hook set repo --new-secret` to change it"),
        (
            "webhook.pager",
            VALUE,
            "is for webhook 'pager' alone; run `toban webhook set pager --new-secret` to change it",
        ),
        ("db", b"", "the value is empty"),
        ("db", b"abc", "the value has 3 bytes"),
        ("db", b"x" * (MAX_VALUE + 1), f"the limit is {MAX_VALUE}"),
    ],
)
async def test_refused_names_and_values(desk: SecretOperations, name: str, value: bytes, problem: str) -> None:
    with pytest.raises(TobanError, match=problem) as refused:
        await desk.set(SecretChange(name=name, value=value), ACTOR)
    assert refused.value.code is ErrorCode.INVALID_ARGUMENT
    assert await desk.list() == []


async def test_only_the_named_jobs_get_a_value(desk: SecretOperations) -> None:
    await desk.set(SecretChange(name="db", value=VALUE, jobs=["report", "cleanup"]), ACTOR)
    assert await given(desk, use("db", job="cleanup")) == [VALUE]
    assert "is for other jobs" in str(await given(desk, use("db", job="other")))
    # A new value opens it to nobody else.
    changed = await desk.set(SecretChange(name="db", value=b"newer"), ACTOR)
    assert changed.stored.jobs == ["cleanup", "report"]
    await desk.set(SecretChange(name="db", value=b"newest", all_jobs=True), ACTOR)
    assert await given(desk, use("db", job="other")) == [b"newest"]


async def test_the_last_use_is_noted_once_a_minute_and_no_order_waits_for_it(
    desk: SecretOperations, pool: Pool
) -> None:
    for name, allowed in (("db", ["report"]), ("idle", ["report"])):
        await desk.set(SecretChange(name=name, value=VALUE, jobs=allowed), ACTOR)

    async def last() -> dict[str, datetime | None]:
        return {one.stored.name: one.stored.last_used_at for one in await desk.list()}

    assert "is for other jobs" in str(await given(desk, use("db", job="other")))
    assert await last() == {"db": None, "idle": None}, "a refused order is no use"
    assert await given(desk, use("db")) == [VALUE]
    first = (await last())["db"]
    assert first is not None and (await last())["idle"] is None
    assert await given(desk, use("db")) == [VALUE]
    assert (await last())["db"] == first
    async with tx(pool) as t:
        await t.execute("UPDATE scheduler.secrets SET last_used_at = last_used_at - interval '2 minutes'")
        # This transaction has the row until it ends.
        assert await given(desk, use("db")) == [VALUE]
    assert (await last())["db"] == first - timedelta(minutes=2)
    assert await given(desk, use("db")) == [VALUE]
    again = (await last())["db"]
    assert again is not None and again >= first


async def test_what_cannot_be_had_is_a_problem_of_that_order_alone(desk: SecretOperations, file: Path) -> None:
    await desk.set(SecretChange(name="old", value=VALUE), ACTOR)
    write(file, key())
    await desk.set(SecretChange(name="new", value=VALUE), ACTOR)
    source = StoredSecretValues(pool=desk.pool, keys=desk.keys)
    uses = [
        SecretUse(key=AttemptKey(number, 1), job="j", secrets=[SecretRef(name=name)])
        for number, name in enumerate(("old", "new", "none"), start=1)
    ]
    found = {key.run_id: one for key, one in (await source.values(uses)).items()}
    assert "is not in" in found[1].problem
    assert (found[2].problem, found[2].files[0].value) == ("", VALUE)
    assert found[3].problem == "there is no secret 'none'; run `toban secret set none`"
    assert VALUE.decode() not in repr(found)


async def test_rotation(desk: SecretOperations, file: Path, pool: Pool) -> None:
    for name in ("a", "b"):
        await desk.set(SecretChange(name=name, value=VALUE + name.encode()), ACTOR)
    lost = read(file)
    write(file, key())
    await desk.set(SecretChange(name="c", value=VALUE + b"c"), ACTOR)
    write(file, key(), *read(file))
    done = await desk.rotate(reason="", actor=ACTOR)
    assert (done.rotated, done.unreadable) == (1, ["a", "b"])
    write(file, *read(file), *lost)
    assert (await desk.rotate(reason="", actor=ACTOR)).rotated == 2
    write(file, read(file)[0])
    assert await given(desk, use("a", "b", "c")) == [VALUE + b"a", VALUE + b"b", VALUE + b"c"]
    async with autocommit(pool) as t:
        rows = await t.fetch_all("SELECT s::text AS row FROM scheduler.secrets s")
    assert VALUE.hex() not in str(rows)


# ---- doctor


@pytest.mark.parametrize(
    ("keys", "stored", "status"),
    [
        (KeyFile(problem="no key file is configured; write one"), {}, "ok"),
        (KeyFile(problem="no key file is configured; write one"), {"k1": 2}, "error"),
        (KeyFile(path="/k", problem="key file /k: gone; write one"), {}, "warning"),
        (KeyFile(path="/k", ids=("k1",)), {"k1": 2}, "ok"),
        (KeyFile(path="/k", ids=("k2", "k1")), {"k1": 2}, "warning"),
        (KeyFile(path="/k", ids=("k2",)), {"k1": 1, "k2": 1}, "error"),
        (KeyFile(path="/k", ids=("k1",), loose="its mode is 0644: chmod 0600"), {}, "error"),
    ],
)
def test_what_doctor_says(keys: KeyFile, stored: dict[str, int], status: str) -> None:
    [found] = secret_keys(keys, stored)
    assert found.status == status
    assert found.ok or found.remedy
