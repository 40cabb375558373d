"""What one key of a manifest is, as data: docs/manifests.md and `toban explain` print it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """A key. `default` and `example` are YAML; `unset` says in words what a missing key means when no value is the same as leaving it out.

    `fields` are the keys below it; `listed`: the value is a list of such mappings.
    """

    key: str
    type: str
    meaning: str
    default: str = ""
    unset: str = ""
    example: str = ""
    fields: tuple[Field, ...] = ()
    listed: bool = False

    @property
    def required(self) -> bool:
        """True when the key must be there."""
        return self.unset.startswith("required")


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """A kind of document: what it is, the smallest one, and the keys of its `spec`."""

    name: str
    meaning: str
    example: str
    fields: tuple[Field, ...]


def field(
    key: str,
    kind: str,
    meaning: str,
    *,
    default: str = "",
    unset: str = "",
    example: str = "",
    fields: tuple[Field, ...] = (),
    listed: bool = False,
) -> Field:
    """A Field in one call."""
    return Field(
        key=key, type=kind, meaning=meaning, default=default, unset=unset, example=example, fields=fields, listed=listed
    )


def rows(fields: tuple[Field, ...], *, before: str = "") -> Iterator[tuple[str, Field]]:
    """Each key with its dotted path, in order: of mappings the keys below instead, of lists of mappings the list itself."""
    for one in fields:
        path = f"{before}{one.key}"
        if one.fields and not one.listed and not one.example:
            yield from rows(one.fields, before=f"{path}.")
        else:
            yield path, one
            if one.fields and not one.listed:
                yield from rows(one.fields, before=f"{path}.")
