"""The outputs of each of Table 4's baselines become predictions, and unreadable outputs are counted."""

import json
from collections import Counter

import cv2
import numpy as np
import pytest

from cxr.base.errors import UserError
from cxr.base.hdf5 import Shard
from cxr.base.tables import read_lines, read_table
from cxr.ils.evaluation import summary
from cxr.ils.evaluation.adapters import ADAPTERS, choose_adapter, parse_grid, run_predictions
from cxr.ils.evaluation.evaluate import run_scores
from cxr.ils.evaluation.predictions import MaskFault
from cxr.ils.evaluation.settings import OutputFormat, ScoringOptions
from evaluation_cases import LINES, MASKS, SIZE, box, dataset, outputs

POSITIVES = {line["pair_id"]: MASKS[line["mask_id"]] for line in LINES if line["mask_id"]}
BASELINES = {
    "LISA-7B": "lisa",
    "LISA-13B": "lisa",
    "Text4Seg": "text4seg",
    "PixelLM-7B": "pixellm",
    "PixelLM-13B": "pixellm",
    "BiomedParse": "biomedparse",
    "RecLMIS": "reclmis",
    "IMIS-Net": "imisnet",
}


def evaluate(tmp_path, adapter, source, grid=24):
    """Convert and score; return the rows of the pairs and the predictions' lines."""
    data = dataset(tmp_path)
    made = {"predictions": str(tmp_path / "made.jsonl"), "prediction_masks": str(tmp_path / "made.h5")}
    options = OutputFormat(adapter=adapter, grid=grid)
    run_predictions(
        lines=data["lines"], source=str(source), **made, options=options, size=SIZE, attrs={"stage": "test"}
    )
    scoring = ScoringOptions(size=SIZE, replicates=0)
    run_scores(**data, **made, **outputs(tmp_path), options=scoring, seed=0, model="LISA-7B")
    return read_table(tmp_path / "pairs.parquet"), list(read_lines(made["predictions"]))


def perfect(rows) -> bool:
    return rows["iou"].to_list() == pytest.approx([1] * len(LINES), abs=1e-4)


@pytest.fixture
def folder(tmp_path):
    made = tmp_path / "theirs"
    made.mkdir()
    return made


def test_every_baseline_of_table_4_has_an_adapter():
    printed = summary.read_paper_scores().models
    assert set(BASELINES) == {name for name in printed if not name.startswith("ROSALIA")}
    assert set(BASELINES.values()) <= set(ADAPTERS)


@pytest.mark.parametrize("model", ["LISA-7B", "LISA-13B"])
def test_lisa_masks_are_joined_and_silence_is_an_empty_mask(tmp_path, folder, model):
    for pair_id, mask in POSITIVES.items():
        # no edge on those of JPEG's blocks of 8: it blurs them, they must come back exact
        mask = np.kron(mask, np.ones((10, 10), bool))
        halves = [mask & (np.arange(160) < 35), mask & (np.arange(160) >= 35)]
        for number, half in enumerate(halves):
            cv2.imwrite(str(folder / f"{pair_id}_mask_{number}.jpg"), half.astype(np.uint8) * 100)
        (folder / f"{pair_id}.txt").write_text("Sure, [SEG] .\n")
    (folder / "p3.txt").write_text("There is none.")
    (folder / "p4.txt").write_text("Nothing here.")
    cv2.imwrite(str(folder / "p0_masked_img_0.jpg"), np.zeros((8, 8), np.uint8))  # its overlay is no mask
    rows, lines = evaluate(tmp_path, BASELINES[model], folder)
    assert perfect(rows)
    assert rows["reason"].to_list() == ["", "", "", "no_mask", "no_mask", ""]
    assert [line["answer"] for line in lines] == ["Sure, [SEG] ."] * 3 + [
        "There is none.",
        "Nothing here.",
        "Sure, [SEG] .",
    ]
    assert rows["strict"].to_list() == [False] * 6


def test_what_jpeg_blurs_comes_back_exact(folder):
    random = np.random.default_rng(0)
    mask = cv2.GaussianBlur(random.random((203, 203)), (0, 0), 6) > 0.5
    cv2.imwrite(str(folder / "p0_mask_0.jpg"), mask.astype(np.uint8) * 100)
    decoded = cv2.imread(str(folder / "p0_mask_0.jpg"), cv2.IMREAD_GRAYSCALE)
    assert len(np.unique(decoded)) > 10
    assert (choose_adapter("lisa", str(folder), 24)("p0").mask == mask).all()


