"""Who an executor is after a restart: the instance of its state directory, unless the directory has come from another machine."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """What the state directory says: the instance, the machine it was made on, the incarnation registered last. Empty = unknown."""

    instance: str
    machine: str
    registered: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Instance:
    """The instance to register as and the incarnation whose end it may attest, empty for none. `copied`: the directory is not from here."""

    id: str
    previous: str
    copied: bool


def instance_of(kept: Kept, *, machine: str, new_id: str) -> Instance:
    """A copied directory makes a new instance, which attests nobody's death: the original may run elsewhere, under another boot id."""
    copied = bool(kept.instance) and kept.machine not in ("", machine)
    if copied or not kept.instance:
        return Instance(id=new_id, previous="", copied=copied)
    return Instance(id=kept.instance, previous=kept.registered, copied=False)
