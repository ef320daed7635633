"""Agreement with human annotations: measures by hand, geometry, who is counted, and the stage on the slice."""

import csv
import json
from pathlib import Path

import cv2
import numpy as np
import polars as pl
import pytest

from conftest import SLICE, snakemake, write_settings
from cxr.annotations.regions import Annotation
from cxr.base.columns import schema
from cxr.base.errors import UserError
from cxr.base.hdf5 import Shard
from cxr.base.jobs import settings_arguments
from cxr.base.tables import read_lines, read_table
from cxr.geometry.affine import fit_affine
from cxr.geometry.boxes import box_iou
from cxr.geometry.rle import encode_rle
from cxr.ils.dataset.mimic_ils import write_layout
from cxr.reporting.agreement import compare
from cxr.reporting.agreement.charts import draw_bars, draw_curves
from cxr.reporting.agreement.compare import (
    EXCLUSIONS,
    VALUES,
    run_images,
    run_scores,
    tabulate_population,
    tabulate_scores,
)
from cxr.reporting.agreement.measures import Measure, count_false_boxes, measure_boxes, measure_map, measure_mask
from cxr.reporting.agreement.references import (
    Region,
    drop_duplicates,
    included_lesions,
    load_reference,
    region_in_frame,
)
from cxr.workflow.params import stage_options
from cxr.workflow.plan_reporting import reference_options
from cxr.workflow.settings import read
from declared_tables import differing

SETTINGS = read({})


def square(x1: int, y1: int, x2: int, y2: int, size: int = 16) -> np.ndarray:
    mask = np.zeros((size, size), bool)
    mask[y1:y2, x1:x2] = True
    return mask


def values_by_measure(values) -> dict:
    return {(value.name, value.at): (value.numerator, value.denominator) for value in values}


def test_a_mask_against_a_region_by_hand():
    """8 x 4 against 4 x 4 of it and 2 rows below: 16 shared, 32 and 24 in all."""
    mask, region = square(0, 0, 8, 4), square(0, 0, 4, 6)
    assert values_by_measure(measure_mask(mask, region)) == {
        ("found", None): (1, 1),
        ("dice", None): (32 / 56, 1),
        ("iou", None): (16 / 40, 1),
        ("covered", None): (16 / 24, 1),
        ("dice_of_found", None): (32 / 56, 1),
        ("iou_of_found", None): (16 / 40, 1),
        ("inside", None): (16 / 32, 1),
    }
    nothing = values_by_measure(measure_mask(np.zeros_like(region), region))
    assert {name: value for (name, _), value in nothing.items()} == {
        "found": (0, 1), "dice": (0, 1), "iou": (0, 1), "covered": (0, 1),
        "dice_of_found": (0, 0), "iou_of_found": (0, 0), "inside": (0, 0),
    }  # fmt: skip


def test_a_map_against_a_region_by_hand():
    """Grey 26 is the first that reaches 0.1 of 255, 13 the first that reaches 0.05."""
    anomaly = np.zeros((16, 16), np.uint8)
    anomaly[0:2, 0:4] = 25
    anomaly[0, 0:2] = 26
    region, lungs = square(0, 0, 2, 2), square(0, 0, 8, 8)
    values = values_by_measure(measure_map(anomaly, region, lungs, [0.05, 0.1, 0.5]))
    assert values == {
        ("pointing", None): (1, 1),
        ("chance", None): (4 / 64, 1),
        ("dice", 0.05): (8 / 12, 1), ("iou", 0.05): (4 / 8, 1), ("covered", 0.05): (1, 1), ("inside", 0.05): (0.5, 1),
        ("dice", 0.1): (4 / 6, 1), ("iou", 0.1): (0.5, 1), ("covered", 0.1): (0.5, 1), ("inside", 0.1): (1, 1),
        ("dice", 0.5): (0, 1), ("iou", 0.5): (0, 1), ("covered", 0.5): (0, 1), ("inside", 0.5): (0, 0),
    }  # fmt: skip
    anomaly[15, 15] = anomaly[14, 15] = 26
    assert values_by_measure(measure_map(anomaly, region, lungs, []))["pointing", None] == (
        0.5,
        1,
    )  # two of four places with 26
    anomaly[:] = 0
    assert values_by_measure(measure_map(anomaly, region, lungs, []))["pointing", None] == (0, 1)
    assert ("chance", None) not in values_by_measure(measure_map(anomaly, region, np.zeros_like(lungs), []))


