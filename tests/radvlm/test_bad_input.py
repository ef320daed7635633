"""Bad input to RadVLM: each kind gets one sentence, one reason or a mended value, and nothing is lost in silence.

What a single reader, judge or grammar makes of it is tested beside that; here are the kinds that all of them share.
"""

import json
import os
import pickle
import re
import shutil
from collections import Counter
from pathlib import Path

import cv2
import numpy as np
import polars as pl
import pytest
import torch
from safetensors.torch import load_file

from cohort_runs import run_frames
from cohort_runs import write_csv as write_plain
from cxr.annotations import label_tables
from cxr.base.errors import UserError
from cxr.base.hdf5 import Shard
from cxr.base.tables import read_table
from cxr.radvlm.evaluation.answers import load_grammar
from cxr.radvlm.sources.boxes import subject_of
from cxr.radvlm.sources.read_sources import run
from cxr.vlm.models import load_model, make_tiny
from cxr.vlm.reading import MOST_BOXES
from dicom_files import dataset, encoded, picture, stored_values
from mimic_tree import mimic_tree, write_tables
from radvlm_trees import (
    cells,
    chexpert_plus_tree,
    chexpert_tree,
    found,
    mimic_images,
    ms_cxr_tree,
    options,
    padchest_tree,
    vindr_tree,
)


def mimic(folder: Path) -> Path:
    mimic_tree(folder, b"")
    write_tables(folder)
    labels = [("10000032", "50000001", *cells(Edema="1.0"))]
    write_plain(folder / "mimic-cxr-2.0.0-chexpert.csv.gz", ("subject_id", "study_id", *label_tables.LABELS), labels)
    return folder


TABLES = [
    ("chexpert", chexpert_tree, "train.csv"),
    ("chexpert_plus", chexpert_plus_tree, "df_chexpert_plus_240401.csv"),
    ("vindr", vindr_tree, "annotations/annotations_train.csv"),
    ("ms_cxr", ms_cxr_tree, "MS_CXR_Local_Alignment_v1.1.0.csv"),
    ("padchest_gr", padchest_tree, "master_table.csv"),
    ("padchest_gr", padchest_tree, "grounded_reports_20240819.json"),
    ("mimic", mimic, "mimic-cxr-2.0.0-chexpert.csv.gz"),
    ("mimic", mimic, "cxr-record-list.csv.gz"),
    ("mimic", mimic, "mimic-cxr-2.0.0-metadata.csv.gz"),
    ("mimic", mimic, "mimic-cxr-2.0.0-split.csv.gz"),
]
WRONG = {
    "a picture": b"\x89PNG\r\n\x1a\n\x00\x00\xff\xfe,",
    "nothing": b"",
    "of another dataset": b"patientId,x,y,width,height,Target\na,1,2,3,4,1\n",
}


# ---- tables
@pytest.mark.parametrize("wrong", WRONG)
@pytest.mark.parametrize(("kind", "tree", "table"), TABLES, ids=lambda value: value if isinstance(value, str) else "")
def test_a_file_that_is_no_table_of_the_dataset_stops_the_run(tmp_path, kind, tree, table, wrong):
    """One sentence: the setting, the file, and what to do."""
    folder = tree(tmp_path / "tree")
    (folder / table).write_bytes(WRONG[wrong])
    pictures = mimic_images(tmp_path / "mimic.parquet") if kind == "ms_cxr" else ""
    with pytest.raises(UserError) as told:
        found(options(kind, folder), pictures)
    assert str(told.value).startswith(f"radvlm.sources.list.{kind}.path")
    assert table.rpartition("/")[2] in str(told.value)
    assert "\n" not in str(told.value)
    assert re.search(
        "save (it as|the table) |put a header|write |check the file|give a file of|download it again|no list of",
        str(told.value),
    )


# ---- boxes
NO_NUMBERS = ("nan", "", "inf", "x", "1e400", "-inf")


