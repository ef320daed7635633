"""The export of a mix for LLaVA's trainers, opened as they open it."""

import json
from pathlib import Path

import cv2
import numpy as np
import pytest

from cxr.base.hdf5 import Shard
from cxr.base.tables import read_lines, read_table, write_lines
from cxr.base.vocabulary import SPLITS
from cxr.radvlm.instructions import llava
from cxr.vlm.conventions import CONVENTIONS, InputSize
from cxr.vlm.reading import read_boxes
from cxr.vlm.samples import covered_window
from radvlm_mix import instructions, sources

SEEN = InputSize(1000, 1000)


@pytest.fixture(scope="module")
def made(workflow_run, tmp_path_factory):
    return sources(workflow_run / "results", tmp_path_factory.mktemp("sources"))


@pytest.fixture(scope="module")
def mix(workflow_run, made, tmp_path_factory):
    return instructions(workflow_run / "results", made, tmp_path_factory.mktemp("mix"))


def exported(mix: Path, made: Path, results: Path, folder: Path, **settings) -> Path:
    frames = sorted(map(str, (results / "frames").glob("??.h5")))
    told = {"convention": "unit", "pictures": "frame", "folders": {"own": str(results / "frames")}} | settings
    llava.run(
        lines=[str(mix / f"{split}.jsonl") for split in SPLITS], frames=frames,
        images=[str(made / "images.parquet")], folder=str(folder), **told,
    )  # fmt: skip
    return folder


def pairs(mix: Path, folder: Path):
    """Yield each line of the mix with its entry."""
    for split in SPLITS:
        entries = json.loads((folder / llava.FILE_BY_SPLIT[split]).read_text(encoding="utf-8"))
        yield from zip(read_lines(mix / f"{split}.jsonl"), entries, strict=True)


@pytest.mark.parametrize(("convention", "off"), [("unit", 0.005), ("unit_short", 0.005), ("grid1000", 0.0005)])
def test_turns_and_boxes_come_back(mix, made, workflow_run, tmp_path, convention, off):
    folder = exported(
        mix, made, workflow_run / "results", tmp_path / "llava", convention=convention, pictures="original"
    )
    boxes = 0
    for line, entry in pairs(mix, folder):
        assert entry["id"] == line["sample_id"]
        said = entry["conversations"]
        assert [one["from"] for one in said] == ["human", "gpt"] * len(line["turns"])
        questions = [one["value"] for one in said[::2]]
        assert questions[0] == "<image>" + line["turns"][0]["question"]
        assert questions[1:] == [turn["question"] for turn in line["turns"][1:]]
        assert not any("<image>" in one["value"] for one in said[1:])
        for turn, answer in zip(line["turns"], said[1::2], strict=True):
            right = [box for name, held in line["boxes"].items() if f"<box:{name}>" in turn["answer"] for box in held]
            assert "<box:" not in answer["value"]
            if right:
                found = read_boxes(answer["value"], CONVENTIONS[convention], SEEN).boxes
                np.testing.assert_allclose(found, right, atol=off + 1e-12)
                boxes += len(right)
            else:
                assert answer["value"] == turn["answer"]
    assert boxes > 50


def test_a_picture_is_the_part_of_the_frame_that_its_original_covers(mix, made, workflow_run, tmp_path):
    results = workflow_run / "results"
    folder = exported(mix, made, results, tmp_path / "llava")
    named = {line["image_id"]: entry["image"] for line, entry in pairs(mix, folder)}
    assert {str(path.relative_to(folder)) for path in folder.rglob("*.png")} == set(named.values())
    for path in sorted((results / "frames").glob("??.h5")):
        with Shard(path) as shard:
            for image_id in named.keys() & set(shard.ids):
                frame = shard.get("image", image_id)
                shape = tuple(map(int, shard.get("original_shape", image_id)))
                window = covered_window(shard.get("to_original", image_id), shape, frame.shape)
                picture = cv2.imread(str(folder / named.pop(image_id)), cv2.IMREAD_UNCHANGED)
                np.testing.assert_array_equal(picture, frame[window])
    assert not named


def test_originals_are_named_and_not_copied(mix, made, workflow_run, tmp_path):
    folder = exported(mix, made, workflow_run / "results", tmp_path / "llava", pictures="original")
    where = dict(read_table(made / "images.parquet").select("image_id", "path").iter_rows())
    assert all(entry["image"] == where[line["image_id"]] for line, entry in pairs(mix, folder))
    assert {path.name for path in folder.iterdir()} == set(llava.FILE_BY_SPLIT.values())


def test_an_image_with_a_path_for_a_name_stays_in_the_folder(tmp_path):
    (tmp_path / "one").mkdir()
    assert llava.image_path("own", "../../p1/s.2") == "images/own/..%2F..%2Fp1%2Fs.2.png"


def test_lines_are_streamed(tmp_path):
    """A hundred times the lines do not take more memory."""
    import tracemalloc

    line = {"sample_id": "r", "task": "classification", "source": "own", "image_id": "i", "split": "train",
            "asked": None, "turns": [{"question": "What?", "answer": "Nothing. " * 200}], "boxes": {}}  # fmt: skip
    peaks = []
    for number in (20, 2000):
        path = tmp_path / f"{number}/train.jsonl"
        write_lines(path, (line | {"sample_id": f"r{at}"} for at in range(number)))
        tracemalloc.start()
        written = llava.to_entries(path, lambda held: "i.png", CONVENTIONS["unit"])
        llava.write_entries(tmp_path / "llava.json", written)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < 2 * peaks[0] + 200_000 < 2000 * 1800
