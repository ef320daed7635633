"""Settings of the reports: the engine, and the paper's language models."""

from typing import Literal

from cxr.base.settings import PAPER, Section, key, redefine
from cxr.llm.settings import LanguageModel

NOTHING_SHARE = 0.1
"""Fraction of studies without a usable report above which the log warns."""


class LocationMapping(LanguageModel):
    """The model that maps locations to categories and zone labels (Figure 10)."""

    model: str = redefine(LanguageModel, "model", "google/medgemma-27b-text-it", source=PAPER)
    revision: str = redefine(LanguageModel, "revision", "6b08c481126ff65a9b8fa5ab4d691b152b8edb5d")
    max_tokens: int = redefine(LanguageModel, "max_tokens", 512)


class ReportsLlm(Section):
    """The paper's engine: one language model structures the text, another maps the locations."""

    structuring: LanguageModel = key(LanguageModel, "From the section's text to findings (Figure 9).", source=PAPER)
    mapping: LocationMapping = key(
        LocationMapping, "From locations to categories and zone labels (Figure 10).", source=PAPER
    )


class ReadingSettings(Section):
    """How reports are read, by any engine."""

    engine: Literal["rules", "vllm", "both"] = key(
        "rules",
        "rules: spaCy and resources/lexicon, no download; vllm: the paper's language models; both: the rules first, "
        "and vllm for the reports that they do not fully understand (docs/reference/reports.md).",
    )
    sections: Literal["auto", "mimic", "tolerant"] = key(
        "auto",
        "How sections are found. mimic: the official rules of MIMIC-CXR; tolerant: headings of most layouts "
        "(docs/reference/reports.md); auto: mimic for cohort.source mimic, else tolerant.",
    )
    max_characters: int = key(
        20_000, "Maximum length of a report; a longer one is too_long.", unit="characters", ge=100, le=10_000_000
    )
    max_findings: int = key(
        300, "Maximum number of findings in a section; a report with more is too_long.", unit="findings", ge=1
    )
    section_overrides: bool = key(
        True,
        "Whether to apply the official corrections of MIMIC-CXR's section code for single studies, and correct "
        "its table (NDICATION is an indication); only for sections mimic.",
    )
    effusion_without_side: Literal["both_bases", "none"] = key(
        "both_bases", "Zone labels of an effusion without a stated side: both lung bases, or none (after Fig. 11)."
    )


class ReportsSettings(ReadingSettings):
    """From report text to findings."""

    llm: ReportsLlm = key(ReportsLlm, "The language models of the engine vllm.")
