"""The base of every settings model: frozen, unknown keys refused, each field documented with unit and default."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, model_validator


class Settings(BaseModel):
    """Subclass per recipe section; give every field `Field(default, description=…)`."""

    model_config = ConfigDict(extra="forbid", frozen=True, validate_default=True)

    @model_validator(mode="before")
    @classmethod
    def _keep_nested_defaults(cls, given: Any) -> Any:
        """A section given in part keeps the rest of *this* field's default, not that of the section's own class."""
        if not isinstance(given, dict):
            return given
        nested = {
            name: _laid_over(field.default, given[name])
            for name, field in cls.model_fields.items()
            if isinstance(field.default, BaseModel) and isinstance(given.get(name), dict)
        }
        return {**given, **nested}


def _laid_over(default: BaseModel, given: dict[str, Any]) -> dict[str, Any]:
    """All of `default`, with what was given in its place; sections inside are joined in the same way."""
    values = {**dict(default), **given}
    for name, value in given.items():
        inner = getattr(default, name, None)
        if isinstance(value, dict) and isinstance(inner, BaseModel):
            values[name] = _laid_over(inner, value)
    return values
