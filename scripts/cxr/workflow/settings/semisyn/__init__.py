"""Settings of SemiSynCXR: one module for each stage that has settings."""

from typing import Literal

from cxr.base.vocabulary import FINDINGS
from cxr.workflow.settings.base import PAPER, Section, key
from cxr.workflow.settings.semisyn.healthy import Healthy

Finding = Literal[tuple(FINDINGS)]


class Semisyn(Section):
    """SemiSynCXR: findings put into healthy X-rays."""

    findings: list[Finding] = key(
        lambda: list(FINDINGS), "Findings to make, in this order.", source=PAPER, min_length=1
    )
    healthy: Healthy = key(Healthy, "The healthy pool.")
