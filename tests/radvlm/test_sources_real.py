"""Real public tables: frozen counts of the readers, the fusion, and people against people; regions on real X-rays."""

import csv
import json
from collections import Counter

import cv2
import numpy as np
import polars as pl
import pytest

from cxr.annotations import padchest_gr
from cxr.geometry.affine import fit_affine, to_frame
from cxr.geometry.boxes import CORNERS, bounding_box, box_iou
from cxr.geometry.fusion import fuse_boxes, fuse_groups, fusion_order
from cxr.imaging.organs.engine import load_engine
from cxr.metrics.answer_boxes import score_answer
from cxr.radvlm.sources.read_own import region_boxes
from organs_runs import OPTIONS
from plain_fusion import in_fusing_order, plain_fusion
from radvlm_trees import found, options, picture, write_csv
from xrv_wheel import xrv_file

VINDR = "vinbigdata-train.csv.gz"


# ---- CheXpert, PadChest ---------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def chexpert(tmp_path_factory):
    folder = tmp_path_factory.mktemp("chexpert")
    xrv_file("chexpert_train.csv.gz", folder / "train.csv.gz")
    return folder


@pytest.mark.slow
@pytest.mark.parametrize(("uncertain", "nothing"), [("absent", 17_319), ("present", 12_234)])
def test_chexpert_s_real_table(chexpert, uncertain, nothing):
    images, facts, held = found(options("chexpert", chexpert, uncertain=uncertain))
    assert held.counts["table rows"] == 223_414
    assert images.height == 191_027
    assert images["subject_id"].n_unique() == 64_534
    assert Counter(row["reason"] for row in held.excluded) == {"not_frontal": 223_414 - 191_027}
    labels = facts.filter(pl.col("name") != "No Finding")
    present = labels.filter(pl.col("value") == "present")["image_id"].n_unique()
    assert images.height - present == nothing
    assert labels.filter(pl.col("stated") == "uncertain")["image_id"].n_unique() == 72_741
    stated = facts.filter(pl.col("name") == "No Finding", pl.col("stated") == "present")
    assert stated.height == 16_974
    devices = labels.filter(pl.col("name") == "Support Devices", pl.col("stated") == "present")
    assert stated.join(devices, on="image_id", how="semi").height == 7_421
    others = labels.filter(pl.col("name") != "Support Devices", pl.col("stated") == "present")
    assert stated.join(others, on="image_id", how="semi").height == 0
    assert facts["fact_id"].n_unique() == facts.height


@pytest.mark.slow
def test_padchest_s_real_table(tmp_path):
    path = xrv_file(f"{padchest_gr.TABLE}.gz", tmp_path / f"{padchest_gr.TABLE}.gz")
    table = padchest_gr.read_images("the table", path)
    assert table.height == 160_861
    assert table["subject_id"].n_unique() == 67_625
    kinds = dict(table["projection"].value_counts().iter_rows())
    assert kinds == {
        "PA": 91_728,
        "AP": 4_559,
        "AP_horizontal": 14_346,
        "L": 49_579,
        "COSTAL": 630,
        "EXCLUDE": 11,
        "UNK": 8,
    }
    assert kinds["PA"] + kinds["AP"] == 96_287
    assert table["view"].drop_nulls().len() == 110_633
    assert table["sex"].null_count() == 22


# ---- VinBigData -----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def vindr(tmp_path_factory) -> dict[str, np.ndarray]:
    """The boxes of the real table in the order in which they are fused: group, name, reader, corners."""
    return in_fusing_order(xrv_file(VINDR, tmp_path_factory.mktemp("v") / "train.csv.gz"))


def test_the_real_table_and_its_fusion(vindr):
    assert (len(vindr["boxes"]), vindr["group"].max() + 1, vindr["images"], vindr["seen"]) == (
        36_096,
        15_365,
        4_394,
        15_000,
    )
    counts = {limit: len(fuse_groups(vindr["boxes"], vindr["group"], limit).boxes) for limit in (0.1, 0.3, 0.5)}
    assert counts == {0.1: 20_726, 0.3: 21_820, 0.5: 23_961}