def test_boxes_against_boxes_by_hand():
    drawn = np.array([[0, 0, 10, 10], [20, 20, 30, 30.0]])
    boxes = np.array([[0, 0, 10, 5], [0, 0, 10, 10], [100, 100, 110, 110], [21, 20, 31, 30.0]])
    confidence = np.array([0.9, 0.4, 0.3, 0.1])
    assert box_iou(boxes, drawn)[:, 0].tolist() == [0.5, 1, 0, 0]
    assert box_iou(boxes, drawn)[3, 1] == pytest.approx(90 / 110)
    found = values_by_measure(measure_boxes(boxes, confidence, drawn, [0.5, 0.6], [0.05, 0.35, 0.5, 0.95]))
    assert found == {
        ("recall_iou0.5", 0.05): (2, 2), ("recall_iou0.5", 0.35): (1, 2), ("recall_iou0.5", 0.5): (1, 2),
        ("recall_iou0.5", 0.95): (0, 2),
        ("recall_iou0.6", 0.05): (2, 2), ("recall_iou0.6", 0.35): (1, 2), ("recall_iou0.6", 0.5): (0, 2),
        ("recall_iou0.6", 0.95): (0, 2),
    }  # fmt: skip
    assert values_by_measure(count_false_boxes(boxes, confidence, drawn, 0.5, [0.05, 0.35])) == {
        ("false_iou0.5", 0.05): (1, 1), ("false_iou0.5", 0.35): (0, 1),
    }  # fmt: skip
    nothing = np.zeros((0, 4))
    assert values_by_measure(count_false_boxes(boxes, confidence, nothing, 0.5, [0.2])) == {
        ("false_iou0.5", 0.2): (3, 1)
    }
    assert values_by_measure(count_false_boxes(nothing, np.zeros(0), drawn, 0.5, [0.2])) == {
        ("false_iou0.5", 0.2): (0, 1)
    }
    assert values_by_measure(measure_boxes(nothing, np.zeros(0), drawn, [0.5], [0.2])) == {
        ("recall_iou0.5", 0.2): (0, 2)
    }


def test_a_region_comes_into_the_frame_where_its_pixels_are():
    """A picture of 100 x 200 in a padded frame of 64: a scale of 3.125, and 50 px of padding above and below."""
    affine = fit_affine((100, 200), 64, "pad")
    box = (25.0, 0.0, 100.0, 50.0)
    region, why = region_in_frame(Annotation("i", "x", box), "edema", affine, (100, 200), 64)
    assert why == ""
    assert region.boxes.tolist() == [[8, 16, 32, 32]]
    assert np.array_equal(region.mask, square(8, 16, 32, 32, 64))
    mask = np.zeros((100, 200), bool)
    mask[:50, 25:100] = True
    encoded, _ = region_in_frame(Annotation("i", "x", mask_source=encode_rle(mask)), "edema", affine, (100, 200), 64)
    assert np.array_equal(encoded.mask, region.mask)
    assert encoded.boxes.tolist() == [[8, 16, 32, 32]]
    half, _ = region_in_frame(Annotation("i", "x", (12.5, 0, 50, 25), size=(50, 100)), "edema", affine, (100, 200), 64)
    assert np.array_equal(half.mask, region.mask)
    small, _ = region_in_frame(
        Annotation("i", "x", mask_source=encode_rle(mask[::2, ::2])), "edema", affine, (100, 200), 64
    )
    assert (small.mask ^ region.mask).sum() <= 24  # its edges lie between the pixels of the frame
    for wrong, reason in [
        (Annotation("i", "x", box, size=(200, 100)), "other_shape"),
        (Annotation("i", "x", (500.0, 0, 600, 50)), "no_area"),
        (Annotation("i", "x", (float("nan"), 0, 600, 50)), "no_area"),
        (Annotation("i", "x"), "no_area"),
        (Annotation("i", "x", mask_source={"size": [3, 3], "counts": [4]}), "broken_mask"),
    ]:
        assert region_in_frame(wrong, "edema", affine, (100, 200), 64) == (None, reason)


