"""COCO JSON as programs write it. The truth is a square of 200 pixels, set by hand."""

import codecs
import json
from pathlib import Path

import numpy as np
import pytest

from cxr.annotations.box_table import region_box
from cxr.annotations.regions import UNLISTED, image_name, read_annotations
from cxr.base.errors import UserError
from cxr.geometry.affine import fit_affine
from cxr.geometry.rle import encode_rle
from cxr.reporting.agreement.references import load_reference, region_in_frame
from cxr.semisyn.references import Reference, read_reference

SQUARE = np.zeros((1000, 800), bool)
SQUARE[200:400, 100:300] = True
CORNERS = [(100, 200), (300, 200), (300, 400), (100, 400)]
BOX = [100, 200, 200, 200]
IMAGE = {"id": 1, "file_name": "a.png", "height": 1000, "width": 800}


def written(folder: Path, *annotations: dict, images: list[dict] | None = None, data: dict | None = None) -> Path:
    """Write a file; each annotation is of image 1 and category 1, unless it says otherwise."""
    entries = [{"id": n, "image_id": 1, "category_id": 1} | entry for n, entry in enumerate(annotations, 1)]
    content = {"images": images or [IMAGE], "categories": [{"id": 1, "name": "consolidation"}], "annotations": entries}
    path = folder / "coco.json"
    path.write_text(json.dumps(content | (data or {})), encoding="utf-8")
    return path


def region(folder: Path, **annotation: object) -> tuple:
    """Return what becomes of one annotation in the frame: (region or None, reason)."""
    (annotation,) = read_annotations("key", written(folder, annotation), "coco").regions
    return region_in_frame(annotation, "consolidation", fit_affine((1000, 800), 512, "pad"), (1000, 800), 512)


DRAWN = {
    "flat": [[part for point in CORNERS for part in point]],
    "objects": [[{"x": x, "y": y} for x, y in CORNERS]],
    "pairs": [[list(point) for point in CORNERS]],
    "one polygon of pairs": [list(point) for point in CORNERS],
    "one polygon of objects": [{"x": x, "y": y} for x, y in CORNERS],
    "one flat polygon": [part for point in CORNERS for part in point],
    "two polygons": [[100, 200, 300, 200, 300, 300, 100, 300], [100, 300, 300, 300, 300, 400, 100, 400]],
    "a polygon and a line": [[part for point in CORNERS for part in point], [5, 5, 9, 9]],
    "run lengths": encode_rle(SQUARE),
    "run lengths in a list": [encode_rle(SQUARE)],
}


@pytest.mark.parametrize("name", DRAWN)
def test_an_outline_is_read_to_the_pixel_however_it_is_written(tmp_path, name):
    (annotation,) = read_annotations("key", written(tmp_path, {"segmentation": DRAWN[name]}), "coco").regions
    np.testing.assert_array_equal(annotation.mask(), SQUARE)


@pytest.mark.parametrize(
    "outline", [[[100, 200, 300, 400]], [[{"x": 1, "y": 2}]], [], [[]], None, [[100, 200], [300, 400]]]
)
def test_an_outline_of_fewer_than_three_points_leaves_the_box(tmp_path, outline):
    region_in_frame, reason = region(tmp_path, segmentation=outline, bbox=BOX)
    assert reason == ""
    np.testing.assert_allclose(region_in_frame.boxes, [[102.4, 102.4, 204.8, 204.8]])
    assert region_in_frame.mask.sum() == pytest.approx(102.4**2, rel=0.03)
    assert region(tmp_path, segmentation=outline) == (None, "no_area")


BROKEN = [
    [[1, 2, 3, 4, 5, "x"]], [[1, 2, 3, 4, 5, 6, 7]], [[1, 2, 3, 4, 5, None]], [[{"x": 1}, {"x": 2}, {"y": 3}, {}]],
    {"size": [4, 4], "counts": [3]}, {"counts": "?"}, "polygon", 7, [encode_rle(SQUARE)] * 2,
]  # fmt: skip


@pytest.mark.parametrize("outline", BROKEN)
def test_an_outline_that_cannot_be_read_is_a_broken_mask(tmp_path, outline):
    assert region(tmp_path, segmentation=outline) == (None, "broken_mask")
    (annotation,) = read_annotations("key", written(tmp_path, {"segmentation": outline}), "coco").regions
    assert region_box(annotation) is None