def grid_text(mask: np.ndarray, label: str) -> str:
    """Text4Seg's own form: runs within a row joined by "| ", rows by a line break."""
    rows = []
    for row in mask:
        runs, start = [], 0
        for end in range(1, len(row) + 1):
            if end == len(row) or row[end] != row[start]:
                runs.append(f"{label if row[start] else 'others'} *{end - start}")
                start = end
        rows.append("| ".join(runs))
    return "The result is <seg>" + "\n ".join(rows) + "</seg>."


@pytest.mark.parametrize("side", [16, 24])
def test_text4seg_grids(tmp_path, folder, side):
    masks = {pair_id: cv2.resize(mask.astype(np.uint8), (side, side), interpolation=cv2.INTER_NEAREST) > 0
             for pair_id, mask in POSITIVES.items()}  # fmt: skip
    path = folder / "out.jsonl"
    texts = {pair_id: grid_text(mask, "effusion in the left lung") for pair_id, mask in masks.items()}
    texts |= {"p3": grid_text(np.zeros((side, side), bool), "x"), "p4": "I cannot do that."}
    path.write_text("".join(json.dumps({"pair_id": key, "text": value}) + "\n" for key, value in texts.items()))
    rows, _ = evaluate(tmp_path, BASELINES["Text4Seg"], path, grid=side)
    assert rows["reason"].to_list() == ["", "", "", "", "undecodable_text", ""]
    assert rows["iou"].to_list()[3:5] == [1.0, 1.0]  # its own code makes an unreadable text an empty mask
    if side == 16:
        assert perfect(rows)
    else:
        assert rows["iou"].to_list()[0] == pytest.approx(1, abs=0.4)
        assert parse_grid(texts["p1"], side).tolist() == masks["p1"].tolist()


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        ("<seg>others *2\n a b *1| others *1</seg>", ["00", "10"]),
        ("<seg>others *1| a *1</seg>", ["01", "11"]),  # too short: the last cell again
        ("<seg>a *3| others *9</seg>", ["11", "10"]),  # too long: cut
        ("<seg>a *1| others *1", ["10", "00"]),  # stopped at the token limit
        ("<seg>Others *4</seg>", ["00", "00"]),
        ("<seg>a*4</seg>", ["11", "11"]),
        ("<seg>a * b *4</seg>", ["11", "11"]),
    ],
)
def test_a_grid_by_hand(text, rows):
    assert ["".join(map(str, row)) for row in parse_grid(text, 2).astype(int)] == rows


@pytest.mark.parametrize(
    "text", ["", "others *4", "<seg></seg>", "<seg>a 4</seg>", "<seg>a *x</seg>", "<seg>a *-4</seg>"]
)
def test_a_text_without_a_grid_is_refused(text):
    with pytest.raises(ValueError, match=r"\w"):
        parse_grid(text, 2)


def test_text4seg_after_sam(tmp_path, folder):
    for pair_id, mask in POSITIVES.items():
        cv2.imwrite(str(folder / f"{pair_id}_sam_mask.png"), mask.astype(np.uint8) * 255)
        cv2.imwrite(str(folder / f"{pair_id}_pred_mask.png"), np.zeros((16, 16), np.uint8))
    rows, _ = evaluate(tmp_path, "text4seg_sam", folder)
    assert rows["reason"].to_list() == ["", "", "", "no_prediction", "no_prediction", ""]
    assert rows["iou"].to_list() == pytest.approx([1, 1, 1, 0, 0, 1], abs=1e-4)


@pytest.mark.parametrize("model", ["PixelLM-7B", "PixelLM-13B"])
def test_pixellm_logits_of_several_targets_are_joined(tmp_path, folder, model):
    for pair_id, mask in POSITIVES.items():
        left = np.arange(16) < 6
        logits = np.where(np.stack([mask & left, mask & ~left]), 0.25, -3.0)  # 0.25: under the cut of a probability
        np.save(folder / f"{pair_id}.npy", logits.astype(np.float32))
    for pair_id in ("p3", "p4"):
        np.save(folder / f"{pair_id}.npy", np.zeros((0, 16, 16), np.float32))  # it named nothing
    rows, _ = evaluate(tmp_path, BASELINES[model], folder)
    assert perfect(rows)
    assert rows["reason"].to_list()[3:5] == ["no_mask", "no_mask"]


