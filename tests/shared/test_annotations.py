"""Human boxes and masks: each published format as a tiny file, with expected values written by hand."""

import csv
import importlib
import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import get_args

import cv2
import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import boxes_table
from annotation_files import HOLDS, write_annotations
from cxr.annotations import chexmask, formats
from cxr.annotations.formats import FOLDERS, FORMATS
from cxr.annotations.regions import (
    Annotation,
    Annotations,
    image_name,
    lesion_by_label,
    polygon_mask,
    read_annotations,
)
from cxr.base.errors import UserError
from cxr.base.vocabulary import BOX_CLASSES, LESIONS
from cxr.geometry.rle import encode_rle
from cxr.imaging.boxes import table as engine
from cxr.imaging.boxes.settings import BoxesSettings
from cxr.reporting.agreement.settings import ReferenceSettings

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
        {"id": 1, "image_id": 1, "category_id": 3, "bbox": [2, 1, 3, 2], "segmentation": encode_rle(SQUARE)},
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
    found, looked_at = read_annotations("key", written(tmp_path, kind), kind)
    assert [(one.image, one.label, one.box, one.reader, one.size) for one in found] == rows
    assert looked_at == seen
    assert all(one.mask() is None for one in found)


def test_coco_has_boxes_polygons_run_lengths_and_pictures_without_any(tmp_path):
    found, seen = read_annotations("key", written(tmp_path, "coco"), "coco")
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
    (one,), _ = read_annotations("key", path, "ms_cxr")
    (other, _), _ = read_annotations("key", written(tmp_path, "ms_cxr"), "ms_cxr")
    assert (one.label, one.box, one.size) == (other.label, other.box, other.size)
    assert image_name("{stem}", one.image) == image_name("{stem}", other.image) == "aaa-1"


def test_a_polygon_holds_the_pixels_whose_centres_lie_inside():
    triangle = [[0.0, 0.0, 8.0, 0.0, 0.0, 8.0]]
    expected = np.array([[x + 0.5 + y + 0.5 < 8 for x in range(8)] for y in range(8)])
    assert np.array_equal(polygon_mask(triangle, (8, 8)), expected)
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
    assert np.array_equal(polygon_mask([points.ravel().tolist()], (20, 20)), oracle)


@pytest.mark.parametrize(
    ("name", "stem"),
    [("0001_000.png", "0001_000"), ("files/p1/a.b.JPG", "a.b"), ("1.2.840.113", "1.2.840.113"), ("x.dicom", "x")],
)  # fmt: skip
def test_names_of_pictures_lose_folder_and_ending_alone(name, stem):
    assert image_name("nih-{stem}", name) == f"nih-{stem}"
    assert image_name("{name}", name) == name.rpartition("/")[2]


def test_the_official_test_file_of_vindr_has_no_readers(tmp_path):
    found, looked_at = read_annotations("key", written(tmp_path, "vindr", VINDR_TEST), "vindr")
    assert [(one.image, one.label, one.box, one.reader) for one in found] == [
        ("v3", "Lung Opacity", (10.5, 20, 30, 44), ""),
        ("v3", "Edema", (1, 2, 3, 4), ""),
    ]
    assert looked_at == {"v3", "v4"}
    assert [lesion_by_label("vindr")[one.label] for one in found] == ["opacity", "edema"]


def test_every_lesion_type_of_a_format_is_one_of_ours():
    assert set(FORMATS) == set(get_args(ReferenceSettings.declared()["format"][0])) >= {"ms_cxr", "vindr", "mimic_ils"}
    for kind in FORMATS:
        assert set(lesion_by_label(kind).values()) <= set(LESIONS), kind
    assert lesion_by_label("ms_cxr").keys() >= {"Lung Opacity", "Edema"}
    assert lesion_by_label("nih")["Infiltrate"] == lesion_by_label("vindr")["Infiltration"] == "opacity"


def test_a_format_is_one_file(tmp_path, monkeypatch):
    """A module with WHAT is found by its name without being imported, also in another folder."""
    shutil.copytree(Path(formats.__file__).parent, tmp_path / "annotations", ignore=shutil.ignore_patterns("__py*"))
    (tmp_path / "annotations/mine.py").write_text('"""Mine."""\n\nWHAT = "a file of mine"\nFOLDER = True\n1 / 0\n')
    monkeypatch.syspath_prepend(tmp_path)
    found = importlib.import_module("annotations.formats")
    assert set(found.FORMATS) == {*FORMATS, "mine"}
    assert set(found.FOLDERS) == {*FOLDERS, "mine"} == {"imagenome", "mimic_ils", "padchest_gr", "mine"}
    assert "; mine: a file of mine; " in found.describe_formats()


