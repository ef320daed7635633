"""Score detections against experts' boxes, compare detectors by a paired bootstrap of patients, and plot the scores."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import product

import numpy as np
import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from cxr.base.columns import schema
from cxr.base.errors import UserError
from cxr.base.seeds import stable_hash
from cxr.base.tables import read_table, read_tables, write_rows, write_table
from cxr.base.user_tables import read_frame, require_columns
from cxr.geometry.boxes import CORNERS
from cxr.metrics import average_precision, paired
from cxr.metrics.intervals import percentile_ends
from cxr.metrics.matching import Boxes
from cxr.plotting.plots import BLACK, BLUE, GREEN, GREY, ORANGE, PURPLE, SKY, VERMILION, save_png
from cxr.semisyn import references as reference_files
from cxr.semisyn.detection import paper_tables
from cxr.semisyn.detection.paper_tables import DIFFERENCES, MEAN, OURS, SCORES
from cxr.semisyn.references import PREDICTIONS, TRAIN, Reference, map_patients
from cxr.semisyn.shared import AP_IOUS, AP_RECALLS, INTERVAL, PARTS, images_per_finding

RECALL_IOU, SAMPLE_IOU = 0.3, 0.5
"""IoU at which ap30 and the recalls are measured, and IoU of the AP per image."""
IOUS = tuple(dict.fromkeys([*AP_IOUS, RECALL_IOU, SAMPLE_IOU]))
"""All IoUs at which boxes are matched: first those over which AP is averaged, then any others."""
METRICS = {
    f"ap{100 * AP_IOUS[0]:.0f}{100 * AP_IOUS[-1]:.0f}": [*range(len(AP_IOUS))],
    f"ap{100 * RECALL_IOU:.0f}": [IOUS.index(RECALL_IOU)],
}
"""{metric: indices in IOUS of the IoUs over which the metric averages AP}."""
WILCOXON = (100, 1000)
"""Numbers of bootstrap replicates. The paper's Wilcoxon test is computed once with each number."""
FALSE_BOXES = {"recall_quarter": 0.25, "recall_half": 0.5, "recall_1": 1.0, "recall_2": 2.0}
"""{metric: false boxes per image at which recall is measured}."""


@dataclass(frozen=True)
class Population:
    """Images of a reference (a file of experts' boxes). patients: patient of each image; true: {finding: its boxes}."""

    images: tuple[str, ...]
    patients: np.ndarray
    true: Mapping[str, Boxes]

    def boxes_of(self, table: pl.DataFrame) -> Boxes:
        """Return the boxes of a table whose images are all in this population."""
        number = {image: place for place, image in enumerate(self.images)}
        places = np.array([number[image] for image in table["image_id"]], np.int64)
        return Boxes(places, table.select(CORNERS).to_numpy().astype(np.float64).reshape(-1, 4))


def population_of(boxes: pl.DataFrame, images: Iterable[str], patient: Mapping[str, str]) -> Population:
    """Return the population of ``images`` with their ``boxes`` (image_id, finding, x1, y1, x2, y2) and patients."""
    images, true = tuple(sorted(images)), {}
    population = Population(images, np.array([patient[image] for image in images]), true)
    for (name,), part in sorted(boxes.group_by("finding", maintain_order=True)):
        true[name] = population.boxes_of(part)
    return population


@dataclass(frozen=True)
class MatchedRun:
    """Boxes of one detector, matched with experts' boxes at each of ``ious``. points: number of recall points of AP."""

    matches_by_finding: Mapping[str, average_precision.MatchedPredictions]
    ious: tuple[float, ...]
    points: int

    def average_ap(self, draws: np.ndarray | None = None) -> dict[str, np.ndarray]:
        """Return {finding or MEAN: AP, float64 (R, T)} of R draws at T IoUs. ``draws`` (R, images): how often an image
        counts; by default once (R = 1). MEAN is the mean over the findings that have boxes in a draw."""
        ap_by_finding = {
            name: average_precision.average_precision(matches, self.points, draws)
            for name, matches in self.matches_by_finding.items()
        }
        table = np.stack(list(ap_by_finding.values()))
        count = (~np.isnan(table)).sum(axis=0)
        mean = np.divide(np.nansum(table, axis=0), count, out=np.full(count.shape, np.nan), where=count > 0)
        return ap_by_finding | {MEAN: mean}

    def undrawn_metrics(self, iou: float, sample: float) -> dict[tuple[str, str], float]:
        """Return {(finding or MEAN, metric): value} of the metrics that get no bootstrap interval: recalls at the IoU
        ``iou``, and the mean over images of the AP of single images at the IoU ``sample``."""
        values: dict[tuple[str, str], float] = {}
        for name, matches in self.matches_by_finding.items():
            recalls = average_precision.recall_at(matches, self.ious.index(iou), [*FALSE_BOXES.values()])
            values |= {(name, metric): float(value) for metric, value in zip(FALSE_BOXES, recalls, strict=True)}
            ap_by_image = average_precision.average_precision_by_image(matches, self.ious.index(sample), self.points)
            values[name, "ap50_sample"] = float(np.nanmean(ap_by_image))
        for metric in (*FALSE_BOXES, "ap50_sample"):
            values[MEAN, metric] = float(np.mean([values[name, metric] for name in self.matches_by_finding]))
        return values


