"""People's boxes and masks: each published format as a tiny file, with values written out by hand."""

import json
from typing import get_args

import cv2
import numpy as np
import polars as pl
import pytest

import boxes_table
from cxr.annotations.reading import FORMATS, LESIONS, image_name, polygons, read
from cxr.base.errors import UserError
from cxr.base.vocabulary import BOX_CLASSES
from cxr.geometry.rle import encode
from cxr.imaging.boxes import table as engine
from cxr.imaging.boxes.engine import BoxesOptions
from cxr.workflow.settings.agreement import People

MS_CXR = """dicom_id,category_name,label_text,path,x,y,w,h,image_width,image_height,split
aaa-1,Pneumonia,opacity at the base,files/p1/p1/s1/aaa-1.jpg,100,200,50,60,2544,3056,val
aaa-1,Pleural Effusion,blunted,files/p1/p1/s1/aaa-1.jpg,0,10,20,30,2544,3056,val
"""
VINDR = """image_id,class_name,class_id,rad_id,x_min,y_min,x_max,y_max
v1,Lung Opacity,7,R9,10.5,20,30,44
v1,Aortic enlargement,0,R10,1,2,3,4
v2,No finding,14,R8,,,,
"""
VINDR_TEST = """image_id,class_name,x_min,y_min,x_max,y_max
v3,Lung Opacity,10.5,20,30,44
v3,Edema,1,2,3,4
v4,No finding,,,,
"""
NIH = """Image Index,Finding Label,Bbox [x,y,w,h],,,
00000001_000.png,Infiltrate,10.5,20.25,100,200,,,
00000001_001.png,Mass,1,2,3,4,,,
"""
RSNA = """patientId,x,y,width,height,Target
r1,264.0,152.0,213.0,379.0,1
r2,,,,,0
"""
SQUARE = np.zeros((4, 6), bool)
SQUARE[1:3, 2:5] = True
COCO = {
    "categories": [{"id": 3, "name": "edema"}, {"id": 9, "name": "line"}],
    "images": [
        {"id": 1, "file_name": "a/one.png", "height": 4, "width": 6},
        {"id": 2, "file_name": "two.png", "height": 4, "width": 6},
    ],
    "annotations": [
        {"id": 1, "image_id": 1, "category_id": 3, "bbox": [2, 1, 3, 2], "segmentation": encode(SQUARE)},
        {"id": 2, "image_id": 1, "category_id": 9, "segmentation": [[2, 1, 5, 1, 5, 3, 2, 3]]},
        {"id": 3, "image_id": 1, "category_id": 3, "segmentation": {"size": [4, 6], "counts": [24]}},
    ],
}
TEXTS = {"ms_cxr": MS_CXR, "vindr": VINDR, "nih": NIH, "rsna": RSNA, "coco": json.dumps(COCO)}


def written(folder, kind: str, text: str | None = None):
    path = folder / f"{kind}.{'json' if kind == 'coco' else 'csv'}"
    path.write_text(TEXTS[kind] if text is None else text)
    return path


@pytest.mark.parametrize(
    ("kind", "rows", "seen"),
    [
        ("ms_cxr", [("aaa-1", "Pneumonia", (100, 200, 150, 260), "", (3056, 2544)),
                    ("aaa-1", "Pleural Effusion", (0, 10, 20, 40), "", (3056, 2544))], {"aaa-1"}),
        ("vindr", [("v1", "Lung Opacity", (10.5, 20, 30, 44), "R9", None),
                   ("v1", "Aortic enlargement", (1, 2, 3, 4), "R10", None)], {"v1", "v2"}),
        ("nih", [("00000001_000.png", "Infiltrate", (10.5, 20.25, 110.5, 220.25), "", None),
                 ("00000001_001.png", "Mass", (1, 2, 4, 6), "", None)], {"00000001_000.png", "00000001_001.png"}),
        ("rsna", [("r1", "Lung Opacity", (264, 152, 477, 531), "", None)], {"r1", "r2"}),
    ],
)  # fmt: skip
def test_each_format_of_boxes_is_read_as_it_is_published(tmp_path, kind, rows, seen):
    found, looked_at = read("key", written(tmp_path, kind), kind)
    assert [(one.image, one.label, one.box, one.reader, one.size) for one in found] == rows
    assert looked_at == seen
    assert all(one.mask() is None for one in found)