def test_the_fusion_of_all_groups_is_that_of_each_by_loops(vindr):
    starts = np.flatnonzero(np.diff(vindr["group"], prepend=-1))
    parts = [part.tolist() for part in np.split(vindr["boxes"], starts[1:])]
    slow = [plain_fusion(part, 0.1) for part in parts]
    found_ = fuse_groups(vindr["boxes"], vindr["group"], 0.1)
    np.testing.assert_allclose(found_.boxes, np.concatenate([np.array(part) for part in slow]), atol=1e-9)


def test_people_against_people(vindr, capsys):
    """Each reader's boxes of a finding against the fusion of the others', where two or more boxed it."""
    answers, others, groups, labels = [], [], [], []
    starts = np.flatnonzero(np.diff(vindr["group"], prepend=-1))
    for start, end in zip(starts, np.append(starts[1:], len(vindr["group"])), strict=True):
        readers = vindr["reader"][start:end]
        names = np.unique(readers)
        for reader in names if len(names) > 1 else ():
            own = readers == reader
            groups.append(np.full((~own).sum(), len(answers)))
            answers.append(vindr["boxes"][start:end][own])
            others.append(vindr["boxes"][start:end][~own])
            labels.append(vindr["name"][start])
    group = np.concatenate(groups)
    found_ = fuse_groups(np.concatenate(others), group, 0.1)
    of = np.empty(len(found_.boxes), np.int64)
    of[found_.member_of] = group
    references = np.split(found_.boxes, np.searchsorted(of, np.arange(1, len(answers))))
    values = np.array([score_answer(*pair).precision for pair in zip(answers, references, strict=True)])
    assert len(values) == 22_916
    assert f"{values.mean():.4f}" == "0.7312"
    label = np.array(labels)
    each = {str(name): float(values[label == name].mean()) for name in np.unique(label)}
    assert f"{np.mean(list(each.values())):.4f}" == "0.6356"
    assert (round(each["Cardiomegaly"], 3), round(each["Pleural thickening"], 3)) == (0.975, 0.358)


@pytest.mark.slow
def test_the_reader_fuses_the_real_table_as_it_stands(tmp_path, vindr):
    """Of 60 images with boxes, with pictures as large as their boxes reach: every row is a fact or left out."""
    table = pl.read_csv(xrv_file(VINDR, tmp_path / "all.csv.gz"), infer_schema=False)
    assert table.height == 67_914
    some = sorted(set(table.drop_nulls("x_min")["image_id"]))[:60]
    part = table.filter(pl.col("image_id").is_in(some))
    write_csv(tmp_path / "v/train.csv", part.columns, part.fill_null("").rows())
    for image in some:
        picture(tmp_path / f"v/{image}.png", (3200, 3200))
    images, facts, held = found(options("vindr", tmp_path / "v"))
    assert images.height == 60
    readers = facts.filter(pl.col("reader").is_not_null())
    assert readers.height == held.counts["table rows"] == part.drop_nulls("x_min").height
    fused = facts.filter(pl.col("reader").is_null())
    expected = 0
    for _, rows in part.drop_nulls("x_min").group_by("image_id", "class_name"):
        boxes = rows.sort("rad_id", *(pl.col(name).cast(pl.Float64) for name in ("x_min", "y_min", "x_max", "y_max")))
        corners = boxes.select("x_min", "y_min", "x_max", "y_max").cast(pl.Float64).to_numpy()
        expected += len(fuse_boxes(corners, np.ones(len(corners)), 0.1).boxes)
    assert fused.height == expected
    inside = fused.select(*CORNERS).to_numpy()
    assert (inside >= 0).all()
    assert (inside <= 3200).all()


# ---- NIH and RSNA ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["nih", "rsna"])
def test_every_picture_and_box_of_real_x_rays_is_accounted_for(shared, tmp_path, kind):
    """The boxes of `data/nih`, by NIH and by RSNA on the same pictures, each written in its own layout."""
    if not (shared / "data/nih/nih.csv").is_file():
        pytest.skip("no data/nih")
    with open(shared / "data/nih/nih.csv", encoding="utf-8", newline="") as file:
        told = list(csv.DictReader(file))
    boxes = [(row["image"], json.loads(row[f"{kind}_boxes"] or "[]")) for row in told]
    each = [(image, box["label"], *(box[side] for side in "xywh")) for image, of in boxes for box in of]
    assert len(each) >= 15
    if kind == "nih":
        header = ("Image Index", "Finding Label", "Bbox [x", "y", "w", "h]")
        write_csv(tmp_path / "boxes.csv", header, each)
    else:
        header = ("patientId", "x", "y", "width", "height", "Target")
        write_csv(tmp_path / "boxes.csv", header, [(image, *box, 1) for image, _, *box in each])
    keys = {"pictures": str(shared / "data/nih/images"), "subject": r"^(\d+)_"}
    images, facts, held = found(options(kind, tmp_path / "boxes.csv", source=keys))
    assert images.height == len({image for image, *_ in each})
    assert facts.height + len(held.excluded) == held.counts["table rows"] == len(each)
    assert held.excluded == []
    drawn = sorted((image.removesuffix(".png"), x, y, x + width, y + height) for image, _, x, y, width, height in each)
    kept = facts.select("image_id", *CORNERS).rows()
    assert sorted(kept) == [(image, *map(pytest.approx, box)) for image, *box in drawn]


