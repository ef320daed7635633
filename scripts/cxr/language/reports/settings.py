"""Settings of the reports stage, of its engine and of the paper's language models."""

from typing import Literal

from cxr.base.settings import PAPER, Section, key, redefine
from cxr.llm.settings import LanguageModel

NOTHING_SHARE = 0.1
"""Fraction of studies without a usable report above which the log warns."""


class LocationMapping(LanguageModel):
    """Settings of the language model that maps locations to categories and zone labels (Figure 10)."""

    model: str = redefine(LanguageModel, "model", "google/medgemma-27b-text-it", source=PAPER)
    revision: str = redefine(LanguageModel, "revision", "6b08c481126ff65a9b8fa5ab4d691b152b8edb5d")
    max_tokens: int = redefine(LanguageModel, "max_tokens", 512)


class ReportsLlm(Section):
    """The two language models of the paper. One extracts findings from the text, the other maps their locations."""

    structuring: LanguageModel = key(LanguageModel, "Extracts findings from a report section (Figure 9).", source=PAPER)
    mapping: LocationMapping = key(
        LocationMapping, "Maps locations to categories and zone labels (Figure 10).", source=PAPER
    )


class ReadingSettings(Section):
    """Settings for reading reports. All engines use them."""

    engine: Literal["rules", "vllm", "both"] = key(
        "rules",
        "Engine that extracts findings from reports. rules: word lists (resources/lexicon), without a language model; "
        "vllm: the paper's language models; both: the rules, and vllm only for reports that the rules do not fully "
        "understand (docs/reference/reports.md).",
    )
    sections: Literal["auto", "mimic", "tolerant"] = key(
        "auto",
        "Method that splits reports into sections. mimic: the official rules of MIMIC-CXR; tolerant: detection of the "
        "headings of most layouts (docs/reference/reports.md); auto: mimic if cohort.source is mimic, else tolerant.",
    )
    max_characters: int = key(
        20_000,
        "Maximum length of a report. A longer report is excluded (too_long).",
        unit="characters",
        ge=100,
        le=10_000_000,
    )
    max_findings: int = key(
        300, "Maximum findings in a section. A report with more is excluded (too_long).", unit="findings", ge=1
    )
    section_overrides: bool = key(
        True,
        "Whether to apply the official section corrections for single MIMIC-CXR studies, and to correct a misspelt "
        "section name in the official table. It has no effect if `sections` is tolerant.",
    )
    effusion_without_side: Literal["both_bases", "none"] = key(
        "both_bases", "Zone labels of an effusion without a stated side: both lung bases, or no label (Figure 11)."
    )


class ReportsSettings(ReadingSettings):
    """Extraction of findings from reports."""

    llm: ReportsLlm = key(ReportsLlm, "Language models of the engines `vllm` and `both`.")
