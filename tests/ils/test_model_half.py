"""The model half as a user runs it: one command trains on the slice and on a release of it, asks and scores."""

import json
import shutil
from pathlib import Path

import cv2
import pytest

from conftest import SLICE, snakemake, write_settings
from cxr.base.hdf5 import Shard
from cxr.base.tables import read_lines, read_table
from cxr.base.vocabulary import SPLITS
from cxr.ils.dataset.mimic_ils import JSON_NAME, write_layout
from training_runs import SIZES

RECIPE = {"init": "random", "sizes": SIZES, "epochs": 1, "batch": 4, "micro_batch": 4, "warmup": 2}
SETTINGS = SLICE | {
    "dataset": {"mimic_ils": "release", "mimic_ils_images": "images"},
    "training": {"lite": RECIPE, "runs": {"default": {}, "release": {"thresholds": "mimic_ils"}}},
    "inference": {"max_new_tokens": 4, "size": 256},
    "replicates": 100,
    "evaluation": {"size": 256, "predictions": {"everything": {"adapter": "everything"}}},
}


def lay_out(run: Path) -> None:
    """Write the slice's dataset as a release with its tree of images."""
    masks = sorted(map(str, (run / "results/masks/default").glob("[0-9]*.h5")))
    lines = {split: str(run / f"results/dataset/default/{split}.jsonl") for split in SPLITS}
    write_layout(**lines, masks=masks, layout=str(run / "release"))
    images = {}
    for path in sorted((run / "results/frames").glob("*.h5")):
        with Shard(path) as shard:
            images |= {image_id: shard.get("image", image_id) for image_id in shard.ids}
    for studies in json.loads((run / "release" / JSON_NAME).read_text()).values():
        for entry in studies.values():
            place = run / "images" / entry["image_path"]
            place.parent.mkdir(parents=True)
            cv2.imwrite(str(place.with_suffix(".png")), images[entry["dicom_id"]])
            place.with_suffix(".png").rename(place)  # the name says JPEG, the pixels are the frame's to the bit


@pytest.fixture(scope="module")
def evaluated(workflow_run, tmp_path_factory) -> Path:
    """A copy of the slice's run in which two trainings were made, asked and scored."""
    run = tmp_path_factory.mktemp("model_half") / "run"
    shutil.copytree(workflow_run, run, symlinks=True)
    lay_out(run)
    write_settings(run, SETTINGS)
    snakemake(run, "evaluation", "inference")
    return run


@pytest.mark.slow
def test_all_runs_are_scored_side_by_side(evaluated):
    results = evaluated / "results/evaluation"
    comparison = read_table(results / "comparison.tsv")
    assert comparison["run"].unique(maintain_order=True).to_list()[:3] == ["default", "release", "everything"]
    for name in ("masks.png", "text.png"):
        assert cv2.imread(str(results / name)).std() > 0
    lines = list(read_lines(evaluated / "results/dataset/default/test.jsonl"))
    for run in ("default", "release", "everything"):
        pairs = read_table(results / run / "pairs.parquet")
        assert sorted(pairs["pair_id"]) == sorted(line["pair_id"] for line in lines)
        negatives = pairs.filter(pairs["polarity"] == "negative")
        if run == "everything":
            assert set(negatives["iou"]) == {0.0}


@pytest.mark.slow
def test_a_release_asks_the_same_of_the_same_images(evaluated):
    ours, theirs = (
        {line["pair_id"]: line for line in read_lines(evaluated / f"results/dataset/{name}/test.jsonl")}
        for name in ("default", "mimic_ils")
    )
    assert ours.keys() == theirs.keys()
    for pair_id, line in ours.items():
        assert [line[key] for key in ("image_id", "instruction", "answer", "seg", "mask_id")] == [
            theirs[pair_id][key] for key in ("image_id", "instruction", "answer", "seg", "mask_id")
        ]
    pictures = dict(read_table(evaluated / "results/dataset/mimic_ils/pictures.tsv").iter_rows())
    assert {line["image_id"] for line in ours.values()} <= pictures.keys()
    asked = [line["pair_id"] for line in read_lines(evaluated / "results/inference/release/test.jsonl")]
    assert asked == list(theirs)


@pytest.mark.slow
def test_one_picture_is_asked(evaluated, dry_run):
    source = sorted((evaluated / "results/phantom").glob("**/SYN0001-1-1.dcm"))
    assert source, "the slice has this picture"
    asking = ["--config", f"image={source[0]}", "instruction=Segment the effusion in the left lung base."]
    snakemake(evaluated, "predict", *asking)
    folder = evaluated / "results/inference/default/predict/SYN0001-1-1"
    answers = json.loads((folder / "answers.json").read_text())
    assert [finding["instruction"] for finding in answers["findings"]] == [asking[2].partition("=")[2]]
    assert (folder / answers["findings"][0]["mask"]).is_file()
    done = snakemake(evaluated, "predict", check=False)
    assert done.returncode
    assert "predict needs --config image=chest.dcm instruction=" in done.stderr
    assert "Traceback" not in done.stderr
    assert not list((evaluated / "logs/inference").glob("**/none.log"))