def test_corners_that_are_no_numbers_are_no_boxes_and_are_counted(tmp_path):
    rows = "".join(f'aa,R9,Edema,"{corner}",1,2,3\n' for corner in (*NO_NUMBERS, "1,5"))
    rows += "aa,R9,Edema,0,0,0,0\naa,R9,Edema,-5,-5,-1,-1\n"  # without an area; outside
    tree = vindr_tree(tmp_path / "vindr")
    before = Counter(row["reason"] for row in found(options("vindr", tree))[2].excluded)
    with open(tree / "annotations/annotations_train.csv", "a", encoding="utf-8") as file:
        file.write(rows)
    _, facts, held = found(options("vindr", tree))
    after = Counter(row["reason"] for row in held.excluded)
    assert after - before == {"no_area": len(NO_NUMBERS) + 3}
    assert facts.filter(reader="R9").is_empty()
    tree = ms_cxr_tree(tmp_path / "ms")
    with open(tree / "MS_CXR_Local_Alignment_v1.1.0.csv", "a", encoding="utf-8") as file:
        file.writelines(f"d1,Edema,words {n},p,{corner},1,5,5,80,60,train\n" for n, corner in enumerate(NO_NUMBERS))
    _, _, held = found(options("ms_cxr", tree), mimic_images(tmp_path / "mimic.parquet"))
    assert Counter(row["reason"] for row in held.excluded)["no_area"] == 1 + len(NO_NUMBERS)


@pytest.mark.parametrize("corner", ["NaN", '"x"', "null", "1e400"])
def test_a_phrase_without_a_whole_box_is_left_out(tmp_path, corner):
    tree = padchest_tree(tmp_path)
    told = f'[{{"StudyID":"0101","ImageID":"p1.png","findings":[{{"sentence_en":"A.","boxes":[[{corner},0,1,1]]}}]}}]'
    (tree / "grounded_reports_20240819.json").write_text(told)
    _, facts, held = found(options("padchest_gr", tree))
    assert facts.is_empty()
    assert [row["reason"] for row in held.excluded if row["reason"] == "no_area"] == ["no_area"]


def grounded(folder: Path, *reports: list[dict], mark: str = "") -> tuple:
    """Return what PadChest-GR holds with these reports, each the sentences about p1.png."""
    tree = padchest_tree(folder)
    told = [{"StudyID": "0101", "ImageID": "p1.png", "findings": sentences} for sentences in reports]
    (tree / "grounded_reports_20240819.json").write_text(mark + json.dumps(told), encoding="utf-8")
    return found(options("padchest_gr", tree))


def test_boxes_without_words_and_further_boxes_alone_are_accounted_for(tmp_path):
    box = [[0, 0, 1, 1]]
    _, facts, held = grounded(
        tmp_path, [{"sentence_en": "A.", "extra_boxes": box}, {"sentence_en": "", "boxes": box, "extra_boxes": box}],
        mark="\ufeff",
    )  # fmt: skip
    assert facts.select("name", "reader").rows() == [("A.", "extra")]
    assert Counter(row["reason"] for row in held.excluded) == {"bad_row": 2}
    _, facts, held = grounded(tmp_path / "extra", [{"sentence_en": "A.", "extra_boxes": box}])
    assert (facts.height, [row["reason"] for row in held.excluded]) == (1, ["no_boxes"])


def test_a_file_of_reports_that_is_nested_without_end_is_one_sentence(tmp_path):
    tree = padchest_tree(tmp_path)
    (tree / "grounded_reports_20240819.json").write_text("[" * 100_000)
    with pytest.raises(UserError, match=r"is not a list of grounded reports \(RecursionError"):
        found(options("padchest_gr", tree))


