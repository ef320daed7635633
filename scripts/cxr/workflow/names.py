"""Names in the paths of results: which kind of name a folder bears, and which names there are."""

import re
from collections.abc import Iterable, Mapping

from cxr.workflow.plan import Plan

KIND_BY_PATH = {
    r"results/(?:masks|dataset|figures|review|release|paraphrase)/([^/]+)/": "threshold set",
    r"results/(?:training|inference|evaluation)/([^/]+)/": "run",
    r"results/vlm/([^/]+)/": "vision-language run",
    r"results/radvlm/instructions/([^/]+)/": "mix",
    r"results/medground/(?:sources|regions|queries|verification)/([^/]+)/": "MedGround source",
    r"results/semisyn/detectors/([^/]+)\.s\d+/": "detector run",
}
"""{pattern of a path: what its folder is named after}."""
DECLARED_AT = {
    "threshold set": "thresholds.sets and thresholds.grid",
    "run": "training.runs and evaluation.predictions",
    "vision-language run": "vlm.tuning.runs and vlm.answers.predictions",
    "mix": "radvlm.instructions.mixes",
    "MedGround source": "medground.sources.sets",
    "detector run": "semisyn.detectors.runs",
}
"""{kind of name: settings that declare such names}."""


def declared_names(plan: Plan) -> Mapping[str, Iterable[str]]:
    """Return {kind of name: the names that the settings declare}."""
    return {
        "threshold set": plan.sets,
        "run": [*plan.ils.runs, *plan.ils.predictions],
        "vision-language run": [*plan.vlm.runs, *plan.vlm.predictions],
        "mix": plan.radvlm.mixes,
        "MedGround source": plan.medground.sources,
        "detector run": plan.semisyn.detectors.runs,
    }


def describe_unknown_name(plan: Plan, path: str) -> str:
    """Return a sentence if a path of results bears a name that the settings do not declare, else ""."""
    for pattern, kind in KIND_BY_PATH.items():
        match = re.match(pattern, path.removeprefix("./"))
        names = list(declared_names(plan)[kind])
        if match and match[1] not in names:
            return (
                f"{path}: there is no {kind} {match[1]!r}; there {'is' if len(names) == 1 else 'are'} "
                f"{', '.join(names) or 'none'} ({DECLARED_AT[kind]})"
            )
    return ""
