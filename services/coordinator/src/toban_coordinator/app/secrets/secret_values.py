"""Gives values of secrets to orders when they are sent, and tells before whether a job may have those that it names."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from toban_coordinator.app import metrics
from toban_coordinator.ports.secrets import SecretKeys, SecretUse, SecretValues
from toban_coordinator.store import object_names
from toban_coordinator.store.secrets import secrets
from toban_coordinator.store.secrets.secrets import SealedRow
from toban_domain.errors import ErrorCode, TobanError
from toban_domain.job import JobSpec
from toban_domain.nearest import suggestion
from toban_domain.outcome import AttemptKey
from toban_domain.secret import MAX_VALUES, SecretFile, owner_problem
from toban_store.pool import Pool
from toban_store.tx import Tx, autocommit


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredSecretValues:
    """`SecretSource` from PostgreSQL. Nothing is kept: each order is given the values that are stored when it is sent."""

    pool: Pool
    keys: SecretKeys

    async def values(self, uses: Sequence[SecretUse]) -> Mapping[AttemptKey, SecretValues]:
        """The values for each use, or why it has none. Raises StoreError when PostgreSQL does not answer."""
        async with autocommit(self.pool) as t:
            rows = await secrets.use(t, {(one.name, use.job) for use in uses for one in use.secrets})
        found = {use.key: self._values(use, rows) for use in uses}
        for one in found.values():
            metrics.secret_orders.labels("refused" if one.problem else "sent").inc()
        return found

    def _values(self, use: SecretUse, rows: Mapping[str, SealedRow]) -> SecretValues:
        files = []
        try:
            for ref in use.secrets:
                row = rows.get(ref.name)
                if (problem := refusal(ref.name, row, use.job)) is not None or row is None:
                    return SecretValues(problem=problem or "")
                value = self.keys.open(ref.name, row.sealed)
                files.append(SecretFile(file=ref.file_name, file_env=ref.file_env, value=value))
        except TobanError as error:
            return SecretValues(problem=error.message)
        if (size := sum(len(one.value) for one in files)) > MAX_VALUES:
            return SecretValues(problem=f"its secrets have {size} bytes together, the limit is {MAX_VALUES}")
        return SecretValues(files=files)


def refusal(name: str, row: SealedRow | None, job: str) -> str | None:
    """Why this job cannot have that secret; None when it can."""
    if (owned := owner_problem(name)) is not None:
        return f"{owned[0]}; give the job a secret of its own with `toban secret set`"
    if row is None:
        return f"there is no secret {name!r}; run `toban secret set {name}`"
    if not row.allows(job):
        return f"secret {name!r} is for other jobs; run `toban secret set {name} --job {job}` to add this one"
    return None


async def check_start(t: Tx, specs: Iterable[JobSpec]) -> None:
    """Raises SECRET_NOT_FOUND for the first of these jobs that cannot have its secrets now."""
    wanted = [spec for spec in specs if spec.secrets]
    if not wanted:
        return
    rows = await secrets.find(t, {one.name for spec in wanted for one in spec.secrets})
    for spec in wanted:
        for one in spec.secrets:
            if (why := refusal(one.name, rows.get(one.name), spec.name)) is not None:
                detail = {"job": spec.name, "secret": one.name}
                raise TobanError(ErrorCode.SECRET_NOT_FOUND, f"job {spec.name!r} cannot start: {why}", detail=detail)


async def problems(t: Tx, spec: JobSpec) -> Iterator[tuple[str, str, str]]:
    """What is wrong with the secrets of a definition: path, message and remedy of each."""
    if not spec.secrets:
        return iter(())
    rows = await secrets.find(t, {one.name for one in spec.secrets})
    known = await object_names.names(t, "secret") if len(rows) < len({one.name for one in spec.secrets}) else []
    return iter(
        [
            (
                f"spec.secrets[{index}].name",
                message,
                remedy if one.name in known else suggestion(one.name, known, remedy),
            )
            for index, one in enumerate(spec.secrets)
            if (why := refusal(one.name, rows.get(one.name), spec.name)) is not None
            for message, _, remedy in [why.partition("; ")]
        ]
    )
