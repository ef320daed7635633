"""What one setting is: a value with a description, a unit where it has one, a range and a source."""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

PAPER, AUTHORS, OURS = "paper", "authors' code", "ours"
Share = Annotated[float, Field(ge=0, le=1)]
Percent = Annotated[float, Field(ge=0, le=100)]
Logic = Literal["strict", "paper"]


def key(default: object, description: str, *, source: str = OURS, unit: str | None = None, **bounds: object):
    """Declare one setting. A callable default makes a fresh value (lists, sections)."""
    extra = {"source": source} | ({"unit": unit} if unit else {})
    how = {"default_factory": default} if callable(default) else {"default": default}
    return Field(**how, description=description, json_schema_extra=extra, **bounds)


class Section(BaseModel):
    """A part of the settings: refuses unknown keys, never changes after it was read."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=False)
