"""The base of every settings model: frozen, unknown keys refused, each field documented with unit and default."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Settings(BaseModel):
    """Subclass per recipe section; give every field `Field(default, description=…)`."""

    model_config = ConfigDict(extra="forbid", frozen=True, validate_default=True)
