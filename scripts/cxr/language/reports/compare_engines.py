"""Comparison of the language model with the rules engine on the same sentences.

An engine *affirms* a lesion type in a study if one of its positive findings is of this type or may represent it. It
*denies* the type if only negative findings are of this type. Otherwise, the type is *unmentioned*.
"""

from collections.abc import Iterable
from itertools import chain

import numpy as np
import polars as pl

from cxr.base.columns import Column, schema
from cxr.base.errors import count_phrase
from cxr.base.jobs import log, progress
from cxr.base.tables import read_lines, write_table
from cxr.base.vocabulary import LESIONS
from cxr.language.reports import hand_over, language, rules, vocabulary
from cxr.language.reports.engine import EngineOptions

STATES = ("affirmed", "denied", "unmentioned")
LESION = {"lesion": Column(pl.String, "Lesion type.")}
AGREEMENT = LESION | {
    "studies": Column(pl.Int64, "Studies compared."),
    "both_affirm": Column(pl.Int64, "Studies in which both engines affirm the type."),
    "only_engine_affirms": Column(pl.Int64, "Studies in which only the language model affirms the type."),
    "only_rules_affirm": Column(pl.Int64, "Studies in which only the rules engine affirms the type."),
    "both_deny": Column(pl.Int64, "Studies in which both engines deny the type."),
    "both_silent": Column(pl.Int64, "Studies in which neither engine mentions the type."),
    "agreement": Column(
        pl.Float64, "Fraction of the studies in which both engines give the same state; null without studies."
    ),
    "kappa": Column(pl.Float64, "Cohen's kappa of the three states; null where it is not defined."),
    "kappa_affirmed": Column(pl.Float64, "Cohen's kappa of affirmed or not affirmed; null where it is not defined."),
}
DISAGREEMENTS = {
    "study_id": Column(pl.String, "Study."),
    **LESION,
    "engine": Column(pl.String, "State from the language model: affirmed, denied or unmentioned."),
    "rules": Column(pl.String, "State from the rules engine: affirmed, denied or unmentioned."),
    "sentences": Column(pl.String, "Numbered sentences in which either engine affirms or denies the type."),
}


def run(*, reports: list[str], agreement: str, disagreements: str, effusion_without_side: str) -> None:
    """Write ``agreement`` (one row per lesion type) and ``disagreements`` (one row per study and disputed lesion type).

    Only studies that the language model has read are compared. Sections in other languages than English and reports
    that the rules engine refuses are left out. ``effusion_without_side`` is the reports stage's setting of this name.
    """
    structure = rules.load(EngineOptions(effusion_without_side))
    report_vocabulary = vocabulary.load_vocabulary()
    languages = language.load_languages(report_vocabulary)
    lines, num_foreign = [], 0
    for line in (line for path in reports for line in read_lines(path)):
        if line["engine"] != "rules" and line["handed_over"] not in hand_over.REFUSALS:
            is_foreign = language.detect_foreign(line["sentences"], languages, report_vocabulary) is not None
            lines += [] if is_foreign else [line]
            num_foreign += is_foreign
    if num_foreign:
        noun = "section is not English and is", "sections are not English and are"
        log.info("agreement: %s excluded", count_phrase(num_foreign, *noun))
    counts = np.zeros((len(LESIONS), len(STATES), len(STATES)), np.int64)
    rows = []
    for line in progress(lines, len(lines), "agreement"):
        tuples_by_engine = {"engine": line["tuples"], "rules": structure(line["sentences"])}
        for table, lesion in zip(counts, LESIONS, strict=True):
            states = {name: lesion_state(tuples, lesion) for name, tuples in tuples_by_engine.items()}
            table[STATES.index(states["engine"]), STATES.index(states["rules"])] += 1
            if states["engine"] != states["rules"]:
                all_tuples = chain.from_iterable(tuples_by_engine.values())
                numbers = sorted({item["sentence_index"] for item in all_tuples if _names(item, lesion)})
                texts = [f"{number}. {' '.join(line['sentences'][number - 1].split())}" for number in numbers]
                rows.append({"study_id": line["study_id"], "lesion": lesion, **states, "sentences": " ".join(texts)})
    agreements = [_agreement_row(lesion, table) for lesion, table in zip(LESIONS, counts, strict=True)]
    write_table(agreement, pl.DataFrame(agreements, schema=schema(AGREEMENT), orient="row"), AGREEMENT)
    differing = pl.DataFrame(rows, schema=schema(DISAGREEMENTS)).sort("study_id", "lesion")
    write_table(disagreements, differing, DISAGREEMENTS)


def _names(item: dict, lesion: str) -> bool:
    return lesion in (item["lesion_type"], *item["candidates"])


def lesion_state(tuples: Iterable[dict], lesion: str) -> str:
    """Return the state of a lesion type ("affirmed", "denied" or "unmentioned") by the finding tuples of a study."""
    presences = {item["presence"] for item in tuples if _names(item, lesion)}
    return "affirmed" if "positive" in presences else "denied" if presences else "unmentioned"


def cohens_kappa(table: np.ndarray) -> float:
    """Return Cohen's kappa of a square table of counts, or NaN if all counts are in one diagonal cell or are 0."""
    total = table.sum()
    chance = (table.sum(0) * table.sum(1)).sum() / total**2 if total else 1.0
    return float("nan") if chance == 1 else float((np.trace(table) / total - chance) / (1 - chance))


def _agreement_row(lesion: str, table: np.ndarray) -> list:
    """Return a lesion type's row of :data:`AGREEMENT`. ``table`` (3, 3) has numbers of studies by the state from the
    language model (rows) and from the rules engine (columns), both in the order of ``STATES``."""
    total = int(table.sum())
    yes = np.array([[table[0, 0], table[0, 1:].sum()], [table[1:, 0].sum(), table[1:, 1:].sum()]])
    affirming, silent = [int(yes[0, 0]), int(yes[0, 1]), int(yes[1, 0])], [int(table[1, 1]), int(table[2, 2])]
    rates = [float(np.trace(table) / total) if total else float("nan"), cohens_kappa(table), cohens_kappa(yes)]
    return [lesion, total, *affirming, *silent, *(None if np.isnan(rate) else round(rate, 4) for rate in rates)]
