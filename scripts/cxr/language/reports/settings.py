"""Settings of the reports: the engine, and the paper's language models."""

from typing import Literal

from cxr.base.settings import PAPER, Section, key, redefine
from cxr.llm.settings import LanguageModel

NOTHING_SHARE = 0.1
"""The log warns if a larger fraction of the studies has no usable report."""


class LocationMapping(LanguageModel):
    """The model that maps locations to categories and zone labels (Figure 10)."""

    model: str = redefine(LanguageModel, "model", "google/medgemma-27b-text-it", source=PAPER)
    revision: str = redefine(LanguageModel, "revision", "6b08c481126ff65a9b8fa5ab4d691b152b8edb5d")
    max_tokens: int = redefine(LanguageModel, "max_tokens", 512)


class ReportsLlm(Section):
    """The paper's engine: one language model structures the text, another maps the locations."""

    structuring: LanguageModel = key(LanguageModel, "Extracts findings from a section (Figure 9).", source=PAPER)
    mapping: LocationMapping = key(
        LocationMapping, "Maps locations to categories and zone labels (Figure 10).", source=PAPER
    )


class ReadingSettings(Section):
    """Settings for reading reports, the same for every engine."""

    engine: Literal["rules", "vllm", "both"] = key(
        "rules",
        "rules: spaCy and resources/lexicon, no download; vllm: the paper's language models; both: the rules, "
        "then vllm for reports that they do not fully understand (docs/reference/reports.md).",
    )
    sections: Literal["auto", "mimic", "tolerant"] = key(
        "auto",
        "How sections are found. mimic: MIMIC-CXR's official rules; tolerant: headings of most layouts "
        "(docs/reference/reports.md); auto: mimic if cohort.source is mimic, otherwise tolerant.",
    )
    max_characters: int = key(
        20_000, "Maximum length; longer reports are excluded as too_long.", unit="characters", ge=100, le=10_000_000
    )
    max_findings: int = key(
        300, "Maximum findings in a section; reports with more are excluded as too_long.", unit="findings", ge=1
    )
    section_overrides: bool = key(
        True,
        "Whether to apply the official section corrections of single MIMIC-CXR studies, after fixing a misspelt "
        "section name in their table (only with sections mimic).",
    )
    effusion_without_side: Literal["both_bases", "none"] = key(
        "both_bases", "Zone labels of an effusion without a stated side: both lung bases, or none (see Figure 11)."
    )


class ReportsSettings(ReadingSettings):
    """Extraction of findings from reports."""

    llm: ReportsLlm = key(ReportsLlm, "The language models of the engine vllm.")
