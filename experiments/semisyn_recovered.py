"""Measure how well the stages of ILS recover known lesions on real X-rays: ``semisyn_recovered.py COHORT RUN OUT``.

COHORT is the folder of `snakemake semisyn_cohort` (edited images, their healthy sources, truth.json). RUN is the folder
of a workflow run on its manifest.csv. OUT/recovered.tsv and OUT/recovered.png give the fraction of images with a
recovered lesion and Wilson's interval. There are rows for each stage and finding, and for thirds of size and contrast.
For comparison, they give the fraction of unedited sources with a finding at the same place.
"""

import argparse
import json
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "scripts"))

import cv2
import matplotlib
import numpy as np
import polars as pl

from cxr.base.columns import Column, schema
from cxr.base.hdf5 import Shard
from cxr.base.tables import read_lines, read_table, write_table
from cxr.base.vocabulary import FINDINGS, LUNGS
from cxr.geometry.boxes import CORNERS, bounding_box, paired_iou
from cxr.geometry.rle import decode_rle
from cxr.metrics.intervals import wilson_interval
from cxr.workflow.settings import Settings

matplotlib.use("Agg")
import matplotlib.pyplot as plt

IOU = 0.3
"""Minimum IoU with the lesion of a box or a mask that recovers it, as in `agreement`."""
LIT = 0.5
"""Fraction of the lesion's pixels that the anomaly map must show."""
LEVEL = 0.95
STAGES = ("organs", "boxes", "anomaly", "masks", "rosalia")
CIRCULAR = ("boxes", "anomaly", "masks", "rosalia")
"""Stages whose lite nets, or the nets that they depend on, were trained with the painter that made the lesions."""
ALIKE = 0.9
"""Minimum IoU of the lungs in the edited image with those in its source."""
THIRDS = ("lower third", "middle third", "upper third")
TABLE = {
    "stage": Column(pl.String, "Stage of ILS."),
    "finding": Column(pl.String, "Painted finding, or all."),
    "by": Column(pl.String, "Property by which the films are divided: size, contrast, or all (not divided)."),
    "level": Column(pl.String, "Third of the finding's films by this property; empty if not divided."),
    "films": Column(pl.Int64, "Number of edited films on which the stage can recover the finding."),
    "recovered": Column(pl.Int64, "Number of these films on which the lesion is recovered."),
    "rate": Column(pl.Float64, "Fraction of films on which the lesion is recovered."),
    "low": Column(pl.Float64, "Lower end of Wilson's 95 % interval, which assumes that films are independent."),
    "high": Column(pl.Float64, "Upper end of this interval."),
    "on_source": Column(pl.Float64, "The fraction at the same place of the unedited sources; null if not measured."),
    "circular": Column(pl.Boolean, "Whether the stage's net was trained with the painter that made the lesions."),
}


@dataclass(frozen=True)
class Film:
    """An edited image: its finding, its source image, the lesion's mask, and the lesion's size and contrast."""

    name: str
    source: str
    finding: str
    mask: np.ndarray
    size: float
    contrast: float


def read_films(cohort: Path) -> Iterator[Film]:
    """Yield the edited images. size: pixels of the lesion; contrast: mean absolute change inside it, grey levels."""
    facts = {row["image_id"]: row for row in read_table(cohort / "manifest.csv").iter_rows(named=True)}
    truth = json.loads((cohort / "truth.json").read_text(encoding="utf-8"))
    masks: dict[int, np.ndarray] = {}
    for annotation in truth["annotations"]:
        lesion = decode_rle(annotation["segmentation"]).astype(bool)
        masks[annotation["image_id"]] = (
            masks[annotation["image_id"]] | lesion if annotation["image_id"] in masks else lesion
        )
    for image in truth["images"]:
        name = Path(image["file_name"]).stem
        if image["id"] in masks and masks[image["id"]].any():
            row, mask = facts[name], masks[image["id"]]
            before, after = (_grey(cohort / "images" / f"{image_id}.png") for image_id in (row["source"], name))
            yield Film(name, row["source"], row["finding"], mask, int(mask.sum()), contrast(before, after, mask))


def contrast(before: np.ndarray, after: np.ndarray, mask: np.ndarray) -> float:
    """Return the mean absolute change inside a mask, grey levels."""
    return float(np.abs(after.astype(np.float64) - before)[mask].mean())


def _grey(path: Path) -> np.ndarray:
    return cv2.imread(str(path), cv2.IMREAD_GRAYSCALE)


