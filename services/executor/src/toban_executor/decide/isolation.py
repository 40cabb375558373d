"""How an executor isolates jobs from each other and from itself."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Isolation:
    """`kind`: isolated (each slot has a uid, namespaces and limits of its own) or shared (jobs run as the executor's user). `details` has what
    isolates jobs, in words for people."""

    kind: str
    details: tuple[str, ...]


SHARED = Isolation("shared", ())