@pytest.mark.parametrize(
    ("model", "shape"), [("BiomedParse", (1, 64, 64)), ("RecLMIS", (224, 224)), ("IMIS-Net", (1, 64, 64))]
)
def test_probabilities_above_a_half_are_lesion(tmp_path, folder, model, shape):
    for line in LINES:
        mask = POSITIVES.get(line["pair_id"], np.zeros((16, 16), bool))
        large = cv2.resize(mask.astype(np.uint8), shape[-2:], interpolation=cv2.INTER_NEAREST)
        np.save(folder / f"{line['pair_id']}.npy", np.where(large, 0.51, 0.5).reshape(shape).astype(np.float32))
    rows, _ = evaluate(tmp_path, BASELINES[model], folder)
    assert perfect(rows)
    assert set(rows["reason"]) == {""}


def test_masks_as_pictures(tmp_path, folder):
    for pair_id, mask in POSITIVES.items():
        cv2.imwrite(str(folder / f"{pair_id}.png"), mask.astype(np.uint8))  # 1, not 255
    (folder / "p3.txt").write_text("[SEG] There is no effusion.")
    rows, _ = evaluate(tmp_path, "png", folder)
    assert rows["iou"].to_list() == pytest.approx([1, 1, 1, 1, 0, 1], abs=1e-4)
    assert rows["reason"].to_list() == ["", "", "", "no_mask", "no_prediction", ""]
    assert rows["strict"].to_list() == [False, False, False, True, False, False]


def test_everything_as_lesion(tmp_path):
    data = dataset(tmp_path)
    made = {"predictions": str(tmp_path / "made.jsonl"), "prediction_masks": str(tmp_path / "made.h5")}
    options = OutputFormat(adapter="everything")
    run_predictions(lines=data["lines"], **made, options=options, size=SIZE, attrs={}, source=[])
    with Shard(made["prediction_masks"], key="pair_id") as shard:
        assert all(shard.get("mask", line["pair_id"]).all() for line in LINES)


def test_failures_are_counted_each_with_its_reason(tmp_path, folder):
    np.save(folder / "p0.npy", np.array([[np.nan, 1.0], [0, 0]], np.float32))
    np.save(folder / "p1.npy", np.zeros((2, 3), np.float32))
    np.save(folder / "p2.npy", np.array(["a"]))
    (folder / "p3.npy").write_bytes(b"\x93NUMPY broken")
    np.save(folder / "p4.npy", np.array([{"a": 1}], dtype=object), allow_pickle=True)
    rows, lines = evaluate(tmp_path, "biomedparse", folder)
    assert Counter(rows["reason"]) == {"damaged_mask": 4, "wrong_size": 1, "no_prediction": 1}
    assert rows["iou"].to_list() == [0.0] * 6
    assert len(lines) == 5
    counts = dict(read_table(tmp_path / "counts.tsv").select("what", "number").iter_rows())
    assert counts["in the split"] == 6 == sum(counts[reason] for reason in set(rows["reason"])) + counts["with a mask"]


def test_a_pair_asked_twice_has_failed(tmp_path, folder):
    text = grid_text(box(0, 0, 4, 4), "a")
    entries = [{"pair_id": "p0", "text": text}] * 2 + [{"pair_id": "p1", "text": text}]
    (folder / "out.jsonl").write_text("".join(f"{json.dumps(entry)}\n" for entry in entries))
    rows, _ = evaluate(tmp_path, "text4seg", folder / "out.jsonl", grid=16)
    assert rows["reason"].to_list()[:2] == ["duplicate", ""]


def test_what_is_wrong_as_a_whole_is_one_sentence(tmp_path, folder):
    with pytest.raises(UserError, match="no output for any pair"):
        evaluate(tmp_path, "lisa", folder)
    assert not (tmp_path / "made.jsonl").exists()
    assert not (tmp_path / "made.h5").exists()


def test_lines_of_text_that_are_none_are_named_by_their_number(tmp_path, folder):
    (folder / "out.jsonl").write_text('{"pair_id": "p0", "text": "a"}\n{"pair_id": "p1"}\n')
    with pytest.raises(UserError, match=r"out\.jsonl line 2"):
        evaluate(tmp_path, "text4seg", folder / "out.jsonl")


def test_a_pair_id_is_no_way_out_of_the_folder(tmp_path, folder):

    np.save(tmp_path / "secret.npy", np.ones((4, 4), np.float32))
    with pytest.raises(MaskFault):
        choose_adapter("biomedparse", str(folder), 24)("../secret")