def match_run(population: Population, predicted: pl.DataFrame, ious: Sequence[float], points: int) -> MatchedRun:
    """Match a detector's boxes (image_id, finding, confidence, x1, y1, x2, y2) with the experts' boxes of a population.
    Ignore images outside the population, and findings without experts' boxes. ``points``: number of recalls in AP."""
    predictions = predicted.filter(pl.col("image_id").is_in(list(population.images)))
    matches = {}
    for name, true in population.true.items():
        part = predictions.filter(pl.col("finding") == name)
        confidence, boxes = part["confidence"].to_numpy().astype(np.float64), population.boxes_of(part)
        matches[name] = average_precision.match_predictions(boxes, confidence, true, len(population.images), ious)
    return MatchedRun(matches, tuple(ious), points)


@dataclass(frozen=True, kw_only=True)
class DetectionOptions:
    """Settings of the stage. A run is a set of detectors that differ only in their seed. against: run with which all
    others are compared; replicates: number of bootstrap draws; runs: (run, seed number, reference) of each prediction
    file; synthetic: {run: number of its synthetic images, or name of a dataset size}; prior_seen: references to which
    the priors were fitted."""

    against: str
    replicates: int
    seed: int
    findings: Sequence[str]
    runs: Sequence[Sequence]
    references: Sequence[dict]
    synthetic: Mapping[str, int | str] = field(default_factory=dict)
    prior_seen: Sequence[str] = ()


def run_scores(
    *, predictions: list[str], patients: list[str], scores: str, differences: str, table1: str, table2: str,
    table4: str, options: DetectionOptions, references: Sequence[str] = (), images: str | None = None,
) -> None:  # fmt: skip
    """Score the files ``predictions``, compare the runs, and write the tables. ``images``: the dataset's images, needed
    if a run names a dataset size. Raise UserError if a patient has two roles or a reference has the role train."""
    reference_by_name = {settings["name"]: Reference(**settings) for settings in options.references}
    boxes_by_reference = {
        name: reference_files.read_reference(reference, options.findings)
        for name, reference in reference_by_name.items()
    }
    images_by_reference = {name: boxes.image_ids for name, boxes in boxes_by_reference.items()}
    patient = map_patients(set().union(*images_by_reference.values()), patients)
    roles = {name: reference.role for name, reference in reference_by_name.items()}
    reference_files.refuse_two_roles(images_by_reference, roles, patient)
    rows, compared = [], []
    for name in dict.fromkeys(reference for *_, reference in options.runs):
        if reference_by_name[name].role == TRAIN:
            raise UserError(
                f"semisyn.detection.predictions names {name}, whose role is train: set its role to test or val"
            )
        boxes = boxes_by_reference[name]
        population = population_of(boxes.boxes, boxes.image_ids, patient)
        evaluated = {
            (run, seed): match_run(population, _read_predictions(path), IOUS, AP_RECALLS)
            for path, (run, seed, reference) in zip(predictions, options.runs, strict=True)
            if reference == name
        }
        scorer = ReferenceScorer(name, population, options, evaluated)
        rows += scorer.score_rows()
        compared += scorer.difference_rows()
    table = pl.DataFrame(rows, schema=schema(SCORES), orient="row")
    write_table(scores, pl.concat([table, paper_tables.paper_scores()]), SCORES)
    write_rows(differences, compared, DIFFERENCES)
    quota, num_findings = (read_tables(images)["requested"].max() or 0) if images else 0, len(options.findings)
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
        raise UserError(f"{key}: {path} has {len(bad)} rows where a number is missing or not finite: correct the rows")
    return table