# ---- regions --------------------------------------------------------------------------------------------------------


def framed(image: np.ndarray, nearest: bool = False) -> np.ndarray:
    return to_frame(image, fit_affine(image.shape, 512, "pad"), 512, nearest=nearest)


def lung_boxes(engine, image: np.ndarray) -> dict[str, tuple]:
    """Return the regions of an X-ray by the shipped net."""
    masks = engine.segment(image, "i", fit_affine((512, 512), 512, "pad"), (512, 512))
    organs = dict(zip(engine.labels, masks, strict=True))
    return region_boxes(organs, {"heart": organs["heart"]})


def test_regions_on_radiologists_masks(shared, capsys):
    """The net learnt from these 18 masks, so this proves the geometry; the next test has X-rays that it never saw."""
    folder = shared / "data/covid"
    if not folder.is_dir():
        pytest.skip("no data/covid")
    engine, images = load_engine("lite", OPTIONS), {path.stem: path for path in (folder / "images").iterdir()}
    files = {"right lung": "lung_right", "left lung": "lung_left", "cardiac silhouette": "cardiomediastinum"}
    ious, precision = {name: [] for name in files}, []
    for path in sorted((folder / "masks").glob("*__cardiomediastinum.png")):
        stem = path.name.split("__")[0]
        boxes = lung_boxes(engine, framed(cv2.imread(str(images[stem]), cv2.IMREAD_GRAYSCALE)))
        for name, file in files.items():
            mask = cv2.imread(str(folder / f"masks/{stem}__{file}.png"), cv2.IMREAD_GRAYSCALE)
            truth = np.array([bounding_box(framed(mask, nearest=True) > 127)], np.float64)
            ious[name].append(box_iou(np.array([boxes[name]]), truth)[0, 0])
            if "lung" in name:
                precision.append(score_answer(np.array([boxes[name]]), truth).precision)
    assert len(precision) == 36
    means = {name: float(np.mean(values)) for name, values in ious.items()}
    with capsys.disabled():
        print(f"\nregions on 18 X-rays: {means}, mAP50 of lungs {np.mean(precision):.3f}")
    assert means["right lung"] >= 0.80
    assert means["left lung"] >= 0.80
    assert np.mean(precision) >= 0.95


def test_lungs_on_x_rays_that_the_net_never_saw(shared, capsys):
    folder = shared / "data/covid_more"
    if not folder.is_dir():
        pytest.skip("no data/covid_more")
    engine, ious = load_engine("lite", OPTIONS), []
    table = pl.read_csv(folder / "covid_more.csv", infer_schema=False).drop_nulls("lungs")
    for image, lungs in table.filter(pl.col("lungs") != "").select("image", "lungs").iter_rows():
        boxes = lung_boxes(engine, framed(cv2.imread(str(folder / "images" / image), cv2.IMREAD_GRAYSCALE)))
        both = np.array([boxes["right lung"], boxes["left lung"]])
        found_ = np.concatenate([both[:, :2].min(axis=0), both[:, 2:].max(axis=0)])
        mask = framed(cv2.imread(str(folder / lungs), cv2.IMREAD_GRAYSCALE), nearest=True) > 127
        ious.append(box_iou(found_[None], np.array([bounding_box(mask)], np.float64))[0, 0])
    assert len(ious) == 30
    with capsys.disabled():
        print(f"\nboth lungs on 30 other X-rays: mean {np.mean(ious):.3f}, least {np.min(ious):.3f}")
    assert np.mean(ious) >= 0.80


