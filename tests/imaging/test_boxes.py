"""The boxes stage: overlap, suppression, decoding, both engines, its table, and its recall."""

import os
import re
from pathlib import Path

import cv2
import numpy as np
import polars as pl
import pytest

from cxr.base.engines import Setup
from cxr.base.errors import UserError
from cxr.base.hdf5 import ShardWriter
from cxr.base.tables import read_table
from cxr.base.vocabulary import BOX_CLASSES
from cxr.detection.grid import decode_boxes, select_boxes
from cxr.geometry.affine import fit_affine
from cxr.geometry.boxes import box_iou
from cxr.imaging.boxes import lite, table
from cxr.imaging.boxes.detect_boxes import SCHEMA, run_shard
from cxr.imaging.boxes.engine import load_engine, map_class_names
from cxr.imaging.boxes.settings import BoxesSettings
from cxr.imaging.phantom.chest import draw_chest
from cxr.metrics.matching import score_detections
from cxr.painting.lesions import paint

EXCLUDED = ["Aortic enlargement", "Other lesion", "Pneumothorax", "Cardiomegaly"]
SHARED = Path(os.environ.get("CXR_ILS_SHARED", Path(__file__).resolve().parents[3] / "shared"))
NIH = SHARED / "data" / "nih"
CHOICE = {"floor": 0.001, "iou": 0.5, "most": 100}


def options(**changes) -> BoxesSettings:
    return BoxesSettings.from_dict({"excluded_classes": EXCLUDED} | changes)


def test_decoding_is_exact():
    """Cell (row 3, column 5) of a 16 x 16 grid over 512 px has its centre at (176, 112); a cell is 32 px."""
    distance = np.zeros((8, 16, 16), np.float32)
    distance[:4, 3, 5] = [1.0, 0.5, 2.0, 3.25]
    distance[4:, 3, 5] = [100.0, 0.25, 0.25, 100.0]
    boxes = decode_boxes(distance, [0, 0, 1], 512)
    assert boxes.shape == (3, 16, 16, 4)
    assert boxes[0, 3, 5].tolist() == [144.0, 96.0, 240.0, 216.0]
    assert boxes[1, 3, 5].tolist() == boxes[0, 3, 5].tolist()
    assert boxes[2, 3, 5].tolist() == [0.0, 104.0, 184.0, 512.0]
    assert boxes[0, 15, 0].tolist() == [16.0, 496.0, 16.0, 496.0]


def test_selection_keeps_the_floor_and_drops_what_has_no_area():
    boxes = np.zeros((1, 1, 4, 4))
    boxes[0, 0] = [[0, 0, 100, 100], [200, 200, 300, 300], [10, 10, 10, 50], [400, 400, 500.004, 500]]
    confidence = np.array([[[0.001, 0.0009, 0.9, 0.30000004]]])
    chosen, found, classes = select_boxes(boxes, confidence, **CHOICE)
    assert chosen.tolist() == [[400, 400, 500.0, 500], [0, 0, 100, 100]]
    assert found.tolist() == [0.3, 0.001]
    assert classes.tolist() == [0, 0]
    assert len(select_boxes(boxes, confidence, **CHOICE | {"most": 1})[0]) == 1


def test_a_region_has_one_box_the_best_of_its_classes():
    """IoU of the first two boxes 0.6, of the third with the first 0.5: 60 of 100, and 2/3 of 150, columns."""
    boxes = np.zeros((3, 1, 2, 4))
    boxes[0, 0] = [[0, 0, 100, 100], [300, 300, 400, 400]]
    boxes[1, 0] = [[0, 0, 100, 60], [300, 300, 400, 350]]
    boxes[2, 0] = [[0, 0, 90, 100], [0, 0, 0, 0]]
    confidence = np.array([[[0.4, 0.5]], [[0.6, 0.6]], [[0.9, 0.3]]])
    own = select_boxes(boxes, confidence, **CHOICE)
    assert own[2].tolist() == [2, 1, 1, 0, 0]
    kept = select_boxes(boxes, confidence, **CHOICE, across=0.5)
    # the heart (2) beats 0 (0.9) and 1 (0.545); of the lower pair the overlap is 0.5, which is not above it
    assert list(zip(kept[1].tolist(), kept[2].tolist(), strict=True)) == [(0.9, 2), (0.6, 1), (0.5, 0)]
    assert kept[0].tolist() == [[0, 0, 90, 100], [300, 300, 400, 350], [300, 300, 400, 400]]
    apart = select_boxes(boxes, confidence, **CHOICE, across=0.5, apart=[2])
    assert list(zip(apart[1].tolist(), apart[2].tolist(), strict=True)) == [(0.9, 2), (0.6, 1), (0.6, 1), (0.5, 0)]
    assert select_boxes(boxes, confidence, **CHOICE, across=1.0)[2].tolist() == own[2].tolist()
    assert select_boxes(boxes, confidence, **CHOICE | {"most": 2}, across=0.5)[1].tolist() == [0.9, 0.6]