def test_an_image_that_a_source_tells_twice_is_taken_once(tmp_path):
    """PadChest-GR with two reports of an image; VinDr-CXR with an image in the tables of both splits."""
    sentences = [{"sentence_en": "A.", "boxes": [[0, 0, 1, 1]]}]
    images, facts, held = grounded(tmp_path / "padchest", sentences, sentences)
    assert (images.height, facts.height, len(held.texts)) == (1, 1, 1)
    assert [row["reason"] for row in held.excluded] == ["duplicate_image"]
    tree = vindr_tree(tmp_path / "vindr")
    before, _, known = found(options("vindr", tree))
    shutil.copy(tree / "train/aa.png", tree / "test")
    with open(tree / "annotations/annotations_test.csv", "a", encoding="utf-8") as file:
        file.write("aa,Edema,1,1,5,5\n")
    images, _, held = found(options("vindr", tree))
    assert images.equals(before)
    gone = Counter(row["reason"] for row in held.excluded) - Counter(row["reason"] for row in known.excluded)
    assert gone == {"duplicate_image": 1}


def test_an_image_whose_name_lacks_the_subject_is_its_own_subject():
    one = options("nih", Path("x.csv"), source={"subject": r"^(\d+)?"})
    assert [subject_of(name, one) for name in ("00001_000.png", "x.png")] == ["00001", "x"]


# ---- pictures
def dicom(values: np.ndarray, **tags: object) -> bytes:
    return encoded(dataset(stored_values(values, 12, False), 12, **tags))


