"""The plan's part on masks for RadVLM's answers: of ROSALIA as a tool, and the rows that ILS's evaluation gains."""

from collections.abc import Sequence
from dataclasses import dataclass

from cxr.base.errors import UserError
from cxr.workflow.plan_vlm import VlmPlan, also_asked
from cxr.workflow.settings import Settings
from cxr.workflow.settings.radvlm.sources import OWN

ROOT = "results/radvlm/evaluation"
TEST, ILS = "radvlm_test", "radvlm_ils"
"""Sets of vlm.answers: the test lines of a mix, and all pairs of the split that ILS's evaluation scores."""
ROSALIA = "rosalia:"
TOOL = "tool"


@dataclass(frozen=True)
class Segmenting:
    """tool: ROSALIA's run, "" without one; runs: those whose answers it gets masks for; sources: of the test lines;
    pairs: the ILS pairs that a run is asked, "" where the cohort is no source; thresholds: their set.
    """

    tool: str
    runs: Sequence[str]
    sources: Sequence[str]
    pairs: str
    thresholds: str

    def files(self, run: str, name: str, ending: str) -> list[str]:
        """Return a file of each source for the answers of a run to a set, in the order of the sources."""
        sources = [OWN] if name == ILS else self.sources
        return [f"{ROOT}/{run}/segmenter/{name}/{source}.{ending}" for source in sources]

    @property
    def beside(self) -> list[str]:
        """Files of masks and texts beside the answers to the test lines, one a run."""
        return [f"{ROOT}/{run}/segmented.jsonl" for run in self.runs]

    @property
    def rows(self) -> dict[str, dict]:
        """Return {name: what ILS's evaluation scores}: rows of its tables beside ROSALIA's."""
        found = {}
        for run in self.runs if self.pairs else ():
            (stem,) = self.files(run, ILS, "jsonl")
            found[f"{run}_{TOOL}"] = {
                "test": self.thresholds, "predictions": stem, "masks": stem.removesuffix("jsonl") + "h5",
                "beside": title_of(run, TOOL), "title": title_of(run, TOOL),
            }  # fmt: skip
        return found


def title_of(run: str, join: str) -> str:
    """Return the name of a row of ILS's tables."""
    return f"RadVLM + ILS, {join} ({run})"


def segmenting(settings: Settings, vlm: VlmPlan, rosalia: Sequence[str]) -> tuple[Segmenting, VlmPlan]:
    """Return the plan, and that of vision-language models with the pairs that they are asked too.

    ``rosalia``: the runs of training. Raises UserError for a segmenter that is no such run, and for a row that has the
    name of another model.
    """
    told = settings.radvlm.evaluation.segmenter
    tool = told.removeprefix(ROSALIA) if told.startswith(ROSALIA) else ""
    if tool and tool not in rosalia:
        raise UserError(
            f"radvlm.evaluation.segmenter is {told!r}, but the runs of training are {', '.join(rosalia)}: name one"
        )
    runs = list(settings.radvlm.evaluation.runs) if tool and TEST in vlm.sets else []
    own = OWN in settings.radvlm.sources.use
    thresholds = settings.thresholds.build[0]
    found = Segmenting(
        tool,
        runs,
        settings.radvlm.sources.use,
        f"results/dataset/{thresholds}/{settings.inference.split}.jsonl" if own else "",
        thresholds,
    )
    for name in found.rows:
        if name in rosalia or name in settings.evaluation.predictions:
            raise UserError(f"{name!r} is a row of RadVLM's in the evaluation of ILS: rename the model of that name")
    return found, also_asked(vlm, ILS, f"{ROOT}/ils.jsonl", "radvlm", runs) if found.rows else vlm