# ---- fusion and AP by hand ------------------------------------------------------------------------------------------


def test_fusion_of_groups_is_fusion_of_each():
    random = np.random.default_rng(7)
    for _ in range(30):
        count = int(random.integers(0, 40))
        low = random.integers(0, 12, (count, 2))
        boxes = np.concatenate([low, low + random.integers(0, 6, (count, 2))], axis=1).astype(np.float64)
        group = random.integers(0, 6, count)
        together = fuse_groups(boxes, group, 0.3)
        alone = [fuse_boxes(boxes[group == one], np.ones((group == one).sum()), 0.3) for one in np.unique(group)]
        np.testing.assert_allclose(together.boxes, np.concatenate([part.boxes for part in alone] or [np.zeros((0, 4))]))
        for one, part in zip(np.unique(group), alone, strict=True):
            own = together.member_of[group == one]
            first = own[own >= 0].min(initial=10**6)
            assert np.where(own >= 0, own - first, -1).tolist() == part.member_of.tolist()


def test_fusion_s_properties():
    random = np.random.default_rng(3)
    boxes = random.uniform(0, 60, (200, 4))
    boxes[:, 2:] = boxes[:, :2] + random.uniform(5, 40, (200, 2))
    group, reader = random.integers(0, 25, 200), random.integers(0, 3, 200).astype(str)
    order = fusion_order(boxes, group, reader)
    found_ = fuse_groups(boxes[order], group[order], 0.1)
    turned = random.permutation(200)
    again = fusion_order(boxes[turned], group[turned], reader[turned])
    np.testing.assert_array_equal(fuse_groups(boxes[turned][again], group[turned][again], 0.1).boxes, found_.boxes)
    scale = np.array([3.0, 0.5, 3.0, 0.5])
    np.testing.assert_allclose(fuse_groups(boxes[order] * scale, group[order], 0.1).boxes, found_.boxes * scale)
    for place, box in enumerate(found_.boxes):
        own = boxes[order][found_.member_of == place]
        assert (box >= own.min(axis=0) - 1e-9).all()
        assert (box <= own.max(axis=0) + 1e-9).all()
    one = fuse_groups(np.array([[1.0, 2, 3, 4]]), np.array([5]), 0.1)
    assert one.boxes.tolist() == [[1, 2, 3, 4]]
    assert fuse_groups(np.zeros((0, 4)), np.zeros(0, int), 0.1).boxes.shape == (0, 4)


A, B, FAR, HALF = [0, 0, 10, 10], [20, 0, 30, 10], [50, 50, 60, 60], [0, 0, 10, 5]
CASES = {
    "none": ([], [A], 0.0),
    "right": ([A], [A], 1.0),
    "wrong": ([FAR], [A], 0.0),
    "one of two": ([A], [A, B], 0.5),
    "both": ([A, B], [A, B], 1.0),
    "the right one second": ([FAR, A], [A], 0.5),
    "the right one first": ([A, FAR], [A], 1.0),
    "twice": ([A, A], [A], 1.0),
    "twice, then the other": ([A, A, B], [A, B], 0.5 + 0.5 * 2 / 3),
    "exactly half": ([HALF], [A], 1.0),
}  # fmt: skip


@pytest.mark.parametrize(("answer", "reference", "value"), CASES.values(), ids=CASES)
def test_ap_of_written_boxes_by_hand(answer, reference, value):
    found_ = score_answer(np.array(answer, np.float64).reshape(-1, 4), np.array(reference, np.float64)).precision
    assert found_ == pytest.approx(value)


def test_ap_of_written_boxes_needs_a_reference():
    with pytest.raises(ValueError, match="no reference"):
        score_answer(np.zeros((1, 4)), np.zeros((0, 4)))
    assert score_answer(np.zeros((0, 4)), np.array([A], float)).precision == 0


def test_a_box_takes_the_reference_that_it_overlaps_most_even_if_that_is_taken():
    """Unlike COCO's matching: the second box does not fall back to a reference that it overlaps less."""
    near = np.array([[0.0, 0, 10, 10], [0, 0, 10, 9]])
    reference = np.array([[0.0, 0, 10, 10], [0, 0, 10, 6]])
    assert box_iou(near, reference)[1].tolist() == pytest.approx([0.9, 2 / 3])
    assert score_answer(near, reference).precision == 0.5
