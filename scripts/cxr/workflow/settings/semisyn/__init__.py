"""Settings of SemiSynCXR: one module for each stage that has settings."""

from typing import Literal

from pydantic import model_validator

from cxr.base.vocabulary import FINDINGS
from cxr.workflow.settings.base import PAPER, Section, key
from cxr.workflow.settings.semisyn.dataset import PER_FINDING, Dataset
from cxr.workflow.settings.semisyn.detection import Detection
from cxr.workflow.settings.semisyn.detectors import Detectors
from cxr.workflow.settings.semisyn.healthy import Healthy
from cxr.workflow.settings.semisyn.references import Reference, ReferenceName

Finding = Literal[tuple(FINDINGS)]


class Semisyn(Section):
    """SemiSynCXR: findings put into healthy X-rays."""

    findings: list[Finding] = key(
        lambda: list(FINDINGS), "Findings to make, in this order.", source=PAPER, min_length=1
    )
    healthy: Healthy = key(Healthy, "The healthy pool.")
    dataset: Dataset = key(Dataset, "Sizes and formats.")
    references: dict[ReferenceName, Reference] = key(
        dict, "People's boxes by name: what priors are fitted on, and detectors trained and scored."
    )
    detectors: Detectors = key(Detectors, "Detectors trained with and without synthetic images.")
    detection: Detection = key(Detection, "Scores of detectors against people's boxes.")

    @model_validator(mode="after")
    def _sizes_are_of_all_findings(self) -> "Semisyn":
        if self.dataset.sizes == "auto":
            return self
        number, most = len(self.findings), self.dataset.per_finding or PER_FINDING
        for size in self.dataset.sizes:
            if size % number or size > number * most:
                raise ValueError(
                    f"dataset.sizes holds {size}: give multiples of {number}, the number of findings, up to "
                    f"{number * most}, or raise dataset.per_finding"
                )
        return self
