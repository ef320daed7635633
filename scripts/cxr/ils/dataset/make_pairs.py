"""The dataset stage: write the instruction-answer pairs of all shards under one threshold set, one file per split.

The input images are the rows of the masks stage's tables ``studies``. An image without a pair is excluded with the
reason ``no_pairs``. Every pair that was not made has a row in the table ``dropped``, with the reason.
"""

import heapq
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import groupby
from operator import itemgetter

import polars as pl

from cxr.base.columns import read_columns, schema
from cxr.base.jobs import progress
from cxr.base.ledger import Ledger
from cxr.base.tables import read_lines, read_table, write_table
from cxr.base.vocabulary import LESIONS, SPLITS
from cxr.ils.dataset.negatives import Bars, Census, choose_negatives, draw_numbers, find_open_ways, gather_evidence
from cxr.ils.dataset.pairs import POLARITIES, Pair, make_line, make_positives, make_records
from cxr.ils.dataset.settings import PairSettings
from cxr.instructions.record import Record, open_split_files

RESOURCE_FILES = ("columns/dataset.toml",)
DROPPED = read_columns("dataset", "dropped")
"""Columns of the table of pairs that were not made."""


def run(
    *,
    reports: Sequence[str],
    units: Sequence[str],
    studies: Sequence[str],
    train: str,
    validate: str,
    test: str,
    excluded: str,
    dropped: str,
    options: PairSettings,
    seed: int,
) -> None:
    """Write the pairs of all shards as JSON Lines, one file per split, and the tables ``excluded`` and ``dropped``.

    Studies are written in the order of their ids, so the bytes do not depend on the number of shards. All studies are
    read twice. The first pass counts the allowed negative pairs, and the second makes all pairs. Reports are
    streamed, but the tables stay in memory (3 kB per image, dropped pairs included).
    """
    study_rows = pl.concat(map(read_table, studies)).sort("study_id", "image_id")
    unit_rows = pl.concat(map(read_table, units)).sort("study_id", "image_id", "unit")
    num_studies = study_rows["study_id"].n_unique()
    census = Census()
    for images, line in progress(_read_studies(study_rows, unit_rows, reports), num_studies, "possible denials"):
        _count_denials(images, line, options, seed, census)
    bars = census.bars(options.global_share, options.opacity_inference_share)
    ledger, drops = Ledger("dataset"), []
    with open_split_files(dict(zip(SPLITS, (train, validate, test), strict=True)), make_line) as write:
        for images, line in progress(_read_studies(study_rows, unit_rows, reports), num_studies, "dataset"):
            for record in _make_study_records(images, line, options, seed, bars, ledger, drops):
                write(record)
    ledger.finish(excluded, study_rows["image_id"])
    write_table(dropped, pl.DataFrame(drops, schema=schema(DROPPED), orient="row").sort(list(DROPPED)), DROPPED)


Images = list[tuple[dict, list[dict]]]
"""The images of a study, each as (row of the table ``studies``, rows of the table ``units``) of the masks stage."""


def _read_studies(rows: pl.DataFrame, units: pl.DataFrame, reports: Sequence[str]) -> Iterator[tuple[Images, dict]]:
    """Yield (images, line of the report) for each study, in the order of the study ids."""
    report_rows = _StudyRows(heapq.merge(*map(read_lines, reports), key=_study_id))
    unit_rows_by_study = _StudyRows(units.iter_rows(named=True))
    for study_id, group in groupby(rows.iter_rows(named=True), key=_study_id):
        (line,) = report_rows.get(study_id)
        study_units = unit_rows_by_study.get(study_id)
        yield [(row, [unit for unit in study_units if unit["image_id"] == row["image_id"]]) for row in group], line


_study_id = itemgetter("study_id")


def _count_denials(images: Images, line: dict, options: PairSettings, seed: int, census: Census) -> None:
    """Count each lesion type once in ``census``, for the study's first image whose pairs may deny it."""
    counted_lesions: set[str] = set()
    for row, units in images:
        study_evidence = gather_evidence(row, line, options.unknown_words_max)
        taken = _used_instructions(make_positives(units, one_answer=options.one_answer)[0], options)
        for lesion in LESIONS:
            if lesion in counted_lesions:
                continue
            ways = find_open_ways(lesion, study_evidence, options, taken)
            if not ways.reason:
                counted_lesions.add(lesion)
                census.add(lesion, ways, draw_numbers(seed, row["study_id"], lesion))


def _used_instructions(pairs: Iterable[Pair], options: PairSettings) -> Collection[str]:
    return {pair.instruction for pair in pairs} if options.one_answer == "strict" else ()


class _StudyRows:
    """Reader of rows that are sorted by study, one study at a time."""

    def __init__(self, rows: Iterable[dict]):
        self._runs = groupby(rows, key=_study_id)
        self._key, self._rows = "", []

    def get(self, study_id: str) -> list[dict]:
        """Return the rows of a study, or an empty list. Studies must be requested in ascending order."""
        while self._key < study_id and (following := next(self._runs, None)):
            self._key, self._rows = following[0], list(following[1])
        return self._rows if self._key == study_id else []


def _make_study_records(
    images: Images, line: dict, options: PairSettings, seed: int, bars: Bars, ledger: Ledger, drops: list[tuple]
) -> Iterator[Record]:
    """Yield a study's pairs as records. Note its images in ``ledger`` and the pairs that were not made in ``drops``."""
    numbers: Counter = Counter()
    denied: set[str] = set()
    for row, units in images:
        pairs, missing = make_image_pairs(row, units, line, options, seed, bars, denied)
        denied |= {pair.target for pair in pairs if not pair.seg}
        drops += [(row["study_id"], row["image_id"], *drop.values()) for drop in missing]
        if pairs:
            ledger.accept(row["image_id"])
        else:
            counts = Counter(drop["reason"] for drop in missing)
            detail = ", ".join(f"{reason} {number}" for reason, number in sorted(counts.items()))
            ledger.exclude(row["image_id"], row["study_id"], "no_pairs", detail)
        report = {
            "section_name": line["section_name"],
            "section_content": line["section_text"],
            "reader": "-".join(line["digests"][name] for name in ("code", "lexicon", "witnesses")),
        }
        yield from make_records(row, report, pairs, numbers)


def make_image_pairs(
    study: dict,
    units: list[dict],
    line: dict,
    options: PairSettings,
    seed: int,
    bars: Bars,
    denied: Collection[str] = (),
) -> tuple[list[Pair], list[dict]]:
    """Return (pairs of one image, positives first; one dict per pair that was not made, with the reason).

    ``study``, ``units``: the image's rows of these tables; ``line``: its report; ``bars``: from :meth:`Census.bars`;
    ``denied``: lesion types that the pairs of another image of the study already deny.
    """
    pairs, drops = make_positives(units, one_answer=options.one_answer)
    missing = [{"polarity": POLARITIES[0]} | drop for drop in drops]
    evidence = gather_evidence(study, line, options.unknown_words_max)
    denials, reasons = choose_negatives(evidence, options, seed, bars, _used_instructions(pairs, options))
    reasons |= {pair.target: "other_image" for pair in denials if pair.target in denied}
    pairs += [pair for pair in denials if pair.target not in denied]
    missing += [
        {"polarity": POLARITIES[1], "type": None, "target": lesion, "reason": reason}
        for lesion, reason in reasons.items()
    ]
    return pairs, missing