@pytest.mark.parametrize(
    ("kind", "text", "sentence"),
    [
        ("vindr", "image_id,class_name\n", "key: {} lacks the columns x_min, y_min, x_max, y_max: give a file"
         " of the format vindr"),
        ("coco", "{}", "key is {!r}, which is not a complete COCO JSON (KeyError: 'categories'): check the file"),
        ("coco", "x,y\n", "key is {!r}, which is not a complete COCO JSON (JSONDecodeError: Expecting value: line 1"
         " column 1 (char 0)): check the file"),
        ("nih", "", "key: {} has no rows: put a header and at least one row into it"),
        ("rsna", "patientId,x,y,width,height,Target\na,1,2,3,4\n", "key: {}, line 2 has 5 cells, the header has 6: put"
         " a cell that holds the delimiter into quotation marks (\"…\")"),
        ("rsna", 'patientId,x,y,width,height,Target\na,1,2,3,4,"1\nb,1,2,3,4,1"\n', "key: {}, line 2: a quotation mark"
         ' (") opens a cell of this row that continues over the rows below it: remove the mark, or write it twice'
         " inside a cell in quotation marks"),
    ],
)  # fmt: skip
def test_another_file_is_one_sentence(tmp_path, kind, text, sentence):
    path = written(tmp_path, kind, text)
    with pytest.raises(UserError) as error:
        read_annotations("key", path, kind)
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
    options = BoxesSettings(engine="table", table=str(output), table_pixels="original", excluded_classes=[])
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
    (one,), seen = read_annotations("key", tmp_path, "mimic_ils")
    assert (one.image, one.label, one.box, one.split, seen) == ("d1", "edema", None, "train", {"d1"})
    assert np.array_equal(one.mask(), SQUARE)
    (tmp_path / "lesion_mask/s1/s1_edema_0.png").write_text("")
    with pytest.raises(ValueError, match=r"s1_edema_0\.png cannot be read"):
        one.mask()
    (tmp_path / "mimic_ils_instruction_answer.json").write_text("[]")
    with pytest.raises(UserError, match=r"whose mimic_ils_instruction_answer\.json is missing or damaged"):
        read_annotations("key", tmp_path, "mimic_ils")


def test_a_label_can_be_given_a_class(tmp_path, capsys):
    output = tmp_path / "boxes.csv"
    path = str(written(tmp_path, "coco"))
    assert boxes_table.main(["coco", path, str(output), "--class", "line=Pulmonary fibrosis"]) == 0
    assert pl.read_csv(output)["class_name"].to_list() == ["ILD", "Pulmonary fibrosis"]
    capsys.readouterr()
    assert boxes_table.main(["coco", path, str(output), "--class", "line=Fibrosis"]) == 1
    expected = f"cxr-ils: --class line=Fibrosis: 'Fibrosis' is not a class: choose one of {', '.join(BOX_CLASSES)}\n"
    assert capsys.readouterr().err == expected


# what is written is read


NAMES = st.text("abcXYZ019-.", min_size=1, max_size=8).map(lambda name: f"i{name}")
WORDS = st.text("abc äµ,;\"'()/é", max_size=12).map(lambda text: f"w{text}w")
"""Texts with characters that a table must quote."""
CORNERS = st.tuples(*(st.integers(0, 4000).map(lambda quarters: quarters / 4) for _ in range(4)))
"""Quarters of a pixel, so that x + width is x2 to the last bit."""


def written_as(folder: Path, kind: str, held: Annotations) -> Annotations:
    path = folder / kind if kind in FOLDERS else folder / f"{kind}.{'json' if kind == 'coco' else 'csv'}"
    write_annotations(kind, path, held)
    return read_annotations("key", path, kind)


def regions_of(kind: str, folder: Path) -> st.SearchStrategy[list[Annotation]]:
    """Regions with the fields that the format holds; an image has one size and one split."""
    holds = HOLDS[kind]
    masks = folder / "drawn.png"
    cv2.imwrite(str(masks), SQUARE.astype(np.uint8) * 255)
    fields = {
        "box": CORNERS,
        "reader": WORDS,
        "phrase": WORDS,
        "split": st.sampled_from(["train", "val"]),
        "size": st.just((4, 6)),
        "mask_source": st.just(masks)
        if kind == "mimic_ils"
        else st.sampled_from([encode_rle(SQUARE), [[2, 1, 5, 1, 5, 3]]]),
    }
    label = {"rsna": st.just("Lung Opacity"), "mimic_ils": st.sampled_from(LESIONS)}.get(kind, WORDS)
    one = st.builds(Annotation, NAMES, label, **{name: fields[name] for name in holds})
    return st.lists(one, min_size=1, max_size=6, unique_by=lambda region: region.image)