# engines by name


def test_unknown_engine_is_named():
    with pytest.raises(UserError, match=r"engine is 'yolo'.*: choose one of lite, scaled_yolov4, table, ultralytics$"):
        load_engine(options(engine="yolo"))


@pytest.mark.parametrize("engine", ["lite", "table"])
def test_unknown_excluded_class_is_named(engine, tmp_path):
    path = tmp_path / "boxes.csv"
    path.write_text("image_id,x1,y1,x2,y2,confidence,class_name\n")
    table = {"table": str(path)} if engine == "table" else {}
    with pytest.raises(UserError, match=r"'Pneumothorx'.*Pneumothorax"):
        load_engine(options(engine=engine, excluded_classes=["Pneumothorx"], **table))


# the table engine

HEADER = "image_id,x1,y1,x2,y2,confidence,class_name\n"
SAME = fit_affine((512, 512), 512, "pad")


def table_engine(tmp_path, text: str, **changes) -> table.TableEngine:
    path = tmp_path / "boxes.csv"
    path.write_text(text)
    return table.load(options(engine="table", table=str(path), **changes))


def test_table_without_a_column(tmp_path):
    with pytest.raises(UserError, match="lacks the columns y2, confidence: add them"):
        table_engine(tmp_path, "image_id,x1,y1,x2,class_name\na,1,2,3,ILD\n")


def test_table_that_is_not_there(tmp_path):
    with pytest.raises(UserError, match=r"boxes\.table: .*none\.csv cannot be read as CSV or Parquet \(No such file"):
        table.load(options(engine="table", table=str(tmp_path / "none.csv")))


def test_a_table_in_another_dialect(tmp_path):
    """Semicolons, a heading with spaces and class names in another case are read; a stray mark joins no rows."""
    rows = "7;10;20;30;40;0.5;lung_opacity\n8;10;20;30;40;0.5;PLEURAL effusion\n"
    engine = table_engine(tmp_path, "Image ID;X1;Y1;X2;Y2;Confidence;Class name\n" + rows)
    assert [engine.detect(np.zeros((512, 512), np.uint8), name, SAME).class_names for name in "78"] == [
        ["Lung Opacity"], ["Pleural effusion"]
    ]  # fmt: skip
    stray = '7,1,2,3,4,0.5,"ILD\n8,1,2,3,4,0.5,ILD\n9,1,2,3,4,0.5,ILD"\n'
    with pytest.raises(UserError, match=r"boxes\.table: .*line 2: a quotation mark .* over the rows below"):
        table_engine(tmp_path, HEADER + stray)


def test_table_with_text_for_a_number_or_another_class(tmp_path):
    with pytest.raises(UserError, match="holds text in one of x1"):
        table_engine(tmp_path, HEADER + "a,left,2,3,4,0.5,ILD\n")
    with pytest.raises(UserError, match=r"holds the class_name 'Opacity': rename it to one of Aortic"):
        table_engine(tmp_path, HEADER + "a,1,2,3,4,0.5,Opacity\n")


