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
ROSALIA, RADVLM = "rosalia:", "radvlm"
TOOL, HEAD = "tool", "head"


@dataclass(frozen=True)
class Segmenting:
    """tool: ROSALIA's run, "" without one; runs: those whose answers it gets masks for; heads: those that draw masks
    themselves; images: runs whose answers about one image it gets masks for; sources: of the test lines; pairs: the ILS
    pairs that a run is asked, "" where the cohort is no source; thresholds: their set.
    """

    tool: str
    runs: Sequence[str]
    heads: Sequence[str]
    images: Sequence[str]
    sources: Sequence[str]
    pairs: str
    thresholds: str

    def files(self, run: str, name: str, ending: str) -> list[str]:
        """Return a file of each source for the answers of a run to a set, in the order of the sources."""
        sources = [OWN] if name == ILS else self.sources
        return [f"{ROOT}/{run}/segmenter/{name}/{source}.{ending}" for source in sources]

    def about_image(self, run: str, image: str) -> str:
        """Return the folder of a run's answers about one image, with masks where it has a tool."""
        return f"{ROOT}/{run}/asked/{image}" if run in self.images else f"results/vlm/{run}/asked/{image}"

    @property
    def beside(self) -> list[str]:
        """Files of masks and texts beside the answers to the test lines, one a run."""
        return [f"{ROOT}/{run}/segmented.jsonl" for run in self.runs]

    @property
    def masked(self) -> dict[str, tuple[str, str]]:
        """Return {row of ILS's evaluation: (run, how its masks are made)}."""
        joins = [(run, HEAD) for run in self.heads] + [(run, TOOL) for run in self.runs]
        return {f"{run}_{join}": (run, join) for run, join in joins if self.pairs}

    @property
    def rows(self) -> dict[str, dict]:
        """Return {name: what ILS's evaluation scores}: rows of its tables beside ROSALIA's."""
        return {name: self._row(*run_and_join) for name, run_and_join in self.masked.items()}

    def _row(self, run: str, join: str) -> dict:
        title = f"RadVLM + ILS, {join} ({run})"
        stem = f"{ROOT}/{run}/head/{ILS}" if join == HEAD else self.files(run, ILS, "")[0].removesuffix(".")
        files = {"predictions": f"{stem}.jsonl", "masks": f"{stem}.h5"}
        return {"test": self.thresholds, "beside": title, "title": title} | files


def segmenting(settings: Settings, vlm: VlmPlan, rosalia: Sequence[str]) -> tuple[Segmenting, VlmPlan]:
    """Return the plan, and that of vision-language models with the pairs that they are asked too.

    ``rosalia``: the runs of training. Raises UserError for a segmenter that is no such run, and for a row that has the
    name of another model.
    """
    segmenter = settings.radvlm.evaluation.segmenter
    tool = segmenter.removeprefix(ROSALIA) if segmenter.startswith(ROSALIA) else ""
    if tool and tool not in rosalia:
        raise UserError(
            f"radvlm.evaluation.segmenter is {segmenter!r}, but the runs of training are {', '.join(rosalia)}: name one"
        )
    scored = settings.radvlm.evaluation.runs if TEST in vlm.sets else []
    heads = [run for run in scored if run in vlm.segmented]
    uses_cohort = OWN in settings.radvlm.sources.use
    thresholds = settings.thresholds.build[0]
    plan = Segmenting(
        tool,
        [run for run in scored if tool and run not in heads],
        heads,
        [name for name, run in vlm.runs.items() if tool and run["system"] == RADVLM and name not in vlm.segmented],
        settings.radvlm.sources.use,
        f"results/dataset/{thresholds}/{settings.inference.split}.jsonl" if uses_cohort else "",
        thresholds,
    )
    for name in plan.rows:
        if name in rosalia or name in settings.evaluation.predictions:
            raise UserError(f"{name!r} is a row of RadVLM's in the evaluation of ILS: rename the model of that name")
    asked_runs = [run for run, _ in plan.masked.values()]
    return plan, also_asked(vlm, ILS, f"{ROOT}/ils.jsonl", RADVLM, asked_runs) if asked_runs else vlm
