"""Instruction data: the record, its files per split, the JSON by study, masks in COCO's format."""

import json
from dataclasses import replace

import numpy as np
import pytest
from pycocotools.coco import COCO

from cxr.base.tables import read_lines
from cxr.ils.dataset.pairs import FIELDS, Pair, make_line, make_records
from cxr.instructions import coco
from cxr.instructions.mimic_ils import write_studies
from cxr.instructions.record import Record, Turn, open_split_files

RECORD = Record(
    sample_id="a1", task="grounding", source="somewhere", split="test", subject_id="p", study_id="s", image_id="i",
    turns=(Turn("Where is it?", "Here: é"), Turn("Segment it.", "[SEG]")), boxes={"it": ((0.0, 0.25, 0.5, 1.0),)},
    mask_ids=("m",),
)  # fmt: skip


# ---- the record ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"turns": ()}, "a1 has no turn"),
        ({"split": "val"}, "a1 has the split 'val': use one of train, validate, test"),
        ({"boxes": {"it": ((0.5, 0.0, 0.5, 1.0),)}}, "a1 has a box of 'it' that is empty or exceeds the image"),
        ({"boxes": {"it": ((0.0, 0.0, 1.0, 1.0), (0.0, 0.6, 0.5, 0.5))}}, "a1 has a box of 'it' that is empty"),
        ({"boxes": {"it": ((0.0, 0.0, 12.0, 14.0),)}}, "a1 has a box of 'it' that is empty or exceeds the image"),
        ({"boxes": {"it": ((float("nan"), 0.0, 1.0, 1.0),)}}, "a1 has a box of 'it' that is empty or exceeds"),
    ],
)
def test_a_record_that_cannot_be_is_refused(changes, why):
    with pytest.raises(ValueError, match=f"^{why}"):
        replace(RECORD, **changes)


def test_a_pair_of_ils_is_a_record_of_one_turn_and_a_line_of_its_fields():
    study = {"study_id": "s1", "image_id": "i1", "subject_id": "p1", "split": "train"}
    pairs = [
        Pair("basic", "edema", "Segment it.", "[SEG]", ("left lung",), True, "definitive", 2, ("left lung",), (), "m1"),
        Pair("global", "edema", "Segment the edema.", "[SEG] None.", (), False),
    ]
    report = {"section_name": "findings", "section_content": "Edema.", "reader": "c0de"}
    first, second = make_records(study, report, pairs)
    assert (first.sample_id, first.task, first.source, first.mask_ids) == ("s1_positive_0", "basic", "ils", ("m1",))
    assert (second.sample_id, second.turns) == ("s1_negative_0", (Turn("Segment the edema.", "[SEG] None."),))
    assert second.mask_ids == ()
    assert list(make_line(first)) == list(FIELDS)
    assert make_line(first) == study | {
        "pair_id": "s1_positive_0", "section_name": "findings", "section_content": "Edema.", "sentence_index": 2,
        "type": "basic", "target": "edema", "certainty": "definitive", "instruction": "Segment it.", "answer": "[SEG]",
        "location": ["left lung"], "grounded_location": ["left lung"], "reported_location": [], "seg": True,
        "mask_id": "m1", "basis": None, "quote": None, "quote_section": None, "box_confidence": None,
        "anomalous_fraction": None, "reader": "c0de",
    }  # fmt: skip
    assert (make_line(second)["mask_id"], make_line(second)["location"]) == (None, [])


# ---- files a split ---------------------------------------------------------------------------------------------------


def record_line(record: Record) -> dict:
    turns = [{"question": turn.question, "answer": turn.answer} for turn in record.turns]
    return {"id": record.sample_id, "turns": turns}


def test_records_lie_in_the_files_of_their_splits_in_order(tmp_path):
    paths = {split: tmp_path / f"{split}.jsonl" for split in ("train", "test")}
    with open_split_files(paths, record_line) as write:
        for name, split in (("a", "test"), ("b", "train"), ("c", "test")):
            write(replace(RECORD, sample_id=name, split=split))
        assert not any(path.exists() for path in paths.values())  # none appears before all are complete
    assert [line["id"] for line in read_lines(paths["test"])] == ["a", "c"]
    assert (
        paths["train"].read_bytes()
        == (
            '{"id": "b", "turns": [{"question": "Where is it?", "answer": "Here: é"}, '
            '{"question": "Segment it.", "answer": "[SEG]"}]}\n'
        ).encode()
    )


def test_a_failure_leaves_no_file_of_any_split(tmp_path):
    paths = {split: tmp_path / f"{split}.jsonl" for split in ("train", "test")}

    def write_both() -> None:
        with open_split_files(paths, record_line) as write:
            write(RECORD)
            write(replace(RECORD, split="validate"))

    with pytest.raises(KeyError, match="validate"):
        write_both()
    assert not any(path.exists() for path in paths.values())


# ---- the JSON by study -----------------------------------------------------------------------------------------------


def test_the_json_holds_a_study_a_line(tmp_path):
    splits = {"train": [("s1", {"a": "é"}), ("s2", {"b": [1]})], "val": [], "test": iter([("s3", {})])}
    write_studies(tmp_path / "x.json", splits)
    text = (tmp_path / "x.json").read_text(encoding="utf-8")
    assert json.loads(text) == {"train": {"s1": {"a": "é"}, "s2": {"b": [1]}}, "val": {}, "test": {"s3": {}}}
    assert text.splitlines() == [
        "{", '"train": {', '"s1": {"a": "é"},', '"s2": {"b": [1]}', "},", '"val": {', "},", '"test": {', '"s3": {}',
        "}", "}",
    ]  # fmt: skip


# ---- COCO ------------------------------------------------------------------------------------------------------------


def test_coco_reads_the_masks_back(tmp_path):
    rng = np.random.default_rng(0)
    masks = [rng.random((7, 9)) < 0.4 for _ in range(3)]
    path = tmp_path / "coco" / "test.json"
    with coco.CocoWriter(path, {"description": "x"}, coco.make_categories(["cell", "nucleus"], "part")) as writer:
        numbers = [writer.image(file_name=f"{name}.png", width=9, height=7) for name in "ab"]
        for mask, (image, name) in zip(masks, ((1, "nucleus"), (1, "cell"), (2, "nucleus")), strict=True):
            writer.add_annotation(image, name, coco.mask_annotation(mask), query_ids=["q"])
    assert numbers == [1, 2]
    held = COCO(path)
    assert held.loadCats([1, 2]) == [
        {"id": 1, "name": "cell", "supercategory": "part"}, {"id": 2, "name": "nucleus", "supercategory": "part"},
    ]  # fmt: skip
    assert [(each["image_id"], each["category_id"]) for each in held.loadAnns([1, 2, 3])] == [(1, 2), (1, 1), (2, 2)]
    for number, mask in enumerate(masks, 1):
        (each,) = held.loadAnns([number])
        assert np.array_equal(held.annToMask(each).astype(bool), mask)
        rows, columns = np.nonzero(mask)
        assert each["bbox"] == [columns.min(), rows.min(), np.ptp(columns) + 1, np.ptp(rows) + 1]
        assert (each["area"], each["query_ids"]) == (mask.sum(), ["q"])
    assert list(path.parent.iterdir()) == [path]
