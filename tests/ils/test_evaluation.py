"""Scores of masks: equal to the original's to the digit, by hand, with every kind of unusable prediction."""

import json

import numpy as np
import polars as pl
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from matplotlib.container import BarContainer

from cxr.base.errors import StoreError, UserError
from cxr.base.hdf5 import pack
from cxr.base.jobs import settings_arguments
from cxr.base.tables import read_table, write_lines
from cxr.base.vocabulary import LESIONS
from cxr.geometry.rle import decode_rle, encode_rle
from cxr.ils.evaluation import charts, summary
from cxr.ils.evaluation.evaluate import run_comparison, run_scores
from cxr.ils.evaluation.summary import read_scores
from cxr.metrics import masks as metrics
from evaluation_cases import LINES, MASKS, SIZE, box, dataset, outputs, predictions
from scored import OPTIONS, own, score

PAPER = summary.read_paper_scores()


# The original's numbers


@pytest.fixture(scope="module")
def metric(shared):
    path = shared / "fixtures" / "lisa_reference" / "reference.npz"
    if not path.is_file():
        pytest.skip(f"no numerical reference: {path}")
    with np.load(path) as arrays:
        return {name.removeprefix("metric/"): arrays[name] for name in arrays.files if name.startswith("metric/")}


def overlaps(metric, *, foreground: bool) -> np.ndarray:
    """Return (6, 2) intersections and unions of one class, by our code."""
    both = zip(metric["pred"].astype(bool) == foreground, metric["gt"].astype(bool) == foreground, strict=True)
    return np.array([metrics.overlap_packed(pack(predicted), pack(reference)) for predicted, reference in both])


@pytest.mark.parametrize("foreground", [False, True])
def test_overlap_and_iou_are_the_originals_to_the_digit(metric, foreground):
    intersection, union = overlaps(metric, foreground=foreground).T
    assert intersection.tolist() == metric["intersection"][:, int(foreground)].tolist()
    assert union.tolist() == metric["union"][:, int(foreground)].tolist()
    ours = metrics.lisa_iou(intersection, union)
    assert ours.dtype == np.float32
    assert ours.tobytes() == np.ascontiguousarray(metric["acc_iou"][:, int(foreground)]).tobytes()


def test_means_are_the_originals_to_the_digit(metric):
    intersection, union = overlaps(metric, foreground=True).T
    iou, positive = metrics.lisa_iou(intersection, union), metric["gt"].any(axis=(1, 2))
    ours = {
        name: metrics.PAIR_METRICS[column].score(iou[pairs], intersection[pairs], union[pairs])
        for name, column, pairs in (
            ("giou_all", "giou", positive | True), ("giou_pos", "giou", positive), ("n_acc", "n_acc", ~positive),
            ("ciou_all", "ciou", positive | True), ("ciou_pos", "ciou", positive),
        )
    }  # fmt: skip
    for name, value in ours.items():
        # the original sums in single precision, one after the other: its last digit
        assert abs(value - float(metric[name])) <= np.spacing(metric[name]), name
    for chosen, name in ((positive, "giou_pos"), (~positive, "n_acc"), (positive | True, "giou_all")):
        assert iou[chosen].cumsum(dtype=np.float32)[-1] / np.float32(chosen.sum()) == metric[name], name
    assert 0 < positive.sum() < len(positive)


# Run lengths


@pytest.mark.parametrize(
    ("rle", "rows"),
    [
        # down the columns: 1 off, 3 on
        ({"size": [2, 2], "counts": [1, 3]}, ["01", "11"]),
        ({"size": [2, 2], "counts": "13"}, ["01", "11"]),
        # starts with the lesion
        ({"size": [2, 3], "counts": [0, 2, 3, 1]}, ["100", "101"]),
        # the fourth count is written as its difference to the second: 1 - 2 = -1, five bits 11111 = "O"
        ({"size": [2, 3], "counts": "023O"}, ["100", "101"]),
        # 100 = 00100 and more, 00011: "T3"; 16 needs a second group lest it look negative: "`0"
        ({"size": [29, 4], "counts": "T3`0"}, ["0000"] * 13 + ["0001"] * 16),
    ],
)
def test_run_lengths_by_hand(rle, rows):
    assert ["".join(map(str, row)) for row in decode_rle(rle).astype(int)] == rows


