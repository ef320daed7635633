"""Comparing the language model's tuples with those of the rules engine on the same sentences.

Each study and lesion type is *affirmed* (a positive tuple names it, or names it as a finding's explanation), *denied*
(only negative tuples name it) or *unmentioned*.
"""

from collections.abc import Iterable, Iterator

import numpy as np
import polars as pl

from cxr.base.columns import Column, schema
from cxr.base.errors import count_phrase
from cxr.base.jobs import log, progress
from cxr.base.paths import RESOURCES
from cxr.base.tables import read_lines, write_table
from cxr.base.vocabulary import LESIONS
from cxr.language.reports import hand_over, language, rules, vocabulary
from cxr.language.reports.engine import EngineOptions

RESOURCE_FILES = ("lexicon", "reading")
STATES = ("affirmed", "denied", "unmentioned")
LESION = {"lesion": Column(pl.String, "Lesion type.")}
AGREEMENT = LESION | {
    "studies": Column(pl.Int64, "Studies compared."),
    "both_affirm": Column(pl.Int64, "Studies in which both engines affirm it."),
    "only_engine_affirms": Column(pl.Int64, "Studies in which only the chosen engine affirms it."),
    "only_rules_affirm": Column(pl.Int64, "Studies in which only the rules affirm it."),
    "both_deny": Column(pl.Int64, "Studies in which both deny it."),
    "both_silent": Column(pl.Int64, "Studies in which neither mentions it."),
    "agreement": Column(
        pl.Float64, "Fraction of the studies in which both are in the same state; null without a study."
    ),
    "kappa": Column(pl.Float64, "Cohen's kappa of the three states; null where it is not defined."),
    "kappa_affirmed": Column(pl.Float64, "Cohen's kappa of affirmed against the rest; null where it is not defined."),
}
DISAGREEMENTS = {
    "study_id": Column(pl.String, "Study."),
    **LESION,
    "engine": Column(pl.String, "State by the chosen engine: affirmed, denied or unmentioned."),
    "rules": Column(pl.String, "State by the rules."),
    "sentences": Column(pl.String, "Sentences that either names, by their numbers."),
}


def run(*, reports: list[str], agreement: str, disagreements: str, effusion_without_side: str) -> None:
    """Compare the engines over all shards; ``effusion_without_side``: as in the stage's options.

    Writes ``agreement`` (one row per lesion type: studies, counts of the states, agreement, Cohen's kappa of the three
    states and of affirmed against the rest) and ``disagreements`` (one row per study and lesion type that differ, with
    the sentences that either engine names). Only studies that both can read are compared: with the engine both, those
    that the rules handed over without refusing them; never a section that is not English.
    """
    lexicon, words = (str(RESOURCES / name) for name in RESOURCE_FILES)
    structure = rules.load(EngineOptions(lexicon, effusion_without_side))
    report_vocabulary = vocabulary.load_vocabulary(words, lexicon)
    languages = language.load_languages(f"{words}/languages.yaml", report_vocabulary)
    all_lines = [
        line
        for path in reports
        for line in read_lines(path)
        if line["engine"] != "rules" and line["handed_over"] not in hand_over.REFUSALS
    ]
    lines = [
        line for line in all_lines if language.detect_foreign(line["sentences"], languages, report_vocabulary) is None
    ]
    if len(lines) < len(all_lines):
        left_out = count_phrase(
            len(all_lines) - len(lines), "section is not English and is", "sections are not English and are"
        )
        log.info("agreement: %s left out", left_out)
    counts = np.zeros((len(LESIONS), len(STATES), len(STATES)), np.int64)
    rows = []
    for line in progress(lines, len(lines), "agreement"):
        ours, theirs = structure(line["sentences"]), line["tuples"]
        for number, lesion in enumerate(LESIONS):
            pair = lesion_state(theirs, lesion), lesion_state(ours, lesion)
            counts[number, STATES.index(pair[0]), STATES.index(pair[1])] += 1
            if pair[0] != pair[1]:
                rows.append(_difference(line, lesion, pair, [*ours, *theirs]))
    write_table(agreement, pl.DataFrame(list(_agreement_rows(counts)), schema=schema(AGREEMENT)), AGREEMENT)
    differing = pl.DataFrame(rows, schema=schema(DISAGREEMENTS)).sort("study_id", "lesion")
    write_table(disagreements, differing, DISAGREEMENTS)


def lesion_state(tuples: Iterable[dict], lesion: str) -> str:
    """Return the state of a lesion type in a study: one of ``STATES``."""
    lesion_tuples = [item for item in tuples if lesion in (item["lesion_type"], *item["candidates"])]
    if any(item["presence"] == "positive" for item in lesion_tuples):
        return "affirmed"
    return "denied" if lesion_tuples else "unmentioned"


def cohens_kappa(table: np.ndarray) -> float:
    """Return Cohen's kappa of a square table of counts; NaN if both raters use only one, identical state."""
    total = table.sum()
    chance = (table.sum(0) * table.sum(1)).sum() / total**2 if total else 1.0
    return float("nan") if chance == 1 else float((np.trace(table) / total - chance) / (1 - chance))


def _difference(line: dict, lesion: str, pair: tuple[str, str], tuples: list[dict]) -> dict:
    sentence_numbers = {
        item["sentence_index"] for item in tuples if lesion in (item["lesion_type"], *item["candidates"])
    }
    texts = [f"{number}. {' '.join(line['sentences'][number - 1].split())}" for number in sorted(sentence_numbers)]
    return {
        "study_id": line["study_id"],
        "lesion": lesion,
        "engine": pair[0],
        "rules": pair[1],
        "sentences": " ".join(texts),
    }


def _agreement_rows(counts: np.ndarray) -> Iterator[dict]:
    for lesion, table in zip(LESIONS, counts, strict=True):
        yes = np.array([[table[0, 0], table[0, 1:].sum()], [table[1:, 0].sum(), table[1:, 1:].sum()]])
        yield {
            "lesion": lesion,
            "studies": int(table.sum()),
            "both_affirm": int(table[0, 0]),
            "only_engine_affirms": int(yes[0, 1]),
            "only_rules_affirm": int(yes[1, 0]),
            "both_deny": int(table[1, 1]),
            "both_silent": int(table[2, 2]),
            "agreement": round(float(np.trace(table) / table.sum()), 4) if table.sum() else None,
            "kappa": _rounded(cohens_kappa(table)),
            "kappa_affirmed": _rounded(cohens_kappa(yes)),
        }


def _rounded(value: float) -> float | None:
    return None if np.isnan(value) else round(value, 4)
