"""Settings of the reports: the engine, and the paper's language models."""

from typing import Literal

from cxr.base.settings import PAPER, Address, Section, key
from cxr.llm.settings import Asking, Execution, LanguageModel, context, max_tokens, model, revision

NOTHING_SHARE = 0.1
"""Fraction of studies without a usable report above which the log warns."""


class Structuring(LanguageModel):
    """The model that turns a section into findings (Figure 9)."""

    model: str = model("mistralai/Mistral-Small-3.1-24B-Instruct-2503", PAPER)
    revision: str = revision("68faf511d618ef198fef186659617cfd2eb8e33a")
    context: int = context()
    max_tokens: int = max_tokens(4096)


class LocationMapping(LanguageModel):
    """The model that maps locations to categories and zone labels (Figure 10)."""

    model: str = model("google/medgemma-27b-text-it", PAPER)
    revision: str = revision("6b08c481126ff65a9b8fa5ab4d691b152b8edb5d")
    context: int = context()
    max_tokens: int = max_tokens(512)


class ReportsExecution(Execution):
    """How the language models run. No answer depends on it, so a change re-runs nothing."""

    mapping_server: Address = key("", "Address of the mapping model's server; empty for the same server.")


class ReportsLlm(Asking):
    """The paper's engine: one language model structures the text, another maps the locations."""

    structuring: Structuring = key(Structuring, "From the section's text to findings (Figure 9).", source=PAPER)
    mapping: LocationMapping = key(
        LocationMapping, "From locations to categories and zone labels (Figure 10).", source=PAPER
    )
    execution: ReportsExecution = key(ReportsExecution, "How the models run.")


class ReadingSettings(Section):
    """How reports are read, by any engine."""

    engine: Literal["rules", "vllm", "both"] = key(
        "rules",
        "rules: spaCy and the lexicon in resources/lexicon, no download; vllm: the paper's language models; both: "
        "vllm, and a table of the agreement between rules and vllm.",
    )
    sections: Literal["auto", "mimic", "tolerant"] = key(
        "auto",
        "How sections are found. mimic: the official rules of MIMIC-CXR; tolerant: headings of most layouts "
        "(docs/reference/reports.md); auto: mimic where cohort.source is mimic, else tolerant.",
    )
    max_characters: int = key(
        20_000,
        "Maximum length of a report; longer ones are excluded as too_long.",
        unit="characters",
        ge=100,
        le=10_000_000,
    )
    max_findings: int = key(
        300,
        "Maximum number of findings in a section; reports with more are excluded as too_long.",
        unit="findings",
        ge=1,
    )
    section_overrides: bool = key(
        True,
        "Whether to apply the official per-study corrections of MIMIC-CXR's section code, and correct the known "
        "mistake in its table (NDICATION is an indication, not an impression); only for sections mimic.",
    )
    effusion_without_side: Literal["both_bases", "none"] = key(
        "both_bases", "Zone labels of an effusion whose side is not stated: both lung bases, or none (after Fig. 11)."
    )


class ReportsSettings(ReadingSettings):
    """From report text to findings."""

    llm: ReportsLlm = key(ReportsLlm, "The language models of the engine vllm.")