@pytest.mark.parametrize("kind", FORMATS)
def test_what_is_written_is_read(tmp_path, kind):
    @settings(max_examples=40, deadline=None, database=None, derandomize=True)
    @given(data=st.data())
    def back(data):
        shutil.rmtree(tmp_path)
        tmp_path.mkdir()
        regions = data.draw(regions_of(kind, tmp_path))
        found, seen = written_as(tmp_path, kind, Annotations(regions, {one.image for one in regions}))
        if kind in FOLDERS:  # split by split, or file by file
            regions, found = (sorted(ones, key=lambda one: one.image) for ones in (regions, found))
        assert [replace(region, mask_source=None) for region in found] == [
            replace(region, mask_source=None) for region in regions
        ]
        assert seen == {one.image for one in regions}
        for one, other in zip(regions, found, strict=True):
            assert (one.mask() is None) == (other.mask() is None)
            assert one.mask() is None or np.array_equal(one.mask(), other.mask())

    back()


@pytest.mark.parametrize("kind", [kind for kind in FORMATS if kind in ("vindr", "rsna", "coco")])
def test_a_picture_without_a_region_was_looked_at(tmp_path, kind):
    one = Annotation("a", "Lung Opacity", (1.0, 2.0, 3.0, 4.0))
    found, seen = written_as(tmp_path, kind, Annotations([one], {"a", "b", "c"}))
    assert ([region.image for region in found], seen) == (["a"], {"a", "b", "c"})


def test_several_readers_and_phrases_of_a_picture_stay_apart(tmp_path):
    drawn = [Annotation("a", "Edema", (1.0, 2.0, 3.0, 4.0), reader=reader) for reader in ("R9", "R10", "R9")]
    assert written_as(tmp_path, "vindr", Annotations(drawn, set())).regions == drawn
    said = [Annotation("a", "Edema", (1.0, 2.0, 3.0, 4.0), phrase=phrase) for phrase in ("left", "right", "left")]
    assert written_as(tmp_path, "ms_cxr", Annotations(said, set())).regions == said


def test_both_files_of_vindr_are_written_and_read(tmp_path):
    one = Annotation("a", "Edema", (1.0, 2.0, 3.0, 4.0))
    for reader in ("", "R9"):
        told = Annotation(**vars(one) | {"reader": reader})
        assert written_as(tmp_path, "vindr", Annotations([told], {"b"})) == ([told], {"a", "b"})
        with open(tmp_path / "vindr.csv", encoding="utf-8") as file:
            assert ("rad_id" in next(csv.reader(file))) == bool(reader)
    text = VINDR.replace("rad_id", "rad_ID")  # as some copies have it
    assert read_annotations("key", written(tmp_path, "vindr", text), "vindr").regions[0].reader == "R9"


def test_ms_cxr_tells_phrase_and_split(tmp_path):
    first, second = read_annotations("key", written(tmp_path, "ms_cxr"), "ms_cxr").regions
    assert (first.phrase, first.split, second.phrase) == ("opacity at the base", "val", "blunted")


def encode_runs(mask: np.ndarray) -> str:
    """Return the runs of a mask (rows, columns) as CheXmask's table writes them."""
    edges = np.flatnonzero(np.diff(np.concatenate([[False], mask.ravel() > 0, [False]])))
    starts, ends = edges[::2], edges[1::2]
    return " ".join(map(str, np.stack([starts + 1, ends - starts], axis=1).ravel()))


def write_chexmask(path: Path, rows: dict[str, chexmask.Row]) -> None:
    """Write CheXmask's table of some images, with one unused column, since the published table has several."""
    with open(path, "w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        header = [chexmask.IDS, chexmask.DICE, "Dice RCA (Max)", chexmask.POINTS, *chexmask.RUNS.values()]
        writer.writerow([*header, chexmask.HEIGHT, chexmask.WIDTH])
        for name, row in rows.items():
            writer.writerow([name, row.dice, row.dice, row.points, *row.runs, *row.shape])


def test_the_table_of_chexmask_is_read(tmp_path):
    rng = np.random.default_rng(2)
    masks = rng.integers(0, 2, (3, 5, 7)).astype(np.uint8)
    masks[1] = 0
    points = rng.integers(0, 700, (120, 2))
    row = chexmask.Row(0.75, (5, 7), str(points), tuple(map(encode_runs, masks)))
    path = tmp_path / "table.csv"
    write_chexmask(path, {"a": row, "b": chexmask.Row(0.5, (1, 1), "", ("", "1 1", ""))})
    found = chexmask.read_rows("key", path, ["b", "a", "none"])
    assert (found["a"], found["b"].runs, len(found)) == (row, ("", "1 1", ""), 2)
    assert np.array_equal([chexmask.decode_runs(text, (5, 7)) for text in found["a"].runs], masks)
    assert np.array_equal(chexmask.decode_points(found["a"].points, 120), points)