@dataclass(frozen=True)
class ReferenceScorer:
    """Scores of all runs on a reference (experts' boxes). matched: {(run, seed number): its boxes}."""

    reference: str
    population: Population
    options: DetectionOptions
    matched: Mapping[tuple[str, int], MatchedRun]

    @cached_property
    def keys_by_run(self) -> dict[str, list[tuple[str, int]]]:
        """Keys of ``matched`` by run, {run: [(run, seed number)]}."""
        runs = dict.fromkeys(run for run, _ in self.matched)
        return {run: [key for key in self.matched if key[0] == run] for run in runs}

    @cached_property
    def values(self) -> dict[tuple[str, int], dict[str, np.ndarray]]:
        """{(run, seed number): {finding or MEAN: AP at each IoU of IOUS, (T,)}}, each image counted once."""
        aps = {key: run.average_ap() for key, run in self.matched.items()}
        return {key: {name: ap[0] for name, ap in ap_by_name.items()} for key, ap_by_name in aps.items()}

    @cached_property
    def replicates(self) -> dict[tuple[str, int], dict[str, np.ndarray]]:
        """{(run, seed number): {finding or MEAN: AP float64 (draws, T)}} of bootstrap draws, which all runs share."""
        seed = stable_hash("detection", self.options.seed, self.reference) % 2**32
        parts: dict[tuple, list] = {key: [] for key in self.matched}
        for draws in paired.draw_patient_weights(self.population.patients, self.options.replicates, seed):
            for key, run in self.matched.items():
                parts[key].append(run.average_ap(draws))
        return {
            key: {name: np.concatenate([part[name] for part in blocks]) for name in blocks[0]} if blocks else {}
            for key, blocks in parts.items()
        }

    def score_rows(self) -> list[tuple]:
        """Return rows of :data:`SCORES` for each run and seed, and for each run's mean over its seeds."""
        rows = []
        for run, keys in self.keys_by_run.items():
            for key in keys:
                for metric, at in METRICS.items():
                    rows += [
                        self._row(key, name, metric, ap[at].mean(), self.replicates[key], at)
                        for name, ap in self.values[key].items()
                    ]
                single = self.matched[key].undrawn_metrics(RECALL_IOU, SAMPLE_IOU)
                rows += [self._row(key, name, metric, value) for (name, metric), value in single.items()]
            drawn_names = self.replicates[keys[0]]
            mean = {name: np.mean([self.replicates[key][name] for key in keys], axis=0) for name in drawn_names}
            for metric, at in METRICS.items():
                for name in self.values[keys[0]]:
                    value = np.mean([self.values[key][name][at].mean() for key in keys])
                    rows.append(self._row((run, None), name, metric, value, mean, at))
        return rows

    def _row(self, key: tuple, name: str, metric: str, value: float, replicates: Mapping | None = None, at=()) -> tuple:
        """Return a row of :data:`SCORES`. ``key``: (run, seed number), or (run, None) for the mean of seeds; ``name``:
        finding or MEAN; ``replicates``: bootstrap APs, if there is an interval; ``at``: indices in IOUS to average."""
        low = high = None
        if replicates:
            ends = percentile_ends(replicates[name][:, at].mean(axis=1)[:, None], INTERVAL)
            low, high = (100 * float(end[0]) for end in ends)
        boxes = sum(len(true.image) for finding, true in self.population.true.items() if name in (finding, MEAN))
        return (
            *key, self.reference, name, ("m" if name == MEAN and metric.startswith("ap") else "") + metric,
            100 * float(value), low, high, len(self.population.images), boxes,
            len(np.unique(self.population.patients)), self.reference in self.options.prior_seen, "ours",
        )  # fmt: skip

    def difference_rows(self) -> list[dict]:
        """Compare each run with the run ``options.against``. Return rows of :data:`DIFFERENCES`, by finding and run.
        Return no row if ``options.against`` has no predictions for the reference, or if ``options.replicates`` is 0."""
        base, draws = self.keys_by_run.get(self.options.against), self.options.replicates
        if not base or not draws:
            return []
        metric, at = next(iter(METRICS.items()))
        compared = {run: keys for run, keys in self.keys_by_run.items() if run != self.options.against}
        papers = {run: self._paper_p_values(keys, base, at) for run, keys in compared.items()}
        rows = []
        for name in (*self.population.true, MEAN):
            family = []
            for run, keys in compared.items():
                values, base_values = ([self.values[key][name][at].mean() for key in part] for part in (keys, base))
                run_draws, base_draws = (
                    np.mean([self.replicates[key][name][:, at] for key in part], axis=(0, 2)) for part in (keys, base)
                )
                gap = np.mean(values) - np.mean(base_values)
                comparison = paired.compare_replicates(gap, run_draws, base_draws, INTERVAL)
                family.append(
                    {"reference": self.reference, "run": run, "against": self.options.against, "finding": name,
                     "metric": ("m" if name == MEAN else "") + metric, "difference": 100 * comparison.value,
                     "low": 100 * comparison.low, "high": 100 * comparison.high,
                     "significant": not comparison.low <= 0 <= comparison.high, "share_below_zero": comparison.below,
                     "seeds": min(len(keys), len(base)),
                     "seed_range": f"{100 * min(values):.1f} to {100 * max(values):.1f}"} | papers[run][name]
                )  # fmt: skip
            two_sided = [2 * min(row["share_below_zero"], 1 - row["share_below_zero"]) for row in family]
            adjusted = paired.adjust_holm([(p * draws + 1) / (draws + 1) for p in two_sided])
            rows += [row | {"holm": min(float(p), 1.0)} for row, p in zip(family, adjusted, strict=True)]
        return rows

    def _paper_p_values(self, keys: list, base: list, at: Sequence[int]) -> dict[str, dict[str, float]]:
        """Return {finding or MEAN: {column: p-value}} of the paper's Wilcoxon test of the first detectors of two runs,
        ``keys`` and ``base``. It compares their AP, averaged over the indices ``at`` in IOUS, on bootstrap samples of
        images. The samples are random, or stratified by the rarest finding of an image."""
        p_values: dict[str, dict[str, float]] = {name: {} for name in (*self.population.true, MEAN)}
        holders = {name: np.unique(true.image) for name, true in self.population.true.items()}
        strata = np.full(len(self.population.images), "", dtype=object)  # each image's rarest finding
        for name in sorted(holders, key=lambda name: -len(holders[name])):
            strata[holders[name]] = name
        groups = {"random": np.zeros(len(strata)), "stratified": strata.astype(str)}
        for count, (kind, group) in product(WILCOXON, groups.items()):
            draws = paired.draw_images(group, count, stable_hash("wilcoxon", self.options.seed, kind) % 2**32)
            run_aps, base_aps = (self.matched[part[0]].average_ap(draws) for part in (keys, base))
            for name, values in p_values.items():
                pair = (aps[name][:, at].mean(axis=1) for aps in (run_aps, base_aps))
                values[f"paper_p_{kind}_{count}"] = paired.wilcoxon_on_replicates(*pair)
        return p_values