def test_coco_has_boxes_polygons_run_lengths_and_pictures_without_any(tmp_path):
    found, seen = read("key", written(tmp_path, "coco"), "coco")
    assert seen == {"a/one.png", "two.png"}
    assert [one.label for one in found] == ["edema", "line", "edema"]
    assert found[0].box == (2, 1, 5, 3)
    assert [one.box for one in found[1:]] == [None, None]
    assert np.array_equal(found[0].mask(), SQUARE)
    assert np.array_equal(found[1].mask(), SQUARE)  # a polygon on the grid is the square itself
    assert not found[2].mask().any()


def test_the_json_of_ms_cxr_is_the_same_as_its_table(tmp_path):
    held = {
        "categories": [{"id": 1, "name": "Pneumonia"}],
        "images": [{"id": 7, "file_name": "aaa-1.jpg", "width": 2544, "height": 3056, "path": "files/p1"}],
        "annotations": [{"id": 1, "image_id": 7, "category_id": 1, "bbox": [100, 200, 50, 60], "label_text": "x"}],
    }
    path = tmp_path / "MS_CXR.json"
    path.write_text(json.dumps(held))
    (one,), _ = read("key", path, "ms_cxr")
    (other, _), _ = read("key", written(tmp_path, "ms_cxr"), "ms_cxr")
    assert (one.label, one.box, one.size) == (other.label, other.box, other.size)
    assert image_name("{stem}", one.image) == image_name("{stem}", other.image) == "aaa-1"


def test_a_polygon_holds_the_pixels_whose_centres_lie_inside():
    triangle = [[0.0, 0.0, 8.0, 0.0, 0.0, 8.0]]
    expected = np.array([[x + 0.5 + y + 0.5 < 8 for x in range(8)] for y in range(8)])
    assert np.array_equal(polygons(triangle, (8, 8)), expected)
    rng = np.random.default_rng(4)
    points = rng.uniform(-3, 23, (7, 2))

    def inside(x: float, y: float) -> bool:
        """Count the edges that a ray to the right crosses."""
        crossed = False
        for (x1, y1), (x2, y2) in zip(points, np.roll(points, -1, axis=0), strict=True):
            if (y1 > y) != (y2 > y) and x < (x2 - x1) * (y - y1) / (y2 - y1) + x1:
                crossed = not crossed
        return crossed

    oracle = np.array([[inside(x + 0.5, y + 0.5) for x in range(20)] for y in range(20)])
    assert oracle.any()
    assert np.array_equal(polygons([points.ravel().tolist()], (20, 20)), oracle)


@pytest.mark.parametrize(
    ("name", "stem"),
    [("0001_000.png", "0001_000"), ("files/p1/a.b.JPG", "a.b"), ("1.2.840.113", "1.2.840.113"), ("x.dicom", "x")],
)  # fmt: skip
def test_names_of_pictures_lose_folder_and_ending_alone(name, stem):
    assert image_name("nih-{stem}", name) == f"nih-{stem}"
    assert image_name("{name}", name) == name.rpartition("/")[2]


def test_the_official_test_file_of_vindr_has_no_readers(tmp_path):
    found, looked_at = read("key", written(tmp_path, "vindr", VINDR_TEST), "vindr")
    assert [(one.image, one.label, one.box, one.reader) for one in found] == [
        ("v3", "Lung Opacity", (10.5, 20, 30, 44), ""),
        ("v3", "Edema", (1, 2, 3, 4), ""),
    ]
    assert looked_at == {"v3", "v4"}
    assert [LESIONS["vindr"][one.label] for one in found] == ["opacity", "edema"]


def test_every_lesion_type_of_a_format_is_one_of_ours():
    assert set(LESIONS) == set(FORMATS) == set(get_args(People.model_fields["format"].annotation))
    assert LESIONS["ms_cxr"].keys() >= {"Lung Opacity", "Edema"}
    assert LESIONS["nih"]["Infiltrate"] == LESIONS["vindr"]["Infiltration"] == "opacity"


@pytest.mark.parametrize(
    ("kind", "text", "sentence"),
    [
        ("vindr", "image_id,class_name\n", "key {!r} lacks the column 'x_min' of a file of the format vindr: check"
         " it"),
        ("coco", "{}", "key is {!r}, which is no whole COCO JSON (KeyError: 'categories'): check it"),
        ("coco", "x,y\n", "key is {!r}, which is no whole COCO JSON (JSONDecodeError: Expecting value: line 1 column 1"
         " (char 0)): check it"),
        ("nih", "", "key: {} has no rows: put a header and at least one row into it"),
        ("rsna", "patientId,x,y,width,height,Target\na,1,2,3,4\n", "key: {}, line 2 has 5 cells, the header 6: put a"
         " cell that holds the delimiter into quotation marks (\"…\")"),
        ("rsna", 'patientId,x,y,width,height,Target\na,1,2,3,4,"1\nb,1,2,3,4,1"\n', "key: {}, line 2: a quotation mark"
         ' (") opens a cell of this row that goes on over the rows below it: take it out, or write it twice inside a'
         " cell in quotation marks"),
    ],
)  # fmt: skip
def test_another_file_is_one_sentence(tmp_path, kind, text, sentence):
    path = written(tmp_path, kind, text)
    with pytest.raises(UserError) as error:
        read("key", path, kind)
    assert str(error.value) == sentence.format(str(path))