def test_a_mask_of_a_release_is_in_the_frame_if_it_has_its_size(tmp_path):
    path = tmp_path / "mask.png"
    cv2.imwrite(str(path), square(3, 4, 20, 30, 64).astype(np.uint8) * 255)
    affine = fit_affine((100, 200), 64, "pad")
    region, _ = region_in_frame(Annotation("i", "edema", mask_source=path), "edema", affine, (100, 200), 64)
    assert np.array_equal(region.mask, square(3, 4, 20, 30, 64))
    assert region.boxes.tolist() == [[3, 4, 20, 30]]
    whole = np.zeros((100, 200), np.uint8)
    whole[:50, 25:100] = 255
    cv2.imwrite(str(path), whole)
    region, _ = region_in_frame(Annotation("i", "edema", mask_source=path), "edema", affine, (100, 200), 64)
    assert np.array_equal(region.mask, square(8, 16, 32, 32, 64))


def test_what_two_readers_drew_counts_once():
    def region(x2: float, reader: str, lesion: str = "edema") -> Region:
        return Region(lesion, square(0, 0, int(x2), 10), np.array([[0, 0, x2, 10.0]]), reader)

    regions = [region(10, "R1"), region(6, "R2"), region(4, "R3"), region(10, "R1"), region(10, "R2", "effusion")]
    kept, gone = drop_duplicates(regions, 0.5)
    assert [(one.reader, one.lesion, float(one.boxes[0, 2])) for one in kept] == [
        ("R1", "edema", 10), ("R3", "edema", 4), ("R1", "edema", 10), ("R2", "effusion", 10),
    ]  # fmt: skip
    assert gone == 1  # R2's overlaps R1's by 0.6; what one reader drew twice is two


def test_a_lesion_type_includes_the_kinds_under_it():
    assert included_lesions("consolidation") == ("consolidation", "pneumonia", "atelectasis", "edema")
    assert included_lesions("effusion") == ("effusion",)
    assert set(included_lesions("any")) == {"pneumonia", "atelectasis", "opacity", "consolidation", "edema", "effusion"}


def test_scores_are_ratios_of_sums_with_intervals_by_patient(monkeypatch):
    monkeypatch.setattr(compare, "COVERAGE", 0.9)
    rows = [
        ("r", "boxes", "any", "recall", 0.2, "p1", "i1", 1.0, 2.0),
        ("r", "boxes", "any", "recall", 0.2, "p1", "i2", 2.0, 2.0),
        ("r", "boxes", "any", "recall", 0.2, "p2", "i3", 0.0, 1.0),
        ("r", "masks default", "any", "inside", None, "p1", "i1", 0.5, 1.0),
        ("r", "masks default", "any", "inside", None, "p2", "i3", 0.0, 0.0),
        ("r", "masks default", "edema", "inside", None, "p2", "i3", 0.0, 0.0),
    ]
    table = pl.DataFrame(rows, schema=schema(VALUES), orient="row")
    found = tabulate_scores(table, 2000, 3).to_dicts()
    assert [(row["output"], row["lesion"], row["value"], row["images"], row["patients"]) for row in found] == [
        ("boxes", "any", 0.6, 3, 2),
        ("masks default", "any", 0.5, 1, 1),
        ("masks default", "edema", None, 0, 0),
    ]
    # two patients: both p1, both p2, or one each, with chances 1/4, 1/4, 1/2: 0.75, 0 and 0.6
    assert (found[0]["low"], found[0]["high"]) == (0.0, 0.75)
    assert (found[1]["low"], found[1]["high"]) == (0.5, 0.5)
    assert (found[2]["low"], found[2]["high"]) == (None, None)


