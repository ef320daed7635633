"""Names in settings: of findings, the seven and those of a user's file; of runs of detectors."""

from typing import Annotated

from cxr.base.settings import Limits

FindingName = Annotated[str, Limits(pattern=r"^[a-z][a-z0-9_]*$")]
RunName = Annotated[str, Limits(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.+-]*$")]