@given(hnp.arrays(bool, st.tuples(st.integers(1, 40), st.integers(1, 40))))
def test_run_lengths_go_there_and_back(mask):
    code = encode_rle(mask)
    assert (decode_rle(code) == mask).all()
    flat = mask.T.ravel().tolist()
    runs, last = [], False
    for value in flat:  # an oracle of another kind
        if value != last or not runs:
            runs += [0] if value and not runs else []
            runs.append(0)
            last = value
        runs[-1] += 1
    assert (decode_rle({"size": list(mask.shape), "counts": runs}) == mask).all()
    assert encode_rle(decode_rle({"size": list(mask.shape), "counts": runs})) == code


@pytest.mark.parametrize(
    "rle",
    [
        None,
        {},
        {"size": [2, 2]},
        {"size": [2], "counts": [4]},
        {"size": [2, 2], "counts": [5]},
        {"size": [2, 2], "counts": [1, 2]},
        {"size": [2, 2], "counts": [-1, 5]},
        {"size": [2, 2], "counts": [1.5, 2.5]},
        {"size": [0, 0], "counts": []},
        {"size": [10**6, 10**6], "counts": [10**12]},
        {"size": [2, 2], "counts": "T"},
        {"size": [2, 2], "counts": "1 3"},
        {"size": [2, 2], "counts": 4},
        {"size": "ab", "counts": [4]},
    ],
)
def test_damaged_run_lengths_are_refused(rle):
    with pytest.raises(ValueError, match=r"\w"):
        decode_rle(rle)


# A whole run


def big(mask: np.ndarray) -> np.ndarray:
    return np.kron(mask, np.ones((2, 2), bool))


def test_scores_by_hand(tmp_path):
    # p0 exact; p1 half of it and nothing else; p2 all of it and as much again; p3 silent; p4 one pixel; p5 nothing
    masks = {
        "p0": big(MASKS["m0"]),
        "p1": big(box(4, 4, 8, 12)),
        "p2": big(box(4, 4, 12, 12) | box(12, 0, 16, 16)),
        "p3": np.zeros((SIZE, SIZE), bool),
        "p4": np.eye(SIZE, dtype=bool) & (np.arange(SIZE) == 3),
        "p5": np.zeros((SIZE, SIZE), bool),
    }
    made = score(tmp_path, own(range(6)), masks)
    rows = made["pairs"]
    assert rows["intersection"].to_list() == [64, 128, 256, 0, 0, 0]
    assert rows["union"].to_list() == [64, 256, 512, 0, 1, 512]
    exact = [64 / 64, 128 / 256, 256 / 512, 1, 0, 0]
    assert rows["iou"].to_list() == pytest.approx(exact, abs=1e-6)
    assert rows["polarity"].to_list() == ["positive", "positive", "positive", "negative", "negative", "positive"]
    assert set(rows["reason"]) == {""}
    table = {row["lesion"]: row for row in made["scores_table"].iter_rows(named=True)}
    assert list(table) == [*LESIONS, "total"]
    total = table["total"]
    assert (total["positives"], total["negatives"], total["failed"]) == (4, 2, 0)
    assert total["giou"] == 50.0  # (1 + 1/2 + 1/2 + 0) / 4
    assert total["ciou"] == round(100 * 448 / 1344, 2)
    assert total["n_acc"] == 50.0
    assert (table["edema"]["giou"], table["edema"]["ciou"]) == (50.0, 50.0)
    assert table["edema"]["n_acc"] is None
    assert (table["effusion"]["giou"], table["effusion"]["n_acc"]) == (100.0, 100.0)
    assert (table["opacity"]["giou"], table["opacity"]["n_acc"]) == (None, 0.0)
    assert table["pneumonia"]["positives"] == 0
    assert total["giou_paper"] == 71.2
    assert total["giou_low"] is None  # no replicates
    assert "91.2" in total["note"]
    assert made["text_table"].is_empty()
    counts = {(of, what): number for of, what, number in made["counts_table"].iter_rows()}
    assert counts == {
        ("pairs", "in the split"): 6,
        ("pairs", "with a mask"): 6,
        ("lines", "in the file"): 6,
        ("lines", "first of their pair"): 6,
    }


