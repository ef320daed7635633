"""The benchmark's port of the original loop equals the original's arrays and ours; wrong arguments are refused."""

import json
import shutil
import sys
from pathlib import Path

import pytest
import torch

from conftest import ROOT
from cxr.base.tables import read_table
from cxr.segmentation.losses import LossWeights
from lisa_reference import Reference
from rosalia_pairs import tokens, write

sys.path.insert(0, str(ROOT / "benchmarks"))
import rosalia
import rosalia_nets as nets
import rosalia_original as original
from rosalia_memory import whole
from tensors_alive import Alive

GENERATED_SEG = 83
"""The token that the fixture's case ``evaluate`` takes for [SEG]."""


@pytest.fixture(scope="module")
def reference(shared) -> Reference:
    return Reference(shared / "fixtures" / "lisa_reference")


@pytest.mark.parametrize("case", ["A_square", "B_nonsquare"])
def test_the_port_of_a_training_step_is_the_original(reference, case):
    model, batch = reference.model(), reference.batch(case)
    held = reference.meta["loss_weights"]["rosalia"]
    weights = LossWeights(text=held["ce"], bce=held["bce"], dice=held["dice"])
    found = original.losses(model, batch, weights)
    for ours, theirs in zip(found, ("loss", "ce_loss", "mask_bce_loss", "mask_dice_loss"), strict=True):
        wanted = float(reference[f"{case}/loss/code_rosalia/weights_rosalia/{theirs}"])
        assert found[ours].item() == pytest.approx(wanted, abs=1e-4)
    _, masks = original.predicted(model, batch)
    for image, drawn in enumerate(masks):
        assert (drawn - reference[f"{case}/out/pred_masks/{image}"]).abs().max() < 5e-4


def test_the_port_of_the_generation_is_the_original(reference):
    model, question = reference.model(GENERATED_SEG), reference.question()
    with torch.no_grad():
        said, masks = original.evaluate(model, question, int(reference["evaluate/in/max_new_tokens"]))
    asked = int((reference["evaluate/in/input_ids"][0]).shape[0])
    assert said == reference["evaluate/output_ids"][0, asked:].tolist()
    assert (masks - reference["evaluate/pred_masks"]).abs().max() < 5e-4
    assert GENERATED_SEG in said


def test_the_true_size():
    model = nets.random_7b(tokens(), None, torch.device("meta"), torch.bfloat16)
    count = {name: sum(value.numel() for value in part.parameters()) for name, part in model.named_children()}
    rows = 2 * 4 * 4096  # LISA's tokens in the embedding and in the head
    linear_1, clip = 1024 * 4096 + 4096, 303_179_776
    assert count["llava"] == 6_738_415_616 + rows + linear_1 + clip
    assert count["sam"] == pytest.approx(641_090_608, abs=2 * 128)
    assert count["project"] == 4096 * 4096 + 4096 + 4096 * 256 + 256
    assert {value.dtype for value in model.parameters()} == {torch.bfloat16}


@pytest.fixture(scope="module")
def results(tmp_path_factory) -> Path:
    """A dataset as the stages before leave it."""
    folder = tmp_path_factory.mktemp("bench") / "results"
    write(folder)
    (folder / "dataset/default").mkdir(parents=True)
    lines = [json.loads(line) | {"image_id": "i1"} for line in (folder / "train.jsonl").read_text().splitlines()[:3]]
    for split in ("validate", "test"):
        with open(folder / f"dataset/default/{split}.jsonl", "w") as file:
            file.writelines(json.dumps(line) + "\n" for line in lines)
    (folder / "train.jsonl").rename(folder / "dataset/default/train.jsonl")
    (folder / "masks/default").mkdir()
    for path in folder.glob("masks/*.h5"):
        shutil.move(path, folder / "masks/default" / path.name)
    return folder


def bench(results: Path, output: Path, *more: str) -> None:
    given = ["--batches=2", "--steps=2", "--updates=0", "--rounds=1", "--max-new-tokens=3", "--device=cpu"]
    rosalia.main([*given, "--results", str(results), "--output", str(output), *more])


def test_both_loops_agree_and_are_measured(results, tmp_path):
    bench(results, tmp_path / "t.tsv")
    table = read_table(tmp_path / "t.tsv")
    assert table["what"].to_list() == [
        "evaluation, masks and answers", "evaluation, masks alone", "training step",
        "training step, all pictures different",
    ]  # fmt: skip
    assert table["agreement"].min() > 1 - 1e-4
    assert table["pairs"].to_list() == [3, 3, 4, 4]
    assert table["images"].to_list()[0] == 1
    for ours, theirs, ratio in table.select("ours_pairs_per_s", "original_pairs_per_s", "ratio").iter_rows():
        assert ratio == pytest.approx(ours / theirs, rel=2e-3)


@pytest.mark.parametrize("spoilt", ["losses", "evaluate"])
def test_loops_that_differ_are_not_measured(results, tmp_path, monkeypatch, spoilt):
    right = getattr(original, spoilt)

    def wrong(*given):
        found = right(*given)
        return (found[0], -found[1]) if spoilt == "evaluate" else found | {"loss": found["loss"] * 1.001}

    monkeypatch.setattr(original, spoilt, wrong)
    with pytest.raises(SystemExit, match=r"differ by .* one of them is wrong"):
        bench(results, tmp_path / "t.tsv")
    assert not (tmp_path / "t.tsv").exists()


def test_without_a_dataset(tmp_path):
    with pytest.raises(SystemExit, match=r"holds no dataset: run make demo"):
        rosalia.main(["--results", str(tmp_path)])


def test_the_tensors_that_are_alive_are_counted_by_hand():
    there = torch.zeros(1000)
    with Alive() as alive:
        one = there + 1  # 4,000 bytes
        view = one[:10].view(2, 5)  # none
        two = one * one  # 8,000 at the most
        del one
        assert alive.now == 8000  # the view holds it
        del view
        assert alive.now == 4000
        two.add_(1)
        three = torch.ones(250, dtype=torch.float64)
        assert alive.now == 6000
        del two, three
    assert (alive.now, alive.peak) == (0, 8000)


def test_a_gradient_is_alive_until_it_is_dropped():
    weight = torch.zeros(100, requires_grad=True)
    with Alive() as alive:
        (weight * 2).sum().backward()
        assert alive.now == 400
        weight.grad = None
        assert alive.now == 0


def test_the_whole_models_memory_by_hand():
    """Weights grow by 1 GB a layer, the encoders do not, what follows them by 0.1 from 2 on: 33 + 1 + max(4, 5.1)."""
    parts = {"weights": (2.0, 3.0), "optimiser's moments": (1.0, 1.0), "encoders": (4.0, 4.0),
             "all after the encoders, gradients included": (2.0, 2.1), "a training step": (7.0, 8.0)}  # fmt: skip
    rows = [
        {"what": what, "layers": at + 1, "measured_gb": held[at], "reckoned_gb": None}
        for at in (0, 1)
        for what, held in parts.items()
    ]
    found = {row["what"].partition(",")[0]: row for row in whole(rows, 1, 2)}
    assert found["weights"]["measured_gb"] == pytest.approx(33)
    assert found["a training step"]["measured_gb"] == pytest.approx(33 + 1 + 5.1)
    assert {row["layers"] for row in found.values()} == {32}