@pytest.mark.parametrize(
    "box", [BOX, [str(side) for side in BOX], dict(zip(("x", "y", "width", "height"), BOX, strict=True))]
)
def test_a_box_is_read_however_it_is_written(tmp_path, box):
    (annotation,) = read_annotations("key", written(tmp_path, {"bbox": box}), "coco").regions
    assert annotation.box == (100, 200, 300, 400)


@pytest.mark.parametrize("box", [None, [], [1, 2, 3], [1, 2, 3, "wide"], {"x": 1}, "1 2 3 4", 5])
def test_what_is_no_box_is_a_region_without_area(tmp_path, box):
    assert region(tmp_path, bbox=box) == (None, "no_area")


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-16-le-bom", "utf-8"])
def test_a_file_may_begin_with_its_byte_order(tmp_path, encoding):
    path = written(tmp_path, {"bbox": BOX})
    text = path.read_text()
    mark = codecs.BOM_UTF16_LE if encoding.endswith("bom") else b""
    path.write_bytes(mark + text.encode(encoding.removesuffix("-bom")))
    assert read_annotations("key", path, "coco").regions[0].box == (100, 200, 300, 400)


@pytest.mark.parametrize(("listed", "used"), [(1, "1"), ("1", 1), (1, 1.0), ("a\u200b", "a"), (1, 1)])
def test_ids_are_numbers_or_texts(tmp_path, listed, used):
    path = written(tmp_path, {"image_id": used, "bbox": BOX}, images=[IMAGE | {"id": listed}])
    assert [entry.image for entry in read_annotations("key", path, "coco").regions] == ["a.png"]


def test_two_images_of_one_id_are_refused(tmp_path):
    path = written(tmp_path, {"bbox": BOX}, images=[IMAGE, IMAGE | {"id": "1", "file_name": "b.png"}])
    with pytest.raises(UserError, match="two images or two categories have the same id"):
        read_annotations("key", path, "coco")


def test_an_annotation_of_an_unlisted_image_or_category_is_counted(tmp_path, caplog):
    path = written(
        tmp_path, {"bbox": BOX}, {"image_id": 9, "bbox": BOX}, {"category_id": 7, "bbox": BOX}, {"image_id": None}
    )
    regions, images = read_annotations("agreement.references.mine.path", path, "coco")
    assert [(region.image, region.label) for region in regions] == [
        ("a.png", "consolidation"), (UNLISTED, "consolidation"), ("a.png", ""), (UNLISTED, "consolidation"),
    ]  # fmt: skip
    assert images == {"a.png"}
    assert (
        "agreement.references.mine.path: 3 annotations name an image or a category that coco.json does not"
        in caplog.text
    )
    agreement_reference = load_reference("key", "coco", path, {}, "{stem}")
    assert len(agreement_reference.regions["a"]) == 1
    assert sorted(agreement_reference.exclusions) == [
        ("", "not_listed", "consolidation"), ("", "not_listed", "consolidation"), ("a", "class_not_mapped", ""),
    ]  # fmt: skip
    reference = read_reference(
        Reference("mine", "coco", str(path), "{stem}", "test", {"consolidation": "consolidation"}), ["consolidation"]
    )
    assert reference.boxes.height == 1
    assert reference.excluded == {"image not listed": 2, "no finding for ": 1}


def test_a_reference_of_healthy_images_alone_counts_false_boxes(tmp_path):
    path = written(tmp_path, images=[IMAGE, IMAGE | {"id": 2, "file_name": "b.png"}])
    reference = load_reference("key", "coco", path, {}, "{stem}")
    assert reference.regions == {"a": [], "b": []}
    assert "consolidation" in reference.lesions
    with pytest.raises(UserError, match="has no label that is a lesion type"):
        load_reference("key", "coco", written(tmp_path, data={"images": []}), {}, "{stem}")


@pytest.mark.parametrize("name", ["images\\a.png", "images/a.png", "a\u200b.png", ".\\x\\a.png"])
def test_names_of_images_have_folders_of_any_system(name):
    assert image_name("{stem}", name) == "a"