def test_every_form_of_a_mask_scores_the_same(tmp_path):
    import cv2

    masks = {f"p{n}": big(MASKS[line["mask_id"]]) for n, line in enumerate(LINES) if line["mask_id"]}
    entries = own([0, 1, 2, 5]) + own([3, 4], mask=None)
    stored = score(tmp_path, entries, masks)["pairs"]
    small = score(tmp_path, entries, {name: mask[::2, ::2] for name, mask in masks.items()})["pairs"]
    coded = [{"pair_id": name, "answer": None, "rle": encode_rle(mask)} for name, mask in masks.items()]
    (tmp_path / "png").mkdir()
    pictures = []
    for name, mask in masks.items():
        halves = [mask & (np.arange(SIZE) < 12), mask & (np.arange(SIZE) >= 12)]
        for half, part in enumerate(halves):
            cv2.imwrite(str(tmp_path / "png" / f"{name}-{half}.png"), part.astype(np.uint8) * 255)
        names = [f"png/{name}-{half}.png" for half in (0, 1)]
        pictures.append({"pair_id": name, "answer": None, "mask_path": names})
    silent = [{"pair_id": name} for name in ("p3", "p4")]
    assert stored["iou"].to_list() == pytest.approx([1] * 6, abs=1e-4)
    for rows in (small, score(tmp_path, coded + silent)["pairs"], score(tmp_path, pictures + silent)["pairs"]):
        assert rows.equals(stored)
    assert stored["reason"].to_list() == ["", "", "", "no_mask", "no_mask", ""]


def test_what_cannot_be_used_is_a_row_with_its_reason(tmp_path):
    (tmp_path / "broken.png").write_bytes(b"\x89PNG no more")
    entries = [
        {"pair_id": "p0", "mask_path": "broken.png"},
        {"pair_id": "p1", "rle": {"size": [4, 4], "counts": [3]}},
        {"pair_id": "p2", "rle": encode_rle(np.ones((4, 6), bool))},
        {"pair_id": "p3", "mask": "elsewhere"},
        {"pair_id": "p4", "mask": None},
        {"pair_id": "p4", "mask": None},
        {"pair_id": "stranger", "mask": None},
        "not json",
        '{"no_pair_id": 1}',
        "",
    ]
    made = score(tmp_path, entries, {"p9": np.zeros((SIZE, SIZE), bool)})
    reasons = made["pairs"]["reason"].to_list()
    assert reasons == ["damaged_mask", "damaged_mask", "wrong_size", "missing_mask", "duplicate", "no_prediction"]
    assert made["pairs"]["iou"].to_list() == [0.0] * 6  # failing is no way of saying "nothing there"
    assert made["pairs"]["union"].to_list() == [64, 256, 256, 0, 0, 512]
    assert [tuple(row) for row in made["excluded"].select("pair_id", "reason").iter_rows()] == [
        *zip([f"p{n}" for n in range(6)], reasons, strict=True),
        ("", "duplicate"),
        ("", "unknown_pair"),
        ("", "bad_line"),
        ("", "bad_line"),
    ]
    assert made["excluded"]["detail"].to_list()[-4:] == ["line 6", "line 7", "line 8", "line 9"]
    counts = {(of, what): number for of, what, number in made["counts_table"].iter_rows()}
    assert counts["lines", "in the file"] == 9
    assert counts["lines", "first of their pair"] == 5
    assert counts["pairs", "damaged_mask"] == 2
    total = made["scores_table"].row(-1, named=True)
    assert (total["failed"], total["giou"], total["n_acc"]) == (6, 0.0, 0.0)


def test_a_damaged_row_of_the_masks_is_its_pairs_alone(tmp_path):
    import h5py

    noise = np.random.default_rng(3)
    masks = {f"p{n}": noise.random((128, 128)) > 0.5 for n in range(6)}
    files = dataset(tmp_path) | predictions(tmp_path, own(range(6)), masks)
    with h5py.File(files["prediction_masks"]) as file:
        chunk = file["mask"].id.get_chunk_info(2)
    with open(files["prediction_masks"], "r+b") as file:
        file.seek(chunk.byte_offset + 5)
        file.write(b"\xff\x00\xff\x00")
    run_scores(**files, **outputs(tmp_path), **settings_arguments(run_scores, OPTIONS))
    rows = read_table(tmp_path / "pairs.parquet")
    assert rows["reason"].to_list() == ["", "", "damaged_mask", "", "", ""]