BOXES = {
    "ms_cxr": [("aaa-1", (0, 10, 20, 40), "Pleural effusion"), ("aaa-1", (100, 200, 150, 260), "Infiltration")],
    "vindr": [("v1", (1, 2, 3, 4), "Aortic enlargement"), ("v1", (10.5, 20, 30, 44), "Lung Opacity")],
    "nih": [("00000001_000", (10.5, 20.25, 110.5, 220.25), "Infiltration"),
            ("00000001_001", (1, 2, 4, 6), "Nodule/Mass")],
    "rsna": [("r1", (264, 152, 477, 531), "Lung Opacity")],
    "coco": [("one", (2, 1, 5, 3), "ILD")],
}  # fmt: skip


@pytest.mark.parametrize("kind", BOXES)
def test_peoples_boxes_become_a_table_that_the_engine_reads(tmp_path, kind, capsys):
    output = tmp_path / "boxes.csv"
    assert boxes_table.main([kind, str(written(tmp_path, kind)), str(output)]) == 0
    rows = pl.read_csv(output, schema_overrides={"image_id": pl.String}).rows()
    assert [(row[0], row[1:5], row[6]) for row in rows] == BOXES[kind]
    assert {row[5] for row in rows} == {1.0}
    options = BoxesOptions("table", str(output), "original", 0.001, 0.5, 100, [])
    loaded = engine.load(options)
    name, box, _ = BOXES[kind][0]
    affine = np.array([[2.0, 0, 0], [0, 2.0, 0]])
    boxes = loaded.detect(np.zeros((512, 512), np.uint8), name, affine).boxes
    assert tuple(x / 2 for x in box) in {tuple(row) for row in boxes.tolist()}
    out = capsys.readouterr().out
    if kind == "coco":
        assert out.splitlines()[1:] == ["left out: 1, no box", "left out: 1, no class for line"]


def test_the_layout_of_a_release_has_each_mask_once(tmp_path):
    (tmp_path / "lesion_mask/s1").mkdir(parents=True)
    cv2.imwrite(str(tmp_path / "lesion_mask/s1/s1_edema_0.png"), SQUARE.astype(np.uint8) * 255)
    pair = {"target": "edema", "seg_mask_path": "s1/s1_edema_0.png"}
    entry = {
        "dicom_id": "d1",
        "instruction_answer_pairs": {"positive": [pair, pair], "negative": [{"target": "edema"}]},
    }
    (tmp_path / "mimic_ils_instruction_answer.json").write_text(json.dumps({"train": {"s1": entry}, "val": {}}))
    (one,), seen = read("key", tmp_path, "release")
    assert (one.image, one.label, one.box, seen) == ("d1", "edema", None, {"d1"})
    assert np.array_equal(one.mask(), SQUARE)
    (tmp_path / "lesion_mask/s1/s1_edema_0.png").write_text("")
    with pytest.raises(ValueError, match=r"s1_edema_0\.png cannot be read"):
        one.mask()
    (tmp_path / "mimic_ils_instruction_answer.json").write_text("[]")
    with pytest.raises(UserError, match=r"which holds no whole mimic_ils_instruction_answer\.json"):
        read("key", tmp_path, "release")


def test_a_label_can_be_given_a_class(tmp_path, capsys):
    output = tmp_path / "boxes.csv"
    path = str(written(tmp_path, "coco"))
    assert boxes_table.main(["coco", path, str(output), "--class", "line=Pulmonary fibrosis"]) == 0
    assert pl.read_csv(output)["class_name"].to_list() == ["ILD", "Pulmonary fibrosis"]
    capsys.readouterr()
    assert boxes_table.main(["coco", path, str(output), "--class", "line=Fibrosis"]) == 1
    expected = f"cxr-ils: --class line=Fibrosis: 'Fibrosis' is no class, choose one of {', '.join(BOX_CLASSES)}\n"
    assert capsys.readouterr().err == expected
