"""Score predictions against references, and compare runs.

Intervals of differences come from paired bootstrap draws of patients: both runs see the same draws. The paper's test on
replicates is reported for comparison only.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import polars as pl

from cxr.base.columns import schema
from cxr.base.errors import UserError
from cxr.base.seeds import stable_hash
from cxr.base.tables import read_table, write_table
from cxr.base.user_tables import read_frame, require_columns
from cxr.metrics.intervals import percentile_ends
from cxr.metrics.paired import (
    adjust_holm,
    compare_replicates,
    draw_images,
    draw_patient_weights,
    wilcoxon_on_replicates,
)
from cxr.semisyn.detection import paper_tables
from cxr.semisyn.detection.measures import MEAN, MatchedRun, Population, match_run, population_of, rarest_finding
from cxr.semisyn.detection.paper_tables import DIFFERENCES, SCORES
from cxr.semisyn.references import (
    PREDICTIONS,
    TRAIN,
    Reference,
    map_patients,
    read_patients,
    read_reference,
    refuse_two_roles,
)
from cxr.semisyn.shared import AP_IOUS, AP_RECALLS, INTERVAL, PARTS, images_per_finding

RECALL_IOU, SAMPLE_IOU = 0.3, 0.5
"""IoU of map30 and of the recalls; IoU of the per-image AP."""
IOUS = tuple(dict.fromkeys([*AP_IOUS, RECALL_IOU, SAMPLE_IOU]))
"""All IoUs of the matching, the averaged ones first."""
METRICS = {
    f"ap{100 * AP_IOUS[0]:.0f}{100 * AP_IOUS[-1]:.0f}": [*range(len(AP_IOUS))],
    f"ap{100 * RECALL_IOU:.0f}": [IOUS.index(RECALL_IOU)],
}
"""{metric: indices of the IoUs that it averages}."""
WILCOXON = (100, 1000)
"""Numbers of replicates of the paper's test."""
KINDS = ("random", "stratified")


@dataclass(frozen=True, kw_only=True)
class DetectionOptions:
    """Settings of the stage (``semisyn.detection``).

    against: the run that others are compared with; replicates: of the bootstrap by patient; findings: scored ones;
    runs: [run, seed number, reference] of each prediction file, in their order; references: [{name, format, path,
    image_id, role, classes}]; synthetic: {run: number of synthetic images, or a size of the dataset}; prior_seen: names
    of the references that the priors were fitted to.
    """

    against: str
    replicates: int
    seed: int
    findings: Sequence[str]
    runs: Sequence[Sequence]
    references: Sequence[dict]
    synthetic: Mapping[str, int | str] = field(default_factory=dict)
    prior_seen: Sequence[str] = ()


def run_scores(
    *,
    predictions: list[str],
    patients: list[str],
    scores: str,
    differences: str,
    table1: str,
    table2: str,
    table4: str,
    options: DetectionOptions,
    references: Sequence[str] = (),
    images: str | None = None,
) -> None:
    """Score all predictions and compare the runs.

    ``predictions``: tables of :data:`PREDICTIONS`, in the order of ``options.runs``; ``patients``: tables with image_id
    and subject_id; ``references``: unused, the paths are in ``options``; ``images``: the dataset's image table, needed
    if a run names a size of the dataset.
    Raises UserError for an image or a patient in two roles, and for predictions on a training reference.
    """
    reference_by_name = {settings["name"]: Reference(**settings) for settings in options.references}
    boxes_by_reference = {
        name: read_reference(reference, options.findings) for name, reference in reference_by_name.items()
    }
    patient = map_patients(
        sorted({i for boxes in boxes_by_reference.values() for i in boxes.image_ids}), read_patients(patients)
    )
    roles = {name: reference.role for name, reference in reference_by_name.items()}
    refuse_two_roles({name: boxes.image_ids for name, boxes in boxes_by_reference.items()}, roles, patient)
    rows, compared = [], []
    for name in dict.fromkeys(reference for *_, reference in options.runs):
        if reference_by_name[name].role == TRAIN:
            raise UserError(
                f"semisyn.detection.predictions has files for {name}, whose role is train: give it the role test or val"
            )
        predictions_by_run = {
            (run, seed): _read_predictions(path)
            for path, (run, seed, reference) in zip(predictions, options.runs, strict=True)
            if reference == name
        }
        boxes = boxes_by_reference[name]
        scorer = ReferenceScorer(name, population_of(boxes.boxes, boxes.image_ids, patient), options)
        evaluated = {
            key: match_run(scorer.population, table, IOUS, AP_RECALLS) for key, table in predictions_by_run.items()
        }
        ap_replicates = scorer.replicate_ap(evaluated)
        rows += scorer.score_rows(evaluated, ap_replicates)
        compared += scorer.difference_rows(evaluated, ap_replicates)
    table = pl.DataFrame(rows, schema=schema(SCORES), orient="row")
    write_table(scores, pl.concat([table, paper_tables.paper_scores()]), SCORES)
    write_table(differences, pl.DataFrame(compared, schema=schema(DIFFERENCES), orient="row"), DIFFERENCES)
    quota, num_findings = (read_table(images)["asked"].max() or 0) if images else 0, len(options.findings)
    synthetic = {
        run: images_per_finding(size, quota, num_findings) * num_findings if size in PARTS else int(size)
        for run, size in options.synthetic.items()
    }
    paper_tables.write_tables(table, reference_by_name, synthetic, (table1, table2, table4))