def test_reviewed_pairs_leave_the_scores_but_not_the_counts(tmp_path):
    masks = {f"p{n}": np.ones((SIZE, SIZE), bool) for n in range(6)}
    full = score(tmp_path, own(range(6)), masks)
    less = score(tmp_path, own(range(6)), masks, reviewed="# rejected\np1\np4  # by two\n\nelsewhere\n")
    assert full["scores_table"].row(-1, named=True)["positives"] == 4
    total = less["scores_table"].row(-1, named=True)
    assert (total["positives"], total["negatives"], total["reviewed"], total["failed"]) == (3, 1, 2, 0)
    rows = less["pairs"].filter(pl.col("reason") == "reviewed")
    assert rows["pair_id"].to_list() == ["p1", "p4"]
    assert rows["iou"].null_count() == 2
    kept = full["pairs"].filter(~pl.col("pair_id").is_in(["p1", "p4"]))
    assert kept.equals(less["pairs"].filter(pl.col("reason") != "reviewed"))


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"entries": [{"pair_id": "other"}]}, "none of the 1 lines names a pair"),
        ({"entries": []}, "none of the 0 lines"),
        ({"lines": [LINES[0], LINES[0]]}, "1 pair_id comes twice"),
    ],
)
def test_what_is_wrong_as_a_whole_is_one_sentence(tmp_path, change, match):
    with pytest.raises(UserError, match=match) as raised:
        score(tmp_path, change.get("entries", own([0])), lines=change.get("lines"))
    assert "\n" not in str(raised.value)


def test_files_that_are_not_there_are_named(tmp_path):
    files = dataset(tmp_path) | predictions(tmp_path, own([0]))
    with pytest.raises(UserError, match="nowhere"):
        run_scores(**files | {"predictions": "nowhere"}, **outputs(tmp_path), **settings_arguments(run_scores, OPTIONS))
    with pytest.raises(UserError, match=r"evaluation\.reviewed: nowhere cannot be read"):
        run_scores(**files, **outputs(tmp_path), **settings_arguments(run_scores, OPTIONS), reviewed="nowhere")
    (tmp_path / "p.h5").write_bytes(b"no hdf5")
    with pytest.raises(StoreError, match=r"p\.h5"):
        run_scores(
            **files,
            **outputs(tmp_path),
            **settings_arguments(run_scores, OPTIONS),
            prediction_masks=str(tmp_path / "p.h5"),
        )


def test_the_same_inputs_give_the_same_bytes(tmp_path):
    masks = {f"p{n}": np.random.default_rng(n).random((SIZE, SIZE)) > 0.5 for n in range(6)}
    score(tmp_path, own(range(6), answer="[SEG]"), masks, replicates=50)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir() if path.suffix in (".tsv", ".parquet")}
    score(tmp_path, own(range(6), answer="[SEG]"), masks, replicates=50)
    assert before == {name: (tmp_path / name).read_bytes() for name in before}
    assert {"scores.tsv", "text.tsv", "pairs.parquet"} <= before.keys()


# Side by side


def test_the_comparison_holds_every_run_and_the_papers_models(tmp_path):
    masks = {f"p{n}": np.ones((SIZE, SIZE), bool) for n in range(6)}
    for run in ("mine", "BiomedParse"):
        folder = tmp_path / run
        folder.mkdir()
        said = {"answer": "[SEG]"} if run == "mine" else {}
        model = "ROSALIA" if run == "mine" else run
        score(folder, own(range(6), **said), masks, replicates=20, model=model)
    names = {"comparison_table": "comparison.tsv", "masks_figure": "masks.png", "text_figure": "text.png"}
    run_comparison(
        scores=[str(tmp_path / run / "scores.tsv") for run in ("mine", "BiomedParse")],
        texts=[str(tmp_path / run / "text.tsv") for run in ("mine", "BiomedParse")],
        **{name: str(tmp_path / file) for name, file in names.items()},
        runs=["mine", "BiomedParse"],
        dpi=40,
    )
    table = read_table(tmp_path / "comparison.tsv")
    ours = table.filter(pl.col("source") == "ours")
    assert ours.group_by("run", maintain_order=True).len().rows() == [("mine", 8), ("BiomedParse", 8)]
    printed = {row["run"]: row for row in table.filter(pl.col("source") == "paper").iter_rows(named=True)}
    assert list(printed) == list(PAPER.models)
    assert [printed["Text4Seg"][measure] for measure in metrics.PAIR_METRICS] == [6.1, 10.3, 20.6]
    assert printed["ROSALIA"]["text_authors"] == 94.4
    mine = ours.filter((pl.col("run") == "mine") & (pl.col("lesion") == "total")).row(0, named=True)
    # of six bare [SEG] two are right: the basic positive's and cardiomegaly's
    assert mine["text_strict"] == round(100 * 2 / 6, 2)
    assert mine["text_authors"] == round(100 * 2 / 6, 2)
    theirs = ours.filter((pl.col("run") == "BiomedParse") & (pl.col("lesion") == "total")).row(0, named=True)
    assert theirs["text_strict"] in (None, "")
    assert theirs["giou"] == mine["giou"]
    assert read_scores(tmp_path / "BiomedParse" / "scores.tsv").row(-1, named=True)["giou_paper"] == 23.8
    for name in ("masks.png", "text.png"):
        assert (tmp_path / name).read_bytes().startswith(b"\x89PNG")