class Run:
    """The outputs of one run's stages. Each method checks one image, and most also one mask (512, 512)."""

    def __init__(self, results: Path, stack: ExitStack):
        taus = Settings().thresholds.sets["default"].general
        self.ano, self.conf = taus.ano, taus.conf
        shards = sorted(path.stem for path in (results / "organs").glob("[0-9]*.h5"))
        opened = {
            stage: [stack.enter_context(Shard(results / stage / f"{shard}.h5")) for shard in shards]
            for stage in ("organs", "anomaly")
        }
        self.place = {stage: {name: shard for shard in every for name in shard.ids} for stage, every in opened.items()}
        boxes = pl.concat(read_table(results / "boxes" / f"{shard}.parquet") for shard in shards)
        sure = boxes.filter(pl.col("confidence") >= self.conf)
        self.boxes = {name: part.select(CORNERS).to_numpy() for (name,), part in sure.group_by("image_id")}
        units = pl.concat(read_table(results / f"masks/default/{shard}.units.parquet") for shard in shards)
        self.units = units.filter(pl.col("mask_id").is_not_null()).select("image_id", "target", "mask_id").unique()
        mask_shards = [stack.enter_context(Shard(results / f"masks/default/{shard}.h5", "mask_id")) for shard in shards]
        self.masks = {name: shard for shard in mask_shards for name in shard.ids}
        lines = results / "dataset/default/train.jsonl"
        self.pairs = [line for line in read_lines(lines) if line["seg"] and line["type"] in ("basic", "global")]
        self.answers = stack.enter_context(Shard(results / "inference/base/train.h5", "pair_id"))

    def keeps_lungs(self, image: str, source: str) -> bool:
        """Return whether the lungs found in the edited image match those in its source, despite the lesion."""
        lungs = []
        for name in (image, source):
            shard = self.place["organs"].get(name)
            masks = {} if shard is None else shard.masks(name)
            lungs.append(np.any([masks[label] for label in LUNGS], axis=0) if masks else np.zeros((512, 512), bool))
        return iou(*lungs) >= ALIKE

    def hit(self, image: str, mask: np.ndarray) -> bool:
        """Return whether a box of any class matches the lesion, with at least the confidence that masks require."""
        return is_hit(self.boxes.get(image, np.zeros((0, 4))), mask)

    def lit(self, image: str, mask: np.ndarray) -> bool:
        """Return whether the anomaly map shows at least half of the lesion."""
        shard = self.place["anomaly"].get(image)
        return shard is not None and is_lit(shard.get("anomaly", image) / 255, mask, self.ano)

    def masks_recover(self, image: str, finding: str, mask: np.ndarray) -> bool:
        """Return whether the union of the finding's masks on an image matches the lesion."""
        mask_ids = self.units.filter(pl.col("image_id") == image, pl.col("target") == finding)["mask_id"]
        combined = np.zeros(mask.shape, bool)
        for name in mask_ids:
            combined |= self.masks[name].get("mask", name)
        return iou(combined, mask) >= IOU

    def answers_recover(self, image: str, finding: str, mask: np.ndarray) -> bool | None:
        """Return whether the union of ROSALIA's masks matches the lesion; None if the dataset has no pair for the
        finding."""
        pair_ids = [line["pair_id"] for line in self.pairs if (line["image_id"], line["target"]) == (image, finding)]
        combined = np.zeros(mask.shape, bool)
        for name in pair_ids:
            if name in self.answers:
                answer = self.answers.get("mask", name).astype(np.uint8)
                combined |= cv2.resize(answer, mask.shape[::-1], interpolation=cv2.INTER_NEAREST) > 0
        return iou(combined, mask) >= IOU if pair_ids else None


def is_hit(boxes: np.ndarray, mask: np.ndarray) -> bool:
    """Return whether a box (N, 4) has an IoU of :data:`IOU` with the tight box of the mask, or of one of its
    components."""
    count, parts = cv2.connectedComponents(mask.astype(np.uint8))
    targets = [np.array(bounding_box(part), np.float64) for part in (mask, *(parts == at for at in range(1, count)))]
    return any(
        bool((paired_iou(boxes, np.tile(target, (len(boxes), 1))) >= IOU).any()) for target in targets if len(boxes)
    )


def is_lit(anomaly: np.ndarray, mask: np.ndarray, tau: float) -> bool:
    """Return whether at least :data:`LIT` of the mask's pixels in a map (H, W), 0..1, reach ``tau``."""
    return bool((anomaly[mask] >= tau).mean() >= LIT)


def iou(first: np.ndarray, second: np.ndarray) -> float:
    """Return the IoU of two masks, bool (H, W); 0 if both are empty."""
    either = int((first | second).sum())
    return int((first & second).sum()) / either if either else 0.0