COLOURS = (BLUE, ORANGE, GREEN, VERMILION, PURPLE, SKY, GREY)
MARKS = "osv^D*P"


def run_charts(*, scores: str, curves: str, dpi: int, against: str) -> None:
    """Plot the scores of all runs to ``curves``, with one row of panels per test set. The run ``against`` is black."""
    table = read_table(scores).filter(pl.col("source") == OURS, pl.col("finding") == MEAN)
    references = table["reference"].unique(maintain_order=True).to_list()
    runs = table["run"].unique(maintain_order=True).to_list()
    colours = {run: BLACK if run == against else COLOURS[place % len(COLOURS)] for place, run in enumerate(runs)}
    figure = Figure(figsize=(10, 0.8 + len(references) * (1.6 + 0.25 * len(runs))), layout="constrained")
    grid = figure.subplots(len(references), 2, squeeze=False)
    for row, name in zip(grid, references, strict=True):
        reference_rows = table.filter(pl.col("reference") == name)
        _draw_runs(row[0], row[1], reference_rows, colours)
        images, boxes, patients = reference_rows.select("images", "boxes", "patients").row(0)
        row[0].set_title(f"{name}: {images} images, {boxes} boxes, {patients} patients", fontsize=10)
    grid[-1][1].legend(fontsize=8, loc="lower right")
    save_png(figure, curves, dpi)


def _draw_runs(intervals: Axes, recalls: Axes, table: pl.DataFrame, colours: dict[str, str]) -> None:
    """Plot each run's mean AP over seeds with its interval, the AP of each seed as a bar, and the recalls."""
    ap = table.filter(pl.col("metric").str.starts_with("map"), pl.col("low").is_not_null())
    metric = ap["metric"][0] if len(ap) else ""
    for place, (run, colour) in enumerate(colours.items()):
        scores = ap.filter(pl.col("run") == run, pl.col("metric") == metric)
        for value, low, high, seed in scores.select("value", "low", "high", "seed").iter_rows():
            if seed is None:
                intervals.plot([low, high], [place, place], color=colour, linewidth=2)
                intervals.plot(value, place, "o", color=colour, markersize=7)
            else:
                intervals.plot(value, place, "|", color=colour, markersize=12)
        means = dict(table.filter(pl.col("run") == run).group_by("metric").agg(pl.col("value").mean()).iter_rows())
        points = [(false, means[name]) for name, false in FALSE_BOXES.items() if name in means]
        if points:
            mark = MARKS[place % len(MARKS)]
            recalls.plot(*zip(*points, strict=True), marker=mark, color=colour, label=run, linewidth=1.2)
    intervals.set_yticks(range(len(colours)), [*colours])
    intervals.invert_yaxis()
    intervals.set_xlabel(f"{metric}, % (interval by patients; bars: seeds)")
    intervals.grid(axis="x", alpha=0.3)
    recalls.set_xscale("log", base=2)
    recalls.set_xticks([*FALSE_BOXES.values()], ["1/4", "1/2", "1", "2"])
    recalls.set_xlabel("false boxes per image")
    recalls.set_ylabel("recall at IoU 0.3, %")
    recalls.grid(alpha=0.3)