def test_the_bars_are_the_scores_and_the_diamonds_the_papers(tmp_path):
    masks = {f"p{n}": np.ones((SIZE, SIZE), bool) for n in range(6)}
    table = score(tmp_path, own(range(6)), masks, replicates=20)["scores_table"]
    figure = charts.draw_mask_scores({"one": table, "two": table})
    for axes, measure in zip(figure.axes, metrics.PAIR_METRICS, strict=True):
        known = [row for row in table.iter_rows(named=True) if row[measure] is not None]
        assert sorted(bar.get_height() for bar in axes.patches) == sorted(2 * [row[measure] for row in known])
        # a whisker is a line of its container, a diamond a line of its own
        diamonds = [line.get_ydata()[0] for line in axes.lines if line.get_marker() == "D"]
        assert sorted(diamonds) == sorted(2 * table[f"{measure}_paper"].to_list())
        lowest = min(row[f"{measure}_low"] for row in known)
        bars = [container for container in axes.containers if isinstance(container, BarContainer)]
        ends = [part for bar in bars if bar.errorbar for part in bar.errorbar[2][0].get_segments()]
        assert min(segment[0][1] for segment in ends) == pytest.approx(lowest)
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["one", "two", charts.PAPER_LABEL]
    assert len({bar.get_facecolor() for bar in figure.axes[0].patches}) == 2


def test_the_papers_values_are_those_of_the_specification(shared):
    theirs = yaml.safe_load((shared / "spec" / "ils_tables.yaml").read_text(encoding="utf-8"))
    named = dict(zip(metrics.PAIR_METRICS, range(3), strict=True))
    table4 = {name: row for name, row in theirs["table4_baselines"].items() if isinstance(row, list) and len(row) == 3}
    table4.pop("medical_domain", None)
    variants = theirs["table4_baselines"]["variants"]
    expected = table4 | {
        "ROSALIA, higher recall": variants["higher_recall_training"],
        "ROSALIA, paraphrased": variants["paraphrased_train_and_test"],
    }
    assert {name: [row[measure] for measure in named] for name, row in PAPER.models.items()} == expected
    assert {name: list(row.values()) for name, row in PAPER.lesions.items()} == theirs["table5_per_lesion"]
    assert {name: list(row.values()) for name, row in PAPER.text.items()} == (
        theirs["table6_text_accuracy"] | {k: v for k, v in theirs["table14_text_accuracy"].items() if k != "total"}
    )
    assert theirs["table14_text_accuracy"]["total"] == list(PAPER.text["total"].values())


def test_another_models_run_stands_beside_its_own_totals_alone():
    beside = PAPER.select_for_model("LISA-7B")
    assert beside.lesions["total"] == {"giou": 8.3, "ciou": 12.8, "n_acc": 0.7}
    assert set(beside.lesions["edema"].values()) == {None}
    assert set(PAPER.select_for_model("unheard of").lesions["total"].values()) == {None}
    assert PAPER.select_for_model("ROSALIA") is PAPER


def test_lines_may_be_in_any_order(tmp_path):
    masks = {f"p{n}": np.random.default_rng(n).random((SIZE, SIZE)) > 0.5 for n in range(6)}
    forwards = score(tmp_path, own(range(6)), masks)["pairs"]
    backwards = score(tmp_path, own(reversed(range(6))), masks)["pairs"]
    assert forwards.equals(backwards)
    assert json.loads((tmp_path / "predictions.jsonl").read_text().splitlines()[0])["pair_id"] == "p5"
    write_lines(tmp_path / "test.jsonl", LINES)
