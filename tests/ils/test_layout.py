"""The authors' released layout, written and read back."""

import json
from pathlib import Path

import cv2
import numpy as np
import pytest

from cxr.base.errors import UserError
from cxr.base.hdf5 import Shard, ShardWriter, mask_id, pack
from cxr.base.tables import read_lines, read_table, write_lines
from cxr.ils.dataset import mimic_ils
from cxr.ils.dataset.pairs import FIELDS
from dataset_cases import build, line, study, unit
from declared_tables import differing

PROVENANCE = ("basis", "quote", "quote_section", "box_confidence", "anomalous_fraction", "reader")


def square(left: int, size: int = 20) -> np.ndarray:
    mask = np.zeros((512, 512), bool)
    mask[100 : 100 + size, left : left + size] = True
    return mask


@pytest.fixture
def release_input(tmp_path) -> dict[str, str]:
    """Two studies with real masks: one id of digits, one not, in two shards of masks."""
    masks = {name: square(left) for name, left in (("a", 10), ("b", 200), ("c", 300))}
    ids = {"a": mask_id("50000001", pack(masks["a"])), "b": mask_id("50000001", pack(masks["b"]))}
    ids["c"] = mask_id("study-x", pack(masks["c"]))
    first = {"study_id": "50000001", "image_id": "dicom-1"}
    second = {"study_id": "study-x", "image_id": "dicom-2"}
    cohort = [
        (
            study(**first, subject_id="10000032", split="validate", empty=["left lung"], ctr=0.6),
            [
                unit(0, "basic", "atelectasis", ["right lung base"], mask_id=ids["a"]),
                unit(
                    1,
                    "basic",
                    "atelectasis",
                    ["right upper zone lung"],
                    mask_id=ids["b"],
                    word="opacity",
                    certainty="tentative",
                    sentence_index=4,
                )
                | first,
                unit(2, "global", "opacity", ["right lung base"], mask_id=ids["a"]),
            ],
            line([], study_id="50000001", section_text="Bibasilar atelectasis, “mild”."),
        ),
        (
            study(**second, subject_id="p-x", split="train", empty=["left lung"], ctr=0.6),
            [unit(0, "global", "cardiomegaly", ["heart"], mask_id=ids["c"])],
            line([], study_id="study-x"),
        ),
    ]
    for row, units, _ in cohort:
        units[:] = [one | {"study_id": row["study_id"], "image_id": row["image_id"]} for one in units]
    built = build(tmp_path, cohort, 1)
    for shard, names in (("00", "ab"), ("01", "c")):
        ordered = sorted(names, key=ids.get)
        with ShardWriter(tmp_path / f"{shard}.h5", key="mask_id") as writer:
            for name in ordered:
                writer.append(ids[name], mask=masks[name])
    inputs = {split: str(built[split]) for split in ("train", "validate", "test")}
    return inputs | {"masks": [str(tmp_path / f"{n}.h5") for n in ("00", "01")]}


def test_released_layout_has_the_released_names(release_input, tmp_path):
    mimic_ils.write_layout(**release_input, layout=str(tmp_path / "release"))
    release = json.loads((tmp_path / "release" / "mimic_ils_instruction_answer.json").read_text(encoding="utf-8"))
    assert list(release) == ["train", "val", "test"]
    assert list(release["val"]) == ["s50000001"]
    assert list(release["train"]) == ["study-x"]
    entry = release["val"]["s50000001"]
    assert entry["dicom_id"] == "dicom-1"
    assert entry["image_path"] == "p10/p10000032/s50000001/dicom-1.jpg"
    assert entry["section_content"] == "Bibasilar atelectasis, “mild”."
    positive = entry["instruction_answer_pairs"]["positive_pairs"]
    assert [pair["pair_id"] for pair in positive] == [f"s50000001_positive_{n}" for n in range(5)]
    assert [pair["seg_mask_path"] for pair in positive] == [
        "s50000001/s50000001_atelectasis_0.png",
        "s50000001/s50000001_atelectasis_0.png",
        "s50000001/s50000001_atelectasis_1.png",
        "s50000001/s50000001_atelectasis_1.png",
        "s50000001/s50000001_opacity_0.png",
    ]
    assert [pair["sent_idx"] for pair in positive] == ["1", "1", "4", "4", "1"]
    for pair in entry["instruction_answer_pairs"]["negative_pairs"]:
        assert pair["pair_id"].startswith("s50000001_negative_")
        assert (pair["seg"], pair["seg_mask_path"]) == (False, None)
        assert "sent_idx" not in pair
    image = cv2.imread(str(tmp_path / "release/lesion_mask/s50000001/s50000001_atelectasis_1.png"), -1)
    assert image.dtype == np.uint8
    assert np.array_equal(image, square(200).astype(np.uint8) * 255)
    heart = release["train"]["study-x"]["instruction_answer_pairs"]["positive_pairs"][0]
    assert (heart["answer"], heart["location"]) == ("[SEG]", ["heart"])