def recoveries_of(film: Film, run: Run) -> Iterator[tuple[str, bool, bool | None]]:
    """Yield (stage, recovered, whether the source gives the same result) for the stages that can recover the lesion."""
    yield "organs", run.keeps_lungs(film.name, film.source), None
    yield "boxes", run.hit(film.name, film.mask), run.hit(film.source, film.mask)
    yield "anomaly", run.lit(film.name, film.mask), run.lit(film.source, film.mask)
    if film.finding in set(FINDINGS) - {"pneumothorax"}:  # ILS has no such target
        yield "masks", run.masks_recover(film.name, film.finding, film.mask), None
        answer = run.answers_recover(film.name, film.finding, film.mask)
        if answer is not None:
            yield "rosalia", answer, None


def recovery_table(rows: pl.DataFrame) -> pl.DataFrame:
    """Return :data:`TABLE` from rows with stage, finding, size, contrast, recovered and source (true, false or null).

    Thirds are computed within each finding, so that each third has the same proportion of each finding.
    """
    ranked = rows
    for name in ("size", "contrast"):
        place = (pl.col(name).rank("ordinal") - 1) * len(THIRDS) // pl.len()
        ranked = ranked.with_columns(place.over("stage", "finding").cast(pl.Int64).alias(f"third_{name}"))
    rows_out = []
    for stage in STAGES:
        stage_rows = ranked.filter(pl.col("stage") == stage)
        for finding in (*FINDINGS, "all"):
            finding_rows = stage_rows if finding == "all" else stage_rows.filter(pl.col("finding") == finding)
            parts = [("all", "", finding_rows)]
            for name in ("size", "contrast"):
                parts += [
                    (name, word, finding_rows.filter(pl.col(f"third_{name}") == at)) for at, word in enumerate(THIRDS)
                ]
            rows_out += [_line(stage, finding, by, level, part) for by, level, part in parts if len(part)]
    return pl.DataFrame(rows_out, schema=schema(TABLE), orient="row")


def _line(stage: str, finding: str, by: str, level: str, part: pl.DataFrame) -> tuple:
    number = int(part["recovered"].sum())
    rate = wilson_interval(number, len(part), LEVEL)
    return (stage, finding, by, level, len(part), number, *rate, part["source"].mean(), stage in CIRCULAR)


def draw_figure(table: pl.DataFrame, path: Path) -> None:
    """Draw the rate of each stage and finding with its interval; a red line marks the rate on the sources."""
    all_films = table.filter(pl.col("by") == "all", pl.col("finding") != "all")
    canvas, axes = plt.subplots(1, len(STAGES), figsize=(13, 3.4), sharex=True)
    for axis, stage in zip(axes, STAGES, strict=True):
        row_by_finding: Mapping[str, dict] = {
            row["finding"]: row for row in all_films.filter(pl.col("stage") == stage).to_dicts()
        }
        for at, finding in enumerate(reversed(FINDINGS)):
            if row := row_by_finding.get(finding):
                axis.plot([row["low"], row["high"]], [at, at], color="#33658a", lw=2)
                axis.plot(row["rate"], at, "o", color="#33658a")
                if row["on_source"] is not None:
                    axis.plot(row["on_source"], at, "|", color="#b23a48", ms=12, mew=2)
                axis.text(1.03, at, f"{row['films']}", va="center", fontsize=7)
        axis.set(title=stage + (" (circular)" if stage in CIRCULAR else ""), xlim=(-0.03, 1.03), ylim=(-0.6, 6.6))
        axis.set_yticks(range(len(FINDINGS)), list(reversed(FINDINGS)) if stage == STAGES[0] else [])
        axis.set_xlabel("share of films")
    title = "Painted lesions recovered on real films; red: same place of the unedited source; right: number of films"
    canvas.suptitle(title, fontsize=9)
    canvas.tight_layout()
    canvas.savefig(path, dpi=110)
    plt.close(canvas)


def main() -> None:
    """Parse the command line, check every stage on every image, and write the table and the figure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cohort", type=Path)
    parser.add_argument("run", type=Path)
    parser.add_argument("out", type=Path)
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    rows = []
    with ExitStack() as stack:
        run = Run(arguments.run / "results", stack)
        for film in read_films(arguments.cohort):
            rows += [
                (stage, film.finding, film.size, film.contrast, *hits) for stage, *hits in recoveries_of(film, run)
            ]
    columns = {"stage": pl.String, "finding": pl.String, "size": pl.Float64, "contrast": pl.Float64}
    columns |= {"recovered": pl.Boolean, "source": pl.Boolean}
    recovered = recovery_table(pl.DataFrame(rows, schema=columns, orient="row"))
    write_table(arguments.out / "recovered.tsv", recovered, TABLE)
    draw_figure(recovered, arguments.out / "recovered.png")
    with pl.Config(tbl_rows=-1, tbl_cols=-1, tbl_width_chars=160, float_precision=2):
        print(recovered.filter(pl.col("by") == "all").drop("by", "level"))


if __name__ == "__main__":
    main()
