"""RadVLM's part of the plan: its sources, their files and options, and the options of its stages."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from cxr.workflow.settings import Settings
from cxr.workflow.settings.radvlm.sources import OWN

ROOT = "results/radvlm"


@dataclass(frozen=True)
class RadvlmPlan:
    """sources: names of the sources in use; shards: their names; options: {stage: its settings}."""

    sources: Sequence[str]
    shards: Sequence[str]
    options: Mapping[str, dict]

    def of_sources(self, file: str) -> list[str]:
        """Return a file of the stage sources for each source."""
        return [f"{ROOT}/sources/{source}/{file}" for source in self.sources]

    def external(self) -> str:
        """Return a pattern of the names of the sources that are not the cohort's; it matches none if there is none."""
        return "|".join(re.escape(name) for name in self.sources if name != OWN) or "(?!)"


def radvlm_plan(settings: Settings, shards: Sequence[str]) -> RadvlmPlan:
    """Return the plan. ``shards``: of the cohort."""
    plain = settings.radvlm.model_dump(mode="json")
    return RadvlmPlan(plain["sources"]["use"], list(shards), plain)
