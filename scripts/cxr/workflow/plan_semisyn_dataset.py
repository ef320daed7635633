"""The plan of the dataset of SemiSynCXR: its sizes, and the options of its exports."""

from dataclasses import dataclass

from cxr.semisyn.shared import PARTS
from cxr.workflow.params import decoding
from cxr.workflow.settings import Settings


@dataclass(frozen=True)
class DatasetPlan:
    """What the dataset's rules take from the settings besides their options.

    sizes: of the exports, in images of all findings together, or parts of them; export: their options.
    """

    sizes: list[int | str]
    export: dict


def dataset_plan(settings: Settings, options: dict[str, dict], labels: dict[str, str]) -> DatasetPlan:
    """Return the plan; ``options``: those of the stages; ``labels``: {finding: what it is called}."""
    sizes = settings.semisyn.dataset.sizes
    return DatasetPlan(
        list(PARTS) if sizes == "auto" else sizes, export_options(settings, options) | {"labels": labels}
    )


def export_options(settings: Settings, options: dict[str, dict]) -> dict:
    """Return the options of the exports."""
    section, release = settings.semisyn.dataset, settings.release
    withheld = release.kinds() if section.withhold else []
    return {
        "findings": settings.semisyn.findings,
        "kind": section.boxes,
        "target": section.target,
        "pixels": section.pixels,
        "withhold": withheld,
        "salt": release.salt if "ids" in withheld else "",
        "frames": decoding(options) if section.pixels == "original" else {},
    }