def test_bad_rows_of_a_table_are_dropped_and_counted(tmp_path, caplog):
    rows = [
        "7,10,20,30,40,0.5,ILD",
        "7,NaN,20,30,40,0.5,ILD",
        "7,inf,20,30,40,0.5,ILD",
        "7,10,20,30,40,,ILD",
        "7,30,20,30,40,0.5,ILD",
        "7,10,40,30,20,0.5,ILD",
        "7,10,20,30,40,1.5,ILD",
        "7,10,20,30,40,0.5,",
        "7,10,20,30,40,0.0001,ILD",
        "7,600,600,700,700,0.5,ILD",
        "7,-10,500,30,600,0.75,Consolidation",
    ]
    engine = table_engine(tmp_path, HEADER + "\n".join(rows) + "\n")
    assert engine.dropped == {"no_name": 1, "not_a_number": 3, "confidence_out_of_range": 1, "no_area": 2}
    assert "7 rows of boxes.table dropped" in caplog.text
    found = engine.detect(np.zeros((512, 512), np.uint8), "7", SAME)
    assert found.boxes.tolist() == [[0, 500, 30, 512], [10, 20, 30, 40]]
    assert found.confidence.tolist() == [0.75, 0.5]
    assert found.class_names == ["Consolidation", "ILD"]
    assert engine.detect(np.zeros((512, 512), np.uint8), "8", SAME).boxes.shape == (0, 4)


def test_table_in_original_pixels(tmp_path):
    """In a 2048 x 1024 (rows x columns) image, a frame pixel has 4 x 4 original ones, after 128 frame px of padding."""
    affine = fit_affine((2048, 1024), 512, "pad")
    engine = table_engine(tmp_path, HEADER + "a,0,0,1024,2048,0.5,ILD\na,400,800,800,1200,0.4,ILD\n")
    engine = table_engine(
        tmp_path, HEADER + "a,0,0,1024,2048,0.5,ILD\na,400,800,800,1200,0.4,ILD\n", table_pixels="original"
    )
    found = engine.detect(np.zeros((512, 512), np.uint8), "a", affine)
    np.testing.assert_allclose(found.boxes, [[128, 0, 384, 512], [228, 200, 328, 300]], atol=1e-9)


# the stage


def chests(count: int) -> list[np.ndarray]:
    drawn = [draw_chest(np.random.default_rng([99, k]), 512) for k in range(count)]
    painted = [
        paint(c.image, lesion, c.masks["right lung"], np.random.default_rng(k))[0]
        for k, (c, lesion) in enumerate(zip(drawn, ("consolidation", "effusion", "edema", "opacity") * 9, strict=False))
    ]
    return [(image * 255).astype(np.uint8) for image in painted]