@pytest.fixture(scope="module")
def painted(workflow_run, tmp_path_factory) -> tuple[Path, Path]:
    """The truth of the slice as a COCO file of masks and an NIH table of boxes, both in original pixels."""
    folder = tmp_path_factory.mktemp("references")
    results = workflow_run / "results"
    names = sorted(path.stem for path in (results / "frames").glob("*.h5"))
    held = {"categories": [{"id": 1, "name": "Haze"}, {"id": 2, "name": "rib"}], "images": [], "annotations": []}
    boxes = [["Image Index", "Finding Label", "Bbox [x", "y", "w", "h]", "", "", ""]]
    with Shard(results / "phantom/truth.h5") as truth:
        for name in names:
            with Shard(results / f"frames/{name}.h5") as frames:
                for image_id in frames.ids:
                    rows, columns = (int(side) for side in frames.get("original_shape", image_id))
                    affine = frames.get("to_original", image_id)
                    number = len(held["images"]) + 1
                    held["images"].append(
                        {"id": number, "file_name": f"x/{image_id}.png", "height": rows, "width": columns}
                    )
                    masks = truth.masks(image_id)
                    mask = masks["opacity"] | masks["pneumonia"] | masks["consolidation"] | masks["edema"]
                    ys, xs = np.mgrid[0:rows, 0:columns]
                    back = np.stack(
                        [(xs + 0.5 - affine[0, 2]) / affine[0, 0], (ys + 0.5 - affine[1, 2]) / affine[1, 1]]
                    )
                    x, y = np.clip(np.floor(back).astype(int), 0, 511)
                    drawn = mask[y, x]
                    if drawn.any():
                        one = {"id": number, "image_id": number, "category_id": 1, "segmentation": encode_rle(drawn)}
                        held["annotations"].append(one)
                        ys, xs = np.nonzero(drawn)
                        sides = xs.min(), ys.min(), np.ptp(xs) + 1, np.ptp(ys) + 1
                        boxes.append([f"{image_id}.png", "Infiltrate", *map(int, sides), "", "", ""])
    rib = {"id": 99, "image_id": 1, "category_id": 2, "bbox": [0, 0, 5, 5]}
    held["annotations"].append(rib)
    held["images"].append({"id": 77, "file_name": "stranger.png", "height": 10, "width": 10})
    (folder / "haze.json").write_text(json.dumps(held))
    with open(folder / "boxes.csv", "w", newline="") as file:
        csv.writer(file).writerows([*boxes, ["SYN0004-1-2.png", "Infiltrate", 1, 1, 50, 50, "", "", ""]])
    return folder / "haze.json", folder / "boxes.csv"


