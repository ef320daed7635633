"""Check that no image is lost: every input image of a stage is either accepted or excluded, exactly once.

The flow of images through each stage is read from the files of a run. Excluded images are in the *ledger* of a stage,
the table ``excluded.parquet`` with a reason for each image.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import polars as pl

from cxr.base.columns import Column, schema
from cxr.base.errors import StoreError
from cxr.base.exclusions import MAP_STAGES, REASONS, STAGES
from cxr.base.hdf5 import Shard
from cxr.base.paths import group_by_folder
from cxr.base.tables import read_lines, read_table

CONSERVATION = {
    "stage": Column(pl.String, "Stage."),
    "input": Column(pl.Int64, "Input images."),
    "accepted": Column(pl.Int64, "Accepted images."),
    "excluded": Column(pl.Int64, "Excluded images."),
    "balanced": Column(pl.String, "yes if each input image was accepted or excluded, exactly once; else no."),
}
FUNNEL = {
    "stage": Column(pl.String, "Stage. The first row is `input`, the last `pairs`."),
    "reason": Column(pl.String, "Code of a reason ([reasons.md](reasons.md)); empty if the stage excluded no image."),
    "images": Column(pl.Int64, "Images that this stage excluded for the reason, without those excluded before."),
    "remaining": Column(pl.Int64, "Images that remain after the stage."),
    "meaning": Column(pl.String, "Meaning of the reason."),
}


class Flow(NamedTuple):
    """The image ids of a stage: its input (``entered``), the ``accepted`` ones, and ``excluded`` {image_id: reason}."""

    entered: frozenset[str]
    accepted: frozenset[str]
    excluded: Mapping[str, str]

    def count_faults(self) -> tuple[int, int, int]:
        """Return the numbers of images (lost, both accepted and excluded, not in the input). All are 0 if balanced."""
        outcomes = self.accepted | self.excluded.keys()
        return len(self.entered - outcomes), len(self.accepted & self.excluded.keys()), len(outcomes - self.entered)


def tabulate_conservation(flows: Mapping[str, Flow]) -> pl.DataFrame:
    """Return one row of :data:`CONSERVATION` per stage."""
    rows = [(stage, *map(len, flow), "no" if any(flow.count_faults()) else "yes") for stage, flow in flows.items()]
    return pl.DataFrame(rows, schema=schema(CONSERVATION), orient="row")


def require_balance(flows: Mapping[str, Flow]) -> None:
    """Raise StoreError for the first stage that lost or doubled an input image, or has a result of another image."""
    for stage, flow in flows.items():
        lost, twice, strange = flow.count_faults()
        if lost or twice or strange:
            raise StoreError(
                f"{stage} does not balance: {lost} input images are lost, {twice} are both accepted and excluded, and"
                f" {strange} results belong to no input image. Its files come from different runs: delete"
                f" results/{stage} and run again"
            )


def tabulate_funnel(flows: Mapping[str, Flow], images: frozenset[str], with_pairs: frozenset[str]) -> pl.DataFrame:
    """Return the rows of :data:`FUNNEL`, from input images to images with pairs.

    An image counts at the first stage that excluded it. A stage that excludes nothing has one row without a reason.
    Raises StoreError if a remaining image has no pair, or an excluded image has pairs.
    """
    remaining = set(images)
    rows = [("input", "", len(images), len(images), "input images")]
    for stage, flow in flows.items():
        stopped = Counter(reason for image, reason in flow.excluded.items() if image in remaining)
        remaining -= flow.excluded.keys()
        for reason, number in sorted(stopped.items(), key=lambda item: (-item[1], item[0])):
            rows.append((stage, reason, number, len(remaining), REASONS[reason]))
        if not stopped:
            rows.append((stage, "", 0, len(remaining), "no image stopped here"))
    if remaining != with_pairs:
        raise StoreError(
            f"{len(remaining - with_pairs)} images have no pair although no stage excluded them, and"
            f" {len(with_pairs - remaining)} have pairs although a stage excluded them. The results come from different"
            " runs: delete results/dataset and run again"
        )
    rows.append(("pairs", "", len(with_pairs), len(with_pairs), "images with instruction-answer pairs"))
    return pl.DataFrame(rows, schema=schema(FUNNEL), orient="row")


def _read_image_ids(paths: Iterable[str]) -> frozenset[str]:
    image_ids: set[str] = set()
    for path in paths:
        if path.endswith(".parquet"):
            image_ids.update(read_table(path)["image_id"])
        else:
            with Shard(path) as shard:
                image_ids.update(shard.ids)
    return frozenset(image_ids)


def read_ledgers(paths: Iterable[str]) -> dict[str, pl.DataFrame]:
    """Return {stage: table of excluded images} from folders named after stages. Raises StoreError if one is missing."""
    ledger_by_stage = {stage: read_table(path) for stage, (path,) in group_by_folder(paths).items()}
    if missing := [stage for stage in STAGES if stage not in ledger_by_stage]:
        raise StoreError(f"results/{missing[0]}/excluded.parquet is missing: run `snakemake {missing[0]}`")
    return ledger_by_stage


def find_reasons(ledger: pl.DataFrame, thresholds: str | None = None) -> dict[str, str]:
    """Return {image_id: reason} of a stage's excluded images, only for the threshold set ``thresholds`` if given.
    Raises StoreError for an image that is excluded twice."""
    if thresholds is not None:
        ledger = ledger.filter(pl.col("thresholds") == thresholds)
    reason_by_image = dict(ledger.select("image_id", "reason").iter_rows())
    if len(reason_by_image) != len(ledger):
        raise StoreError(f"stage {ledger['stage'][0]} excluded an image twice: delete the stage's results and rerun it")
    return reason_by_image


def input_image_ids(images: pl.DataFrame) -> frozenset[str]:
    """Return the ids of all input images. Raises StoreError for a duplicate id."""
    image_ids = frozenset(images["image_id"])
    if len(image_ids) != len(images):
        raise StoreError(
            "results/cohort/images.parquet has an image_id twice: delete results/cohort and run snakemake again"
        )
    return image_ids


def read_shared_flows(
    images: pl.DataFrame, ledgers: Mapping[str, pl.DataFrame], shards: Mapping[str, Sequence[str]]
) -> dict[str, Flow]:
    """Return the flow of every stage that does not depend on thresholds. ``shards`` is {stage: files}.

    The boxes stage writes nothing for an image without a box, so all images that it does not exclude count as accepted.
    Images with boxes count as accepted too, so that boxes of an excluded image violate the balance.
    """
    reasons = {stage: find_reasons(ledgers[stage]) for stage in shards}
    cohort, frames, organs, anomaly, anatomy = (_read_image_ids(shards[name]) for name in ("cohort", *MAP_STAGES))
    reported_studies = {line["study_id"] for path in shards["reports"] for line in read_lines(path)}
    study_of = dict(images.select("image_id", "study_id").iter_rows())
    reported = frozenset(image for image in cohort if study_of[image] in reported_studies)
    with_boxes = (frames - reasons["boxes"].keys()) | _read_image_ids(shards["boxes"])
    entered_and_accepted = {
        "cohort": (input_image_ids(images), cohort),
        "frames": (cohort, frames),
        "reports": (cohort, reported),
        "organs": (frames, organs),
        "anomaly": (organs, anomaly),
        "anatomy": (anomaly, anatomy),
        "boxes": (frames, with_boxes),
    }
    return {stage: Flow(*images, reasons[stage]) for stage, images in entered_and_accepted.items()}


def read_set_flows(
    shared: Mapping[str, Flow],
    ledgers: Mapping[str, pl.DataFrame],
    thresholds: str,
    *,
    studies: Sequence[str],
    with_pairs: frozenset[str],
) -> dict[str, Flow]:
    """Return ``shared`` with the flows of the stages masks and dataset under the threshold set ``thresholds``.
    ``studies`` are tables of the masks stage, and ``with_pairs`` are the ids of the images with pairs."""
    ready = shared["anatomy"].accepted & shared["boxes"].accepted & shared["reports"].accepted
    masks = Flow(ready, _read_image_ids(studies), find_reasons(ledgers["masks"], thresholds))
    dataset = Flow(masks.accepted, with_pairs, find_reasons(ledgers["dataset"], thresholds))
    return {**shared, "masks": masks, "dataset": dataset}
