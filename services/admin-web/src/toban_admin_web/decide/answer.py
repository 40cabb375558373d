"""What answers of the API have in common. Field names are those of proto/toban_proto/v1; JSON texts are opened, unset times are null."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

BigNumber = Annotated[
    str, BeforeValidator(str), Field(description="A number above 2^53, as text.", pattern=r"^-?[0-9]+$")
]


class Answer(BaseModel):
    """An answer: every field is always there. Later versions may add fields."""

    model_config = ConfigDict(frozen=True)


class Page(Answer):
    """A page of a list."""

    next_cursor: str = Field(description="Give it as `cursor` to read on; empty on the last page.")


class Done(Answer):
    """No fields: the status is the whole answer."""
