"""Compare the scores of a model for the plain instructions with its scores for a persona's wordings."""

from collections.abc import Sequence

import numpy as np
import polars as pl

from cxr.base.columns import read_columns, schema
from cxr.base.tables import read_table, write_table
from cxr.ils.evaluation.answer_rules import SHOWN_RULES
from cxr.ils.evaluation.summary import COVERAGE, DIGITS, GROUPS, group_filter, sum_by_patient
from cxr.metrics.intervals import difference_intervals
from cxr.metrics.masks import PAIR_METRICS

ALL_PERSONAS = "all personas"
RESOURCE_FILES = ("columns/evaluation.toml",)
COLUMNS = read_columns("evaluation", "paraphrases")
MEASURES = (*PAIR_METRICS, *(f"text_{rule}" for rule in SHOWN_RULES))
CELLS = [(lesion, measure) for lesion in GROUPS for measure in MEASURES]
PLAIN, REWORDED = "", "_reworded"  # suffixes of the columns of both versions of a pair


def run(
    *, plain: list[str], reworded: list[str], paraphrases_table: str, runs: Sequence[str], personas: Sequence[str],
    replicates: int, seed: int,
) -> None:  # fmt: skip
    """Write the table that compares each run's scores for plain instructions with those for each persona's wordings.

    ``plain``: one table of scored pairs per run; ``reworded``: one per run and persona, ordered by run, then persona.
    """
    tables, num_personas = [], len(personas)
    for number, name in enumerate(runs):
        paths = reworded[number * num_personas : (number + 1) * num_personas]
        table_by_persona = dict(zip(personas, map(read_table, paths), strict=True))
        tables.append(compare_wordings(name, read_table(plain[number]), table_by_persona, replicates, seed))
    write_table(paraphrases_table, pl.concat(tables), COLUMNS)


def compare_wordings(
    run: str, plain: pl.DataFrame, table_by_persona: dict[str, pl.DataFrame], replicates: int, seed: int
) -> pl.DataFrame:
    """Return the rows of one run, in per cent, for each persona and, if there are several, for all personas together.

    Only pairs with a score for both wordings are compared. ``change`` is the score of the reworded instructions minus
    that of the plain ones, with a paired bootstrap interval over patients.
    """
    pairs = {
        persona: plain.join(table, on="pair_id", how="inner", suffix=REWORDED)
        for persona, table in table_by_persona.items()
    }
    if len(pairs) > 1:
        pairs[ALL_PERSONAS] = pl.concat(pairs.values())
    rows = [row for persona, table in pairs.items() for row in _make_rows(run, persona, table, replicates, seed)]
    return pl.DataFrame(rows, schema=schema(COLUMNS), orient="row")


def _make_rows(run: str, persona: str, pairs: pl.DataFrame, replicates: int, seed: int) -> list[tuple]:
    is_counted_by_cell = [_select_pairs(pairs, *cell) for cell in CELLS]
    sides = []
    for suffix in (REWORDED, PLAIN):
        overlaps = [_read_numbers(pairs, name + suffix) for name in ("iou", "intersection", "union")]
        terms = {name: metric.terms(*overlaps) for name, metric in PAIR_METRICS.items()}
        terms |= {f"text_{rule}": (_read_numbers(pairs, rule + suffix), np.ones(len(pairs))) for rule in SHOWN_RULES}
        cells = zip(CELLS, is_counted_by_cell, strict=True)
        sides.append([[part * is_counted for part in terms[measure]] for (_, measure), is_counted in cells])
    sums = (sum_by_patient(pairs, ratios) for ratios in sides)
    low, high = difference_intervals(*sums, replicates=replicates, level=COVERAGE, seed=seed)
    rows = []
    for at, cell in enumerate(CELLS):
        ratios = (side[at] for side in sides)
        reworded, plain = (100 * above.sum() / below.sum() if below.any() else np.nan for above, below in ratios)
        percentages = (plain, reworded, reworded - plain, 100 * low[at], 100 * high[at])
        rounded = [None if np.isnan(value) else round(float(value), DIGITS) for value in percentages]
        rows.append((run, persona, *cell, int(is_counted_by_cell[at].sum()), *rounded))
    return rows


def _select_pairs(pairs: pl.DataFrame, lesion: str, measure: str) -> np.ndarray:
    """Return whether each pair is of a lesion type and has a value of a measure for both wordings, bool (N,)."""
    metric = PAIR_METRICS.get(measure)
    column = "iou" if metric else measure.removeprefix("text_")
    is_counted = pl.col(column).is_not_null() & pl.col(column + REWORDED).is_not_null() & group_filter(lesion)
    if metric:
        is_counted &= group_filter(metric.polarity)
    return pairs.select(is_counted=is_counted)["is_counted"].to_numpy()


def _read_numbers(pairs: pl.DataFrame, column: str) -> np.ndarray:
    return pairs[column].cast(pl.Float64).fill_null(0).to_numpy()
