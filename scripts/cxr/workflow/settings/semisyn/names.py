"""Names of findings in settings: the seven, and those of a user's file."""

from typing import Annotated

from pydantic import Field

FindingName = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]*$")]
