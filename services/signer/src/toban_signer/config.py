"""Configuration of the signer: `SCHEDULER_*` variables (docs/joining.md)."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from pydantic import Field

from toban_runtime.config import ServiceConfig


class SignerConfig(ServiceConfig):
    """Needs the authority, and no other service."""

    REQUIRED: ClassVar[tuple[str, ...]] = ("ca_dir",)

    ca_dir: Path | None = Field(None, description="folder of the signer with ca.crt and ca.key of the authority")
    certificate_days: int = Field(30, ge=1, le=366, description="how long certificates that it signs are good, days")