def test_pictures_are_read_rightly_or_leave_with_their_reason(tmp_path):
    """16 bits, MONOCHROME1, a palette, and pictures that are absent, cut off or of another kind."""
    tree, grey = vindr_tree(tmp_path / "vindr"), picture(120, 100)
    (tree / "annotations/annotations_train.csv").write_text(
        "image_id,rad_id,class_name,x_min,y_min,x_max,y_max\n"
        + "".join(f"{name},R1,Edema,10,10,50,50\n" for name in ("deep", "turned", "dicom", "palette", "cut", "gone"))
    )
    (tree / "annotations/annotations_test.csv").unlink()
    train = tree / "train"
    shutil.rmtree(train)
    train.mkdir()
    deep = np.round(grey.astype(np.float64) * 65535 / grey.max()).astype(np.uint16)
    cv2.imwrite(str(train / "deep.png"), deep)
    (train / "dicom.dicom").write_bytes(dicom(grey))
    (train / "turned.dicom").write_bytes(dicom(grey, PhotometricInterpretation="MONOCHROME1"))
    (train / "palette.dicom").write_bytes(dicom(grey, PhotometricInterpretation="PALETTE COLOR"))
    whole = dicom(grey)
    (train / "cut.dicom").write_bytes(whole[: len(whole) // 2])
    out = {name: str(tmp_path / name) for name in ("images.parquet", "facts.parquet", "texts.jsonl")}
    names = ("excluded.parquet", "counts.tsv", "conservation.tsv", "00.parquet")
    excluded, counts, conservation, shard = (str(tmp_path / name) for name in names)
    run(
        tables=[], images=out["images.parquet"], facts=out["facts.parquet"], texts=out["texts.jsonl"],
        excluded=excluded, counts=counts, conservation=conservation, shards=[shard], options=options("vindr", tree),
    )  # fmt: skip
    assert read_table(excluded).filter(pl.col("image_id") == "gone")["reason"].to_list() == ["missing_file"]
    reasons = run_frames(Path(shard), tmp_path / "00.h5")
    left = {"cut", "palette"} - set(read_table(out["images.parquet"])["image_id"])
    assert reasons.keys() | left == {"cut", "palette"}
    with Shard(tmp_path / "00.h5", key="image_id") as shard_of:
        shown = {name: shard_of.get("image", name) for name in shard_of.ids}
    assert shown.keys() == {"deep", "dicom", "turned"}
    plain = shown["dicom"].astype(int)
    inside = plain > 0
    assert np.corrcoef(shown["deep"][inside], plain[inside])[0, 1] > 0.99
    assert np.corrcoef(shown["turned"][inside], plain[inside])[0, 1] < -0.99


# ---- reports
def test_a_report_of_20000_words_is_too_long_and_spanish_is_not_read(tmp_path):
    folder = mimic(tmp_path / "mimic")
    report = folder / "files/p10/p10000032/s50000001.txt"
    report.write_text("FINDINGS: " + "The lungs are clear. " * 5000)
    _, _, held = found(options("mimic", folder))
    assert "too_long" in {row["reason"] for row in held.excluded}
    assert held.texts == []
    tree = padchest_tree(tmp_path / "padchest")
    one = {"sentence_es": "Derrame pleural.", "sentence_en": "Pleural effusion.", "boxes": [[0, 0, 1, 1]]}
    reports = [{"StudyID": "0101", "ImageID": "p1.png", "report": "Derrame pleural.", "findings": [one]}]
    (tree / "grounded_reports_20240819.json").write_text(json.dumps(reports))
    _, facts, held = found(options("padchest_gr", tree))
    assert "Derrame" not in json.dumps([held.texts, facts.to_dicts()], default=str)
    assert set(facts["name"]) == {"Pleural effusion."}


# ---- answers of models
@pytest.mark.parametrize("name", ["unit", "hundred", "percent", "grid1000", "pixels", "bins"])
def test_four_thousand_boxes_are_none_and_an_endless_text_is_read(name):
    form = {"bins": "<x%d><y%02d><x69><y99>", "unit": "[0.0%d, 0.%02d, 0.9, 0.9]"}.get(name, "[%d, %d, 90, 90]")
    boxes = [form % (left, top) for left in range(10) for top in range(90)]
    read = load_grammar(name)
    assert len(read(" ".join([boxes[0]] * MOST_BOXES), (1000, 1000)).boxes) == MOST_BOXES
    assert len(read(" ".join([boxes[0]] * 4000), (1000, 1000)).boxes) == 1  # a model that cannot stop repeats one box
    for count in (MOST_BOXES + 1, 900):
        told = read(" ".join(boxes[:count]), (1000, 1000))
        assert (len(told.boxes), told.malformed) == (0, 1)
    for text in ("[" * 20_000, "[0.1, " * 5000, "the the " * 20_000, "0" * 20_000, "\x00" * 1000):
        assert len(read(text, (1000, 1000)).boxes) == 0


# ---- checkpoints
@pytest.fixture(scope="module")
def model(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("model")
    make_tiny("onevision", folder, ["where is it? [0.1, 0.2]"], 112, 5)
    return folder


class Command:
    """A pickle that runs a command when it is read."""

    def __init__(self, mark: Path):
        self.mark = mark

    def __reduce__(self) -> tuple:
        return os.system, (f"touch {self.mark}",)


def lose_a_part(folder: Path) -> None:
    """Split the weights into two files, of which one is lost."""
    held = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    names = {name: f"model-0000{1 + number % 2}-of-00002.safetensors" for number, name in enumerate(sorted(held))}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": names}))


def pickled(folder: Path) -> None:
    torch.save(load_file(folder / "model.safetensors"), folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()


def attacked(folder: Path) -> None:
    (folder / "pytorch_model.bin").write_bytes(pickle.dumps(Command(folder / "ran")))
    (folder / "model.safetensors").unlink()


def cut_off(folder: Path) -> None:
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:5000])


@pytest.mark.parametrize("fault", [lose_a_part, pickled, attacked, cut_off])
def test_a_checkpoint_that_is_not_whole_or_is_pickled_is_one_sentence(model, tmp_path, fault):
    folder = Path(shutil.copytree(model, tmp_path / "model"))
    fault(folder)
    with pytest.raises(UserError, match=re.escape(str(folder))) as told:
        load_model("onevision", folder)
    assert "\n" not in str(told.value)
    assert "download the model again" in str(told.value)
    assert not (folder / "ran").exists()
