"""Settings of the stage semisyn_selection."""

from cxr.workflow.settings.base import PAPER, Section, key


class Selection(Section):
    """Comparing configurations on the same jobs."""

    samples: int = key(
        35, "Trial jobs: the first ones of each finding, which every configuration edits.", source=PAPER, ge=0
    )