def test_release_comes_back_as_our_files(release_input, tmp_path):
    mimic_ils.write_layout(**release_input, layout=str(tmp_path / "release"))
    back = {split: str(tmp_path / f"back_{split}.jsonl") for split in ("train", "validate", "test")}
    masks, index = str(tmp_path / "back.h5"), str(tmp_path / "back_index.parquet")
    mimic_ils.import_layout(folder=str(tmp_path / "release"), **back, masks=masks, index=index)
    # What the release has no field for: zone labels, what a negative rests on, the certainty of an opacity called so.
    unsaid = ("grounded_location", "reported_location", *PROVENANCE)
    for split, path in back.items():
        ours, read = list(read_lines(release_input[split])), list(read_lines(path))
        assert len(ours) == len(read)
        for mine, theirs in zip(ours, read, strict=True):
            assert tuple(theirs) == FIELDS
            skip = {*unsaid, "certainty"} if mine["target"] == "opacity" and mine["type"] == "basic" else unsaid
            assert {k: v for k, v in mine.items() if k not in skip} == {k: theirs[k] for k in mine if k not in skip}
    place = {row[0]: row[2] for row in read_table(index).iter_rows()}
    with Shard(masks, key="mask_id") as shard:
        assert shard.ids == sorted(place)
        assert len(place) == 3
        identifier = mask_id("study-x", pack(square(300)))
        assert np.array_equal(shard.get("mask", identifier), square(300))
        assert shard.row_of[identifier] == place[identifier]


def test_release_in_original_pixels(release_input, tmp_path):
    frames = []
    for name, image_ids in (("00", ["dicom-1"]), ("01", ["dicom-2"])):
        path = tmp_path / "frames" / f"{name}.h5"
        with ShardWriter(path) as writer:
            for image_id in image_ids:
                writer.append(
                    image_id,
                    to_original=np.array([[2.0, 0, 0], [0, 2.0, 0]]),
                    original_shape=np.array([1024, 1024], np.int32),
                )
        frames.append(str(path))
    mimic_ils.write_layout(**release_input, frames=frames, layout=str(tmp_path / "frame"))
    image = cv2.imread(str(tmp_path / "frame/lesion_mask/study-x/study-x_cardiomegaly_0.png"), -1)
    assert np.array_equal(image == 255, square(300))
    mimic_ils.write_layout(**release_input, frames=frames, layout=str(tmp_path / "release"), pixels="original")
    image = cv2.imread(str(tmp_path / "release/lesion_mask/study-x/study-x_cardiomegaly_0.png"), -1)
    assert image.shape == (1024, 1024)
    assert np.array_equal(image == 255, square(300).repeat(2, 0).repeat(2, 1))


def test_release_that_cannot_be(release_input, tmp_path):
    with pytest.raises(UserError, match="holds no readable"):
        list(mimic_ils.read_release(tmp_path / "nothing"))
    rows = list(read_lines(release_input["train"]))
    write_lines(release_input["train"], [*rows, rows[0] | {"image_id": "another"}])
    with pytest.raises(UserError, match="several images"):
        mimic_ils.write_layout(**release_input, layout=str(tmp_path / "release"))
    assert not (tmp_path / "release").exists()
    assert not list(tmp_path.glob(".release*"))


def test_a_release_of_others_is_read_leniently(tmp_path):
    """Their third type name is not known, texts may be paraphrased, a location may be a single string."""
    pair = {
        "pair_id": "s7_positive_0",
        "instruction": "Where is the swelling of the lungs?",
        "answer": "[SEG]",
        "type": "lesion inference",
        "target": "edema",
        "location": "left lung",
        "seg": True,
        "seg_mask_path": "s7/s7_edema_0.png",
        "sent_idx": "2",
    }
    entry = {
        "subject_id": 17,
        "dicom_id": "d7",
        "image_path": "p17/p17/s7/d7.jpg",
        "section_name": "findings",
        "section_content": "Edema.",
        "instruction_answer_pairs": {"positive_pairs": [pair], "negative_pairs": []},
    }
    (tmp_path / mimic_ils.JSON_NAME).write_text(json.dumps({"test": {"s7": entry}}), encoding="utf-8")
    ((row, path),) = mimic_ils.read_release(tmp_path)
    assert path == tmp_path / "lesion_mask/s7/s7_edema_0.png"
    assert (row["study_id"], row["subject_id"], row["pair_id"]) == ("7", "17", "7_positive_0")
    assert (row["type"], row["location"], row["certainty"]) == ("lesion_inference", ["left lung"], None)


def test_a_release_brings_its_images_as_a_table(release_input, tmp_path):
    mimic_ils.write_layout(**release_input, layout=str(tmp_path / "release"))
    outputs = {name: str(tmp_path / f"{name}.jsonl") for name in ("train", "validate", "test")}
    outputs |= {"masks": str(tmp_path / "release.h5"), "index": str(tmp_path / "index.parquet")}
    pictures = str(tmp_path / "pictures.tsv")
    (tmp_path / "jpg").mkdir()
    mimic_ils.import_layout(
        folder=str(tmp_path / "release"), **outputs, pictures=pictures, images=str(tmp_path / "jpg")
    )
    assert differing(Path(pictures), "results/dataset/mimic_ils/pictures.tsv") == ""
    table = dict(read_table(pictures).iter_rows())
    assert table["dicom-1"] == str(tmp_path / "jpg" / "p10" / "p10000032" / "s50000001" / "dicom-1.jpg")
    named = {line["image_id"] for name in ("train", "validate", "test") for line in read_lines(outputs[name])}
    assert table.keys() == named == {"dicom-1", "dicom-2"}
    with pytest.raises(UserError, match=r"dataset\.mimic_ils_images: there is no folder 'nowhere'"):
        mimic_ils.import_layout(folder=str(tmp_path / "release"), **outputs, pictures=pictures, images="nowhere")