def _read_predictions(path: str) -> pl.DataFrame:
    key = "semisyn.detection.predictions"
    table = read_frame(path, key, list(PREDICTIONS), ids=("image_id",))
    require_columns(table.columns, list(PREDICTIONS), path, key)
    numbers = pl.col([name for name, column in PREDICTIONS.items() if column.kind == pl.Float64])
    table = table.select(*PREDICTIONS).with_columns(numbers.str.strip_chars().cast(pl.Float64, strict=False))
    bad = table.filter(~pl.all_horizontal(numbers.is_finite().fill_null(False)))
    if len(bad):
        raise UserError(f"{key}: {path} has {len(bad)} rows with NaN, or text in place of a number: correct them")
    return table


Runs = Mapping[tuple[str, int], MatchedRun]
"""{(run, seed number): matched predictions}."""
Draws = Mapping[tuple[str, int], Mapping[str, np.ndarray]]
"""{(run, seed number): {finding or mean: AP float64 (replicates, T)}}."""


@dataclass(frozen=True)
class ReferenceScorer:
    """Scores runs against one reference and returns the table rows."""

    reference: str
    population: Population
    options: DetectionOptions

    def replicate_ap(self, evaluated: Runs) -> Draws:
        """Return the AP of all runs in the same bootstrap draws of patients."""
        seed = stable_hash("detection", self.options.seed, self.reference) % 2**32
        parts = {key: [] for key in evaluated}
        for draws in draw_patient_weights(self.population.patients, self.options.replicates, seed):
            for key, evaluation in evaluated.items():
                parts[key].append(evaluation.average_ap(draws))
        return {
            key: {name: np.concatenate([part[name] for part in blocks]) for name in blocks[0]} if blocks else {}
            for key, blocks in parts.items()
        }

    def score_rows(self, evaluated: Runs, ap_replicates: Draws) -> list[tuple]:
        """Return the score rows of each run and seed, and of each run's mean over its seeds."""
        rows = []
        for run in dict.fromkeys(run for run, _ in evaluated):
            run_keys = [key for key in evaluated if key[0] == run]
            for key in run_keys:
                values = evaluated[key].average_ap()
                for metric, at in METRICS.items():
                    rows += [
                        self._row(key, name, metric, values[name][0, at].mean(), ap_replicates[key], at)
                        for name in values
                    ]
                single = evaluated[key].undrawn_metrics(RECALL_IOU, SAMPLE_IOU)
                rows += [self._row(key, name, metric, value) for (name, metric), value in single.items()]
            mean = {
                name: np.mean([ap_replicates[key][name] for key in run_keys], axis=0)
                for name in ap_replicates[run_keys[0]]
            }
            for metric, at in METRICS.items():
                for name in (*evaluated[run_keys[0]].matches_by_finding, MEAN):
                    value = np.mean([evaluated[key].average_ap()[name][0, at].mean() for key in run_keys])
                    rows.append(self._row((run, None), name, metric, value, mean, at))
        return rows

    def _row(
        self,
        key: tuple,
        name: str,
        metric: str,
        value: float,
        ap_replicates: Mapping | None = None,
        at: Sequence[int] = (),
    ) -> tuple:
        low = high = None
        if ap_replicates:
            low, high = (
                100 * float(end[0])
                for end in percentile_ends(ap_replicates[name][:, at].mean(axis=1)[:, None], INTERVAL)
            )
        boxes = sum(len(true.image) for finding, true in self.population.true.items() if name in (finding, MEAN))
        return (
            *key, self.reference, name, ("m" if name == MEAN and metric.startswith("ap") else "") + metric,
            100 * float(value), low, high, len(self.population.images), boxes,
            len(np.unique(self.population.patients)), self.reference in self.options.prior_seen, "ours",
        )  # fmt: skip

    def difference_rows(self, evaluated: Runs, ap_replicates: Draws) -> list[dict]:
        """Return a row for each run and finding, compared with the run ``against``; none without its predictions."""
        seeds = {run: [key for key in evaluated if key[0] == run] for run in dict.fromkeys(run for run, _ in evaluated)}
        base = seeds.pop(self.options.against, None)
        if not base or not self.options.replicates:
            return []
        metric, at = next(iter(METRICS.items()))
        papers = {run: self._paper_p_values(evaluated, run_keys, base, at) for run, run_keys in seeds.items()}
        rows = []
        for name in (*self.population.true, MEAN):
            family = []
            for run, run_keys in seeds.items():
                values = [evaluated[key].average_ap()[name][0, at].mean() for key in run_keys]
                gap = np.mean(values) - np.mean([evaluated[key].average_ap()[name][0, at].mean() for key in base])
                run_draws, base_draws = (
                    np.mean([ap_replicates[key][name][:, at] for key in keys], axis=(0, 2)) for keys in (run_keys, base)
                )
                comparison = compare_replicates(gap, run_draws, base_draws, INTERVAL)
                family.append(
                    {"reference": self.reference, "run": run, "against": self.options.against, "finding": name,
                     "metric": ("m" if name == MEAN else "") + metric, "difference": 100 * comparison.value,
                     "low": 100 * comparison.low, "high": 100 * comparison.high,
                     "significant": not comparison.low <= 0 <= comparison.high, "share_below_zero": comparison.below}
                    | papers[run][name]
                    | {"seeds": min(len(run_keys), len(base)),
                       "seed_range": f"{100 * min(values):.1f} to {100 * max(values):.1f}"}
                )  # fmt: skip
            draws = self.options.replicates
            two_sided = [2 * min(r["share_below_zero"], 1 - r["share_below_zero"]) for r in family]
            for row, p in zip(family, adjust_holm([(p * draws + 1) / (draws + 1) for p in two_sided]), strict=True):
                row["holm"] = min(float(p), 1.0)
            rows += [{column: row.get(column) for column in DIFFERENCES} for row in family]
        return rows

    def _paper_p_values(
        self, evaluated: Runs, run_keys: list, base: list, at: Sequence[int]
    ) -> dict[str, dict[str, float]]:
        """Return {finding or mean: {column: p}} of the paper's test, on image replicates of each run's first seed."""
        p_values: dict[str, dict[str, float]] = {name: {} for name in (*self.population.true, MEAN)}
        groups = dict(zip(KINDS, (np.zeros(len(self.population.images)), rarest_finding(self.population)), strict=True))
        for count in WILCOXON:
            for kind, group in groups.items():
                draws = draw_images(group, count, stable_hash("wilcoxon", self.options.seed, kind) % 2**32)
                run_aps, base_aps = (evaluated[keys[0]].average_ap(draws) for keys in (run_keys, base))
                for name, values in p_values.items():
                    pair = (part[name][:, at].mean(axis=1) for part in (run_aps, base_aps))
                    values[f"paper_p_{kind}_{count}"] = wilcoxon_on_replicates(*pair)
        return p_values