@pytest.fixture(scope="module")
def frames(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("frames") / "00.h5"
    images = [*chests(4), np.zeros((512, 512), np.uint8), np.full((512, 512), 255, np.uint8)]
    with ShardWriter(path) as writer:
        for number, image in enumerate(images):
            writer.append(f"i{number}", image=image, to_original=SAME, original_shape=np.array([512, 512], np.int32))
    return path


def run(frames: Path, folder: Path, threads: int = 1, **changes) -> pl.DataFrame:
    run_shard(
        frames=str(frames),
        output=str(folder / "00.parquet"),
        excluded=str(folder / "00.excluded.parquet"),
        options=options(**changes),
        attrs={},
        threads=threads,
    )
    return read_table(folder / "00.parquet")


def test_shard_follows_the_contract(frames, tmp_path):
    found = run(frames, tmp_path)
    assert dict(found.schema) == SCHEMA
    assert set(found["image_id"]) >= {"i0", "i1", "i2", "i3"}
    assert read_table(tmp_path / "00.excluded.parquet").is_empty()
    order = ["image_id", "confidence", "x1", "y1", "x2", "y2", "class_name"]
    assert found.equals(found.sort(order, descending=[name == "confidence" for name in order]))
    assert found["confidence"].is_between(0.001, 1).all()
    assert found.group_by("image_id").len()["len"].max() <= 100
    for low, high in (("x1", "x2"), ("y1", "y2")):
        assert ((found[low] >= 0) & (found[low] < found[high]) & (found[high] <= 512)).all()
    assert set(found["class_name"]) <= set(BOX_CLASSES)
    assert (found["is_used"] == ~found["class_name"].is_in(EXCLUDED)).all()
    for name in ("x1", "y1", "x2", "y2"):
        assert (found[name].round(2) == found[name]).all()
    assert (found["confidence"].round(6) == found["confidence"]).all()


def test_threads_and_company_change_nothing(frames, tmp_path):
    for name in ("one", "three"):
        (tmp_path / name).mkdir()
    one = run(frames, tmp_path / "one", threads=1)
    run(frames, tmp_path / "three", threads=3)
    assert (tmp_path / "one" / "00.parquet").read_bytes() == (tmp_path / "three" / "00.parquet").read_bytes()
    with ShardWriter(tmp_path / "alone.h5") as writer:
        writer.append("i2", image=chests(3)[2], to_original=SAME)
    assert run(tmp_path / "alone.h5", tmp_path).equals(one.filter(pl.col("image_id") == "i2"))


def test_empty_shard(tmp_path):
    with ShardWriter(tmp_path / "none.h5", empty={"image": ((512, 512), np.uint8)}):
        pass
    found = run(tmp_path / "none.h5", tmp_path)
    assert found.is_empty()
    assert dict(found.schema) == SCHEMA


def test_a_users_file_takes_the_place_of_the_embedded_one(tmp_path):
    """A copy of the embedded one under other names: the same boxes under these, and none of a class left out."""
    path, picture = tmp_path / "mine.onnx", chests(1)[0]
    path.write_bytes(lite.WEIGHTS.read_bytes())

    def found(model: dict, names: dict[str, str]) -> set[tuple]:
        changed = {"lite": {"region_iou": 1.0}, "class_names": names}
        held = load_engine(options(**changed, max_boxes=1000), Setup(files=model)).detect(picture, "i", SAME)
        return {(*box, score, name) for (*box,), score, name in zip(*held, strict=True)}

    embedded = found({}, {})
    assert {row[-1] for row in embedded} >= {"Consolidation", "ILD"}
    renamed = found({"model": str(path)}, {"Consolidation": "Infiltration", "ILD": ""})
    assert renamed == {(*row[:-1], {"Consolidation": "Infiltration"}.get(row[-1], row[-1])) for row in embedded
                       if row[-1] != "ILD"}  # fmt: skip


@pytest.mark.parametrize(
    ("classes", "renamed", "words"),
    [
        (("opacity", "nodule"), {}, "class 'nodule', which is not a VinBigData class: map it in boxes.class_names"),
        (("opacity",), {"mass": "Nodule/Mass"}, "class_names holds 'mass', which is no class of mine.onnx"),
    ],
)
def test_classes_that_are_not_vinbigdatas_are_asked_for(classes, renamed, words):
    with pytest.raises(UserError, match=re.escape(words)):
        map_class_names(classes, renamed, "mine.onnx")


def test_findings_have_their_vinbigdata_names():
    assert map_class_names(("opacity", "edema", "effusion", "nodule"), {"nodule": "Nodule/Mass"}, "") == (
        "Lung Opacity", "", "Pleural effusion", "Nodule/Mass",
    )  # fmt: skip


STOPPED = "the engine stopped with {} in {}; the first such error is in the job's log"


def test_engine_failure_is_a_ledger_row(frames, tmp_path, monkeypatch):
    class Broken(lite.LiteEngine):
        def detect(self, image, image_id, to_original):
            if image_id == "i1":
                raise ZeroDivisionError("secret detail")
            return super().detect(image, image_id, to_original)

    monkeypatch.setattr(lite, "load", lambda options, setup: Broken(options))
    found = run(frames, tmp_path)
    assert "i1" not in set(found["image_id"])
    assert read_table(tmp_path / "00.excluded.parquet").rows() == [
        (
            "i1",
            "",
            "boxes",
            "engine_failure",
            STOPPED.format("ZeroDivisionError", "cxr.imaging.boxes.detect_boxes.work"),
        )
    ]


@pytest.mark.parametrize(("image_id", "warned"), [("i3", False), ("other", True)])
def test_a_table_of_other_images_is_warned_of_with_counts(frames, tmp_path, caplog, image_id, warned):
    path = tmp_path / "boxes.csv"
    path.write_text(HEADER + f"{image_id},10,20,30,40,0.5,ILD\nelsewhere,10,20,30,40,0.5,ILD\n")
    found = run(frames, tmp_path, engine="table", table=str(path))
    assert found.is_empty() == warned
    assert ("none of the 6 images of this shard is among the 2 images in boxes.table" in caplog.text) == warned
    assert "elsewhere" not in caplog.text


def test_excluded_classes_only_mark(frames, tmp_path):
    """Within a class; an excluded one makes no box of another go, so suppression across the classes is off here."""
    every = run(frames, tmp_path, excluded_classes=[], lite={"region_iou": 1.0})
    some = run(frames, tmp_path, excluded_classes=["Lung Opacity"], lite={"region_iou": 1.0})
    assert every["is_used"].all()
    assert every.drop("is_used").equals(some.drop("is_used"))
    assert (some["is_used"] == (some["class_name"] != "Lung Opacity")).all()


def overlaps(found: pl.DataFrame) -> np.ndarray:
    """Overlap of every pair of boxes of different classes in one image."""
    pairs = []
    for rows in found.partition_by("image_id"):
        iou = box_iou(*[rows.select("x1", "y1", "x2", "y2").to_numpy()] * 2)
        names = rows["class_name"].to_numpy()
        pairs.append(iou[names[:, None] < names[None]])
    return np.concatenate(pairs)


def test_one_region_one_box(frames, tmp_path):
    one = run(frames, tmp_path, max_boxes=1000).filter("is_used")
    assert overlaps(one).max() <= 0.5
    several = run(frames, tmp_path, max_boxes=1000, lite={"region_iou": 1.0}).filter("is_used")
    assert overlaps(several).max() > 0.5
    # the best box of a picture stays, and nothing is moved
    assert (
        one.group_by("image_id")
        .agg(pl.col("confidence").max())
        .sort("image_id")
        .equals(several.group_by("image_id").agg(pl.col("confidence").max()).sort("image_id"))
    )
    assert one.join(several, on=one.columns, how="anti").is_empty()


# what the lite engine finds


def found_share(images: list[tuple[np.ndarray, np.ndarray]], iou: float, confidence: float) -> tuple[float, float]:
    """Recall and false boxes per image of every class but the excluded ones, over (image, true boxes)."""
    engine = load_engine(options())
    scored = []
    for image, truth in images:
        found = engine.detect(image, "", SAME)
        used = [name not in EXCLUDED for name in found.class_names]
        scored.append((found.boxes[used], found.confidence[used], truth))
    result = score_detections(scored, iou=iou, confidence=confidence)
    return result["recall"], result["false_per_image"]


@pytest.mark.slow
def test_recall_on_phantoms_never_trained_on():
    images = []
    for number in range(24):
        rng = np.random.default_rng([2026, 11, number])
        chest = draw_chest(rng, 512, ap=number % 2 == 1)
        lesion = ("opacity", "consolidation", "pneumonia", "effusion")[number % 4]
        lung = chest.masks[("right lung", "left lung")[number // 4 % 2]]
        image, mask = paint(chest.image, lesion, lung, rng, midline=chest.midline)
        rows, columns = np.nonzero(mask)
        truth = np.array([[columns.min(), rows.min(), columns.max() + 1, rows.max() + 1]], float)
        images.append(((image * 255).astype(np.uint8), truth))
    recall, _ = found_share(images, 0.3, 0.2)
    assert recall >= 0.8
    healthy = [
        ((draw_chest(np.random.default_rng([2026, 12, k]), 512).image * 255).astype(np.uint8), np.zeros((0, 4)))
        for k in range(8)
    ]
    assert found_share(healthy, 0.3, 0.2)[1] <= 3.0


@pytest.mark.skipif(not NIH.is_dir(), reason=f"no shared data at CXR_ILS_SHARED ({NIH.parent.parent})")
def test_boxes_of_real_radiographs():
    """The weights were trained on these images: this tests only the stage; CARD.md has unbiased scores."""
    import json

    rows = pl.read_csv(NIH / "nih.csv").filter(pl.col("rsna_class") == "Lung Opacity").sort("image")[:12]
    images = []
    for row in rows.iter_rows(named=True):
        picture = cv2.imread(str(NIH / "images" / row["image"]), cv2.IMREAD_GRAYSCALE)
        boxes = [[b["x"], b["y"], b["x"] + b["w"], b["y"] + b["h"]] for b in json.loads(row["rsna_boxes"])]
        images.append((cv2.resize(picture, (512, 512), interpolation=cv2.INTER_AREA), np.array(boxes) / 2))
    assert found_share(images, 0.3, 0.2)[0] >= 0.6
    assert found_share(images, 0.3, 0.01)[0] >= 0.8