def run(results: Path, folder: Path, name: str, kind: str, path: Path, **more) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Run the first part of the stage on the slice; returns its values and what is left out."""
    shards = ("00", "01", "02")
    given = {"name": name, "format": kind, "path": str(path), "classes": {}, "image_id": "{stem}"} | more
    values, excluded = folder / f"{name}.parquet", folder / f"{name}.excluded.parquet"
    run_images(
        reference=str(path), images=str(results / "cohort/images.parquet"),
        **{stage: [str(results / f"{stage}/{s}.h5") for s in shards] for stage in ("frames", "organs", "anomaly")},
        boxes=[str(results / f"boxes/{s}.parquet") for s in shards],
        boxes_excluded=[str(results / f"boxes/{s}.excluded.parquet") for s in shards],
        findings=[str(results / f"masks/default/{s}.findings.parquet") for s in shards],
        studies=[str(results / f"masks/default/{s}.studies.parquet") for s in shards],
        masks=[str(results / f"masks/default/{s}.h5") for s in shards],
        values=str(values), excluded=str(excluded),
        **settings_arguments(run_images, stage_options(SETTINGS)["agreement"] | given),
    )  # fmt: skip
    return read_table(values), read_table(excluded)


def test_the_slice_against_its_own_truth_is_what_numpy_says(workflow_run, tmp_path, painted):
    results = workflow_run / "results"
    values, left = run(results, tmp_path, "painted", "painted", results / "phantom/truth.h5")
    findings = read_table(results / "masks/default/findings.parquet")
    seen = 0
    with Shard(results / "phantom/truth.h5") as truth:
        for row in values.filter((pl.col("output") == "masks default") & (pl.col("measure") == "dice")).to_dicts():
            if row["lesion"] == "any":
                continue
            region = np.logical_or.reduce(
                [truth.masks(row["image_id"])[name] for name in included_lesions(row["lesion"])]
            )
            mask = np.zeros((512, 512), bool)
            used = findings.filter(
                (pl.col("image_id") == row["image_id"])
                & pl.col("reason").is_null()
                & pl.col("target").is_in(included_lesions(row["lesion"]))
            )
            for mask_id in used["mask_id"].drop_nulls():
                for path in (results / "masks/default").glob("*.h5"):
                    with Shard(path, key="mask_id") as shard:
                        mask |= shard.get("mask", mask_id) if mask_id in shard else False
            expected = 2 * (mask & region).sum() / (mask.sum() + region.sum())
            assert row["top"] == pytest.approx(expected, abs=1e-12)
            seen += 1
    assert seen > 5
    assert left["reason"].to_list() == ["no_frame"]
    assert left["detail"].to_list() == ["frames"]
    # the same lesions out of a file in original pixels: as near as resampling leaves them
    haze, boxes = painted
    coco, left = run(results, tmp_path, "haze", "coco", haze, classes={"Haze": "opacity"})
    assert sorted(left.select("image_id", "reason").rows()) == [
        ("SYN0006-1-1", "class_not_mapped"), ("stranger", "no_image"),
    ]  # fmt: skip
    at = (pl.col("output") == "anomaly map") & (pl.col("measure") == "covered") & (pl.col("at") == 0.1)
    first = {r["image_id"]: r["top"] for r in coco.filter(at & (pl.col("lesion") == "opacity")).to_dicts()}
    opacity = values.filter(at & (pl.col("lesion") == "opacity")).to_dicts()
    second = {r["image_id"]: r["top"] for r in opacity if r["image_id"] in first}
    with Shard(results / "phantom/truth.h5") as truth:
        for image_id in first:
            if not truth.masks(image_id)["atelectasis"].any():
                assert first[image_id] == pytest.approx(second[image_id], abs=0.02)
    table, left = run(results, tmp_path, "boxes", "nih", boxes)
    assert set(left.filter(pl.col("reason") == "no_frame").rows()) == {("boxes", "SYN0004-1-2", "no_frame", "frames")}
    assert {"no_reference", "no_frame"} == set(left["reason"])
    drawn = table.filter(pl.col("measure") == "recall_iou0.3", pl.col("at") == 0.2, pl.col("lesion") == "opacity")
    assert drawn["below"].sum() == len(first)
    assert len(set(left.filter(pl.col("reason") == "no_reference")["image_id"]) | set(first)) == len(framed(results))


def framed(results: Path) -> list[str]:
    """Every image with a frame."""
    found = []
    for path in sorted((results / "frames").glob("*.h5")):
        with Shard(path) as shard:
            found += shard.ids
    return sorted(found)


def test_who_is_counted_and_the_figures(workflow_run, tmp_path, painted, monkeypatch):
    results = workflow_run / "results"
    parts = [
        run(results, tmp_path, "haze", "coco", painted[0], classes={"Haze": "opacity"}),
        run(results, tmp_path, "boxes", "nih", painted[1]),
    ]
    paths = [
        (str(tmp_path / f"{name}.parquet"), str(tmp_path / f"{name}.excluded.parquet")) for name in ("haze", "boxes")
    ]
    out = {name: str(tmp_path / f"{name}.tsv") for name in ("scores", "population")}
    monkeypatch.setattr(compare, "REPLICATES", 50)
    run_scores(
        values=[values for values, _ in paths], excluded_parts=[left for _, left in paths], **out,
        excluded=str(tmp_path / "excluded.parquet"), seed=1,
    )  # fmt: skip
    written = {name: tmp_path / f"{name}.tsv" for name in out} | {"excluded": tmp_path / "excluded.parquet"}
    paths = {f"results/agreement/{path.name}": path for path in written.values()}
    paths["results/agreement/{reference}/values.parquet"] = tmp_path / "haze.parquet"
    assert [differing(path, name) for name, path in paths.items()] == [""] * 4
    population = {(row["reference"], row["outcome"]): row["number"] for row in read_table(out["population"]).to_dicts()}
    for name, (values, left) in zip(("haze", "boxes"), parts, strict=True):
        assert population[name, "compared"] == values["image_id"].n_unique()
        for (reason,), rows in left.group_by("reason"):
            assert population[name, reason] == len(rows)
    compared = population["haze", "compared"]
    assert compared == len(framed(results))
    scores = read_table(out["scores"]).with_columns(pl.col("at", "value", "low", "high").cast(pl.Float64, strict=False))
    assert (
        scores.filter(pl.col("value").is_not_null() & ~pl.col("measure").str.starts_with("false"))["value"].max() <= 1
    )
    kept = scores.drop_nulls("low")
    assert ((kept["low"] <= kept["value"] + 1e-6) & (kept["value"] <= kept["high"] + 1e-6)).all()
    bars, curves = draw_bars(scores), draw_curves(scores, 0.3)
    assert len(bars.axes) == 2 * 5
    assert len(curves.axes) == 2 * 6
    lines = [line for axes in curves.axes for line in axes.get_lines()]
    assert len(lines) > 6
    shown = {tuple(line.get_ydata()) for line in lines}
    of = scores.filter(reference="boxes", output="anomaly map", lesion="any", measure="iou").sort("at")
    assert tuple(of["value"]) in shown


@pytest.mark.parametrize("pixels", ["frame", "original"])
def test_a_dataset_agrees_with_itself(workflow_run, tmp_path, pixels):
    """Its own released layout is the reference: wherever it has a lesion, the mask is that of the reference."""
    results, layout = workflow_run / "results", tmp_path / "layout"
    masks, frames = (sorted(map(str, (results / part).glob("*.h5"))) for part in ("masks/default", "frames"))
    splits = {split: str(results / f"dataset/default/{split}.jsonl") for split in ("train", "validate", "test")}
    write_layout(**splits, masks=masks, frames=frames, layout=str(layout), pixels=pixels)
    values, left = run(results, tmp_path, "own", "mimic_ils", layout)
    dice = values.filter(pl.col("output") == "masks default", pl.col("measure") == "dice")
    lines = [line for path in splits.values() for line in read_lines(path)]
    assert set(dice.filter(pl.col("lesion") != "any")["lesion"]) >= {
        line["target"] for line in lines if line["mask_id"]
    }
    assert set(dice["image_id"]) == {line["image_id"] for line in lines if line["mask_id"]}
    assert set(left["reason"]) == {"no_reference"}
    if pixels == "frame":
        assert set(dice["top"]) == {1.0}
        boxed = values.filter(pl.col("measure") == "covered", pl.col("output") == "masks default")
        assert set(boxed["top"]) == {1.0}
    else:
        assert dice["top"].min() > 0.97  # there and back again


def test_a_reference_without_a_lesion_is_one_sentence(tmp_path):
    path = tmp_path / "one.json"
    held = {"categories": [{"id": 1, "name": "rib"}], "images": [{"id": 1, "file_name": "a.png"}]}
    path.write_text(json.dumps(held | {"annotations": [{"image_id": 1, "category_id": 1, "bbox": [0, 0, 1, 1]}]}))
    with pytest.raises(UserError) as error:
        load_reference("agreement.references.mine.path", "coco", path, {}, "{stem}")
    assert str(error.value) == (
        f"agreement.references.mine.path {str(path)!r} has no label that is a lesion type: map its labels in `classes`"
    )


def test_the_embedded_cohort_alone_has_a_reference_of_its_own():
    assert set(reference_options(SETTINGS)) == {"painted"}
    assert reference_options(read({"cohort": {"source": "manifest", "manifest": "m.csv"}})) == {}


def test_nothing_compared_is_no_row():
    empty = pl.DataFrame(schema=schema(VALUES))
    gone = pl.DataFrame([("r", "i", "no_image", "")], schema=schema(EXCLUSIONS), orient="row")
    assert tabulate_population(empty, gone).rows() == [
        ("r", "no_image", 1, "the reference names an image that is not in the cohort")
    ]


def test_values_have_one_order():
    assert Measure("dice", 0.5) == ("dice", 0.5, 1.0, None)


def test_agreement_is_a_target_and_a_wrong_file_stops_before_any_job(workflow_run, tmp_path, dry_run):
    jobs = {"agreement_images": 1, "agreement_scores": 1, "agreement_charts": 1, "agreement": 1}
    assert dry_run(workflow_run, "agreement") == jobs
    settings = SLICE | {"agreement": {"references": {"mine": {"format": "nih", "path": "nowhere.csv"}}}}
    done = snakemake(write_settings(tmp_path, settings), "agreement", check=False)
    assert done.returncode == 1
    assert "cxr-ils: agreement.references.mine.path: there is no file 'nowhere.csv': correct the path" in done.stderr
