"""What queries and bodies of the API have in common. Field names are those of the requests in proto/toban_proto/v1."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from toban_domain.access import MAX_REASON

MAX_ID = (1 << 63) - 1
MAX_INT32 = (1 << 31) - 1
MAX_CURSOR = 300
MAX_NAME = 300

Id = Annotated[int, Field(ge=1, le=MAX_ID)]
NumberText = Annotated[str, Field(pattern=r"^[0-9]{1,18}$|^[0-8][0-9]{18}$"), AfterValidator(int)]
"""A number above 2^53, as text; its value is the number."""
Bytes = Annotated[str, AfterValidator(str.encode)]
"""A text whose value is its UTF-8."""


class Input(BaseModel):
    """A query or a body. Fields that it does not have are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    def request_fields(self) -> dict[str, Any]:
        """As fields of the method's request."""
        return self.model_dump(exclude_none=True, warnings=False)


class Paged(Input):
    """The query of a list."""

    limit: int = Field(50, ge=1, le=500, description="Items at most.")
    cursor: str = Field("", max_length=MAX_CURSOR, description="`next_cursor` of the page before; empty = first page.")

    def request_fields(self) -> dict[str, Any]:
        """With `limit` and `cursor` as the page."""
        others = self.model_dump(exclude_none=True, exclude={"limit", "cursor"}, warnings=False)
        return {**others, "page": {"limit": self.limit, "cursor": self.cursor}}


class Reason(Input):
    """Why; for the audit log."""

    reason: str = Field("", max_length=MAX_REASON, description="Why; it is in the audit log.")
