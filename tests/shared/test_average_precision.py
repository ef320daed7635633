"""AP, its matching, its draws, and the statistics on them: against COCO tools, scipy, and slow copies."""

from itertools import pairwise

import numpy as np
import polars as pl
import pytest
from scipy import stats

from cxr.geometry.boxes import box_iou
from cxr.geometry.fusion import fuse_boxes
from cxr.metrics.average_precision import (
    MatchedPredictions,
    average_precision,
    average_precision_by_image,
    match_predictions,
    recall_at,
)
from cxr.metrics.intervals import draw_weights
from cxr.metrics.matching import Boxes
from cxr.metrics.paired import (
    adjust_holm,
    compare_replicates,
    draw_images,
    draw_patient_weights,
    wilcoxon_on_replicates,
)
from xrv_wheel import xrv_table

IOUS = [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7]
Image = tuple[np.ndarray, np.ndarray, np.ndarray]  # boxes, confidences, true boxes


def random_boxes(random: np.random.Generator, count: int, side: int = 12) -> np.ndarray:
    """Return boxes with small whole corners, so that many IoUs are equal."""
    low = random.integers(0, side - 2, (count, 2))
    return np.concatenate([low, low + random.integers(1, side // 2, (count, 2))], axis=1).astype(np.float64)


def random_images(random: np.random.Generator, count: int, most: int = 8) -> list[Image]:
    """Return images with equal confidences, some without a true box, a prediction or both; some boxes are right."""
    found = []
    for _ in range(count):
        truth = random_boxes(random, int(random.choice([0, 0, 1, 2, 4])))
        boxes = random_boxes(random, int(random.integers(0, most)))
        if len(truth):
            right = truth[random.integers(0, len(truth), int(random.integers(0, 4)))]
            boxes = np.concatenate([boxes, right + random.integers(-1, 2, right.shape) * [1, 1, 0, 0]])
            boxes[:, :2] = np.minimum(boxes[:, :2], boxes[:, 2:] - 1)
        boxes = random.permutation(boxes)
        found.append((boxes, np.round(random.random(len(boxes)), 1), truth))
    return found


def together(images: list[Image]) -> tuple[Boxes, np.ndarray, Boxes]:
    """Return the predictions, their confidences and the true boxes of all images."""

    def numbered(part: int) -> Boxes:
        at = np.repeat(np.arange(len(images)), [len(image[part]) for image in images])
        return Boxes(at, np.concatenate([image[part] for image in images]))

    return numbered(0), np.concatenate([image[1] for image in images]), numbered(2)


def score(images: list[Image], ious: list[float] = IOUS) -> MatchedPredictions:
    predicted, confidence, true = together(images)
    return match_predictions(predicted, confidence, true, len(images), ious)


def coco(images: list[Image], ious: list[float] = IOUS) -> np.ndarray:
    """Return the APs (T,) of pycocotools."""
    tools = pytest.importorskip("pycocotools.coco", reason="pycocotools is not installed")
    from pycocotools.cocoeval import COCOeval

    predicted, confidence, true = together(images)

    def rows(boxes: Boxes, **more: np.ndarray) -> list[dict]:
        sides = np.concatenate([boxes.corners[:, :2], boxes.corners[:, 2:] - boxes.corners[:, :2]], axis=1)
        found = [
            {"id": number, "image_id": int(image) + 1, "category_id": 1, "bbox": box.tolist(), "iscrowd": 0,
             "area": float(box[2] * box[3])}
            for number, (image, box) in enumerate(zip(boxes.image, sides, strict=True), 1)
        ]  # fmt: skip
        return [row | {name: float(values[n]) for name, values in more.items()} for n, row in enumerate(found)]

    held = tools.COCO()
    held.dataset = {
        "images": [{"id": number + 1} for number in range(len(images))],
        "annotations": rows(true),
        "categories": [{"id": 1, "name": "opacity"}],
    }
    held.createIndex()
    answers = tools.COCO()
    answers.dataset = held.dataset | {"annotations": rows(predicted, score=confidence)}
    answers.createIndex()
    judge = COCOeval(held, answers, "bbox")
    judge.params.iouThrs = np.array(ious)
    judge.params.areaRng, judge.params.areaRngLbl = [[0, 1e10]], ["all"]
    judge.params.maxDets = [10_000]
    judge.evaluate()
    judge.accumulate()
    found = judge.eval["precision"][:, :, 0, 0, 0].mean(axis=1)
    return np.where(found < 0, np.nan, found)


def slow_ap(images: list[Image], iou: float) -> float:
    """Return AP by its definition, one box at a time."""
    positives = sum(len(truth) for _, _, truth in images)
    ranked = []
    for number, (boxes, confidence, truth) in enumerate(images):
        free = list(range(len(truth)))
        for index in sorted(range(len(boxes)), key=lambda i, c=confidence: -c[i]):
            best = max(free, key=lambda j, b=boxes[index], t=truth: (box_iou(b[None], t[j][None])[0, 0], j), default=-1)
            hit = best >= 0 and box_iou(boxes[index][None], truth[best][None])[0, 0] >= iou
            if hit:
                free.remove(best)
            ranked.append((-confidence[index], number, index, hit))
    curve, true = [], 0
    for shown, (*_, hit) in enumerate(sorted(ranked, key=lambda row: row[:2]), 1):
        true += hit
        curve.append((true / positives if positives else np.nan, true / shown))
    if not positives:
        return np.nan
    return float(np.mean([max((p for r, p in curve if r >= wanted), default=0.0) for wanted in np.linspace(0, 1, 101)]))


@pytest.mark.parametrize("part", range(6))
def test_ap_is_that_of_pycocotools(part, capsys):
    random = np.random.default_rng(part)
    scores = []
    for _ in range(50):
        images = random_images(random, int(random.integers(1, 12)))
        found = average_precision(score(images))[0]
        np.testing.assert_allclose(found, coco(images), atol=1e-9, rtol=0, equal_nan=True)
        scores.append(found)
    scores = np.array(scores)
    assert 0 < np.isnan(scores[:, 0]).sum() < 25, "some cases have no true box"
    assert len(np.unique(scores[~np.isnan(scores)])) > 100


def test_ap_of_the_readers_of_vinbigdata_against_their_fusion():
    table = xrv_table("vinbigdata-train.csv.gz", null_values=[""])
    boxed = table.filter(pl.col("class_name") == "Pleural effusion").drop_nulls("x_min").head(1500)
    images = []
    for _, rows in boxed.group_by("image_id", maintain_order=True):
        boxes = rows.select("x_min", "y_min", "x_max", "y_max").to_numpy().astype(np.float64)
        truth = fuse_boxes(boxes, np.ones(len(boxes)), 0.1).boxes
        images.append((boxes, np.round(1 / (1 + np.arange(len(boxes))), 3), truth))
    found = average_precision(score(images))[0]
    np.testing.assert_allclose(found, coco(images), atol=1e-9, rtol=0)
    assert (found > 0.3).all()
    assert (found < 1).any()


def test_ap_by_hand():
    truth = np.array([[0.0, 0, 10, 10], [20, 0, 30, 10]])
    boxes = np.array([[0.0, 0, 10, 10], [40, 0, 50, 10], [20, 0, 30, 10]])
    found = score([(boxes, np.array([0.9, 0.8, 0.7]), truth)])
    # recalls up to .5 at precision 1 (51 points), those above at 2 / 3 (50 points)
    np.testing.assert_allclose(average_precision(found)[0], (51 + 50 * 2 / 3) / 101)
    empty = score([(np.zeros((0, 4)), np.zeros(0), truth)])
    assert average_precision(empty)[0].tolist() == [0.0] * 7
    nothing = score([(boxes, np.array([0.9, 0.8, 0.7]), np.zeros((0, 4)))])
    assert np.isnan(average_precision(nothing)).all()


def test_the_last_of_equal_true_boxes_is_taken_and_each_only_once():
    truth = np.array([[0.0, 0, 10, 10], [0, 0, 10, 10]])
    boxes = np.array([[0.0, 0, 10, 10]] * 3)
    assert score([(boxes, np.array([0.5, 0.9, 0.7]), truth)]).hits.sum(axis=1).tolist() == [2] * 7


def test_a_sample_s_own_ap_is_its_enumeration():
    random = np.random.default_rng(11)
    images = random_images(random, 120)
    found = average_precision_by_image(score(images, [0.3, 0.5]), 1)
    np.testing.assert_allclose(found, [slow_ap([image], 0.5) for image in images], atol=1e-12, equal_nan=True)
    assert 0 < np.isnan(found).sum() < 120


def test_a_draw_counts_copies_of_images():
    """Each replicate is that of images which are copied, matched and scored again."""
    random = np.random.default_rng(5)
    patient = np.array([f"p{number}" for number in random.integers(0, 9, 20)])
    both = [
        [(b, random.permutation(1000)[: len(b)] / 1000, t) for b, _, t in random_images(random, 20)] for _ in range(2)
    ]
    draws = next(draw_patient_weights(patient, 40, 3))
    assert (draws == next(draw_patient_weights(patient, 40, 3))).all()
    slow = []
    fast = [average_precision(score(images), draws=draws)[:, [0, 4]] for images in both]
    for drawn in draws:
        copies = [[image for image, times in zip(images, drawn, strict=True) for _ in range(times)] for images in both]
        slow.append([[slow_ap(part, iou) for iou in (0.1, 0.5)] for part in copies])
    slow = np.array(slow)
    np.testing.assert_allclose(np.stack(fast, axis=1), slow, atol=1e-12, equal_nan=True)
    gaps = fast[0][:, 1] - fast[1][:, 1]
    found = compare_replicates(0.25, fast[0][:, 1], fast[1][:, 1], 0.9)
    assert found.value == 0.25
    assert (found.low, found.high) == pytest.approx(tuple(np.nanquantile(slow[:, 0, 1] - slow[:, 1, 1], [0.05, 0.95])))
    assert found.below == pytest.approx((gaps < 0).mean() + (gaps == 0).mean() / 2)


def test_all_images_of_a_patient_are_drawn_alike():
    patient = np.array(["b", "a", "b", "c"])
    draws = np.concatenate(list(draw_patient_weights(patient, 200, 1)))
    assert draws.shape == (200, 4)
    assert (draws[:, 0] == draws[:, 2]).all()
    assert (draws[:, [0, 1, 3]].sum(axis=1) == 3).all()
    expected = np.concatenate(list(draw_weights(3, 200, 1)))
    assert (draws[:, [1, 0, 3]] == expected).all()


def test_draws_of_images_keep_their_strata():
    draws = draw_images(np.array(["x", "x", "y", "x", "y"]), 130, 9)
    assert (draws[:, [0, 1, 3]].sum(axis=1) == 3).all()
    assert (draws[:, [2, 4]].sum(axis=1) == 2).all()
    assert len(np.unique(draws, axis=0)) > 10


def test_recall_at_false_boxes_an_image():
    hits = np.array([[True, False, True, False, False, True]])
    found = MatchedPredictions(
        np.array([0, 1, 0, 2, 3, 1]), np.array([0.9, 0.8, 0.7, 0.7, 0.6, 0.5]), hits, np.array([2, 1, 0, 1])
    )
    # shown together are the two of confidence .7: false boxes 0, 1, 2, 3, 3 of 4 images; hits 1, 1, 2, 2, 3 of 4
    assert recall_at(found, 0, [0.0, 0.25, 0.5, 0.75, 2.0]).tolist() == [0.25, 0.25, 0.5, 0.75, 0.75]
    assert np.isnan(recall_at(found._replace(true=np.zeros(4, int)), 0, [1.0])).all()


def test_holm_by_hand():
    # sorted .01 .02 .03 .04: times 4, 3, 2, 1 are .04 .06 .06 .04, and none is below the one before it
    assert adjust_holm([0.03, 0.01, np.nan, 0.04, 0.02]) == pytest.approx([0.06, 0.04, np.nan, 0.06, 0.06], nan_ok=True)
    assert adjust_holm([0.5, 0.9]).tolist() == [1.0, 1.0]
    assert adjust_holm([]).tolist() == []


def test_the_paper_s_test_is_scipy_s_on_the_replicates():
    random = np.random.default_rng(2)
    one, other = random.normal(0.1, 1, 100), random.normal(0, 1, 100)
    assert wilcoxon_on_replicates(one, other) == pytest.approx(stats.wilcoxon(one, other).pvalue)
    assert np.isnan(wilcoxon_on_replicates(one, one))


def simulated(random: np.random.Generator, images: int, films: int) -> MatchedPredictions:
    """Return predictions of one law: each true box is found with a chance, false boxes come anywhere."""
    ease = np.random.default_rng(films).random(images)
    parts = []
    for number in range(images):
        hit = random.random(2) < 0.2 + 0.5 * ease[number]
        confidence = np.clip(random.normal(0.35 + 0.3 * hit, 0.15), 0.001, 0.999)
        parts += [(number, *row) for row in zip(confidence, hit, strict=True)]
    image, confidence, hit = (np.array(column) for column in zip(*parts, strict=True))
    order = np.argsort(-confidence, kind="stable")
    return MatchedPredictions(image[order], confidence[order], hit[order][None], np.full(images, 2))


def test_the_interval_of_two_runs_of_one_law_covers_zero_and_the_paper_s_test_does_not():
    """Of 200 pairs of runs that differ by chance alone, at least 90 % have 0 in the interval of 95 %."""
    covered = rejected = 0
    for experiment in range(200):
        patient = np.arange(60) // 2
        runs = [simulated(np.random.default_rng([experiment, run]), 60, experiment) for run in range(2)]
        draws = np.concatenate(list(draw_patient_weights(patient, 200, experiment)))
        one, other = (average_precision(run, draws=draws)[:, 0] for run in runs)
        found = compare_replicates(0.0, one, other, 0.95)
        covered += found.low <= 0 <= found.high
        rejected += wilcoxon_on_replicates(one[:100], other[:100]) < 0.05
    assert covered >= 180
    assert rejected >= 60, "the paper's test rejects far more than one in twenty"


def test_boxes_of_other_images_score_far_below_the_right_ones():
    random = np.random.default_rng(8)
    images = []
    for _ in range(80):
        truth = random.uniform(0, 300, (1, 2))
        truth = np.concatenate([truth, truth + random.uniform(60, 180, (1, 2))], axis=1)
        images.append((truth + random.normal(0, 12, (1, 4)), random.random(1), truth))
    right = average_precision(score(images)).mean()
    others = [(boxes, confidence, images[n - 1][2]) for n, (boxes, confidence, _) in enumerate(images)]
    assert average_precision(score(others)).mean() < right / 2


# Fusion


def test_fusion_by_hand():
    boxes = np.array([[0.0, 0, 10, 10], [2, 0, 12, 10], [50, 50, 60, 60], [5, 5, 5, 9]])
    found = fuse_boxes(boxes, np.array([1.0, 0.5, 0.9, 1.0]), 0.5, sources=2)
    np.testing.assert_allclose(found.boxes, [[2 / 3, 0, 32 / 3, 10], [50, 50, 60, 60]])
    np.testing.assert_allclose(found.confidence, [0.75, 0.45])
    assert found.member_of.tolist() == [0, 0, 1, -1]
    nothing = fuse_boxes(np.zeros((0, 4)), np.zeros(0), 0.5)
    assert nothing.boxes.shape == (0, 4)
    assert fuse_boxes(boxes[:2], np.ones(2), 8 / 12).boxes.shape == (2, 4), "an IoU equal to the limit joins nothing"


def test_fusion_is_that_of_ensemble_boxes():
    package = pytest.importorskip("ensemble_boxes", reason="ensemble-boxes (needs numba) is not installed")
    random = np.random.default_rng(4)
    sizes = []
    for _ in range(500):
        low = random.random((int(random.integers(1, 9)), 2)) * 0.6
        boxes = np.concatenate([low, low + random.uniform(0.1, 0.4, low.shape)], axis=1)
        confidence = random.uniform(0.05, 1, len(boxes))
        limit, readers = float(random.choice([0.1, 0.3, 0.55])), np.arange(len(boxes)) % 3
        lists = [[part[readers == reader] for reader in range(3)] for part in (boxes, confidence, np.zeros(len(boxes)))]
        wanted, scores, _ = package.weighted_boxes_fusion(*lists, iou_thr=limit)
        found = fuse_boxes(boxes, confidence, limit, sources=3)
        np.testing.assert_allclose(found.confidence, scores, atol=1e-6)
        np.testing.assert_allclose(found.boxes, wanted, atol=1e-6)
        sizes.append(len(found.boxes) / len(boxes))
    assert 0.2 < np.mean(sizes) < 0.9


def test_fusion_of_the_readers_of_vinbigdata():
    table = xrv_table("vinbigdata-train.csv.gz", null_values=[""]).drop_nulls("x_min")
    groups = list(table.group_by("image_id", "class_name"))
    assert (table.height, len(groups)) == (36_096, 15_365)
    fused = 0
    for _, rows in groups:
        boxes = rows.select("x_min", "y_min", "x_max", "y_max").to_numpy().astype(np.float64)
        found = fuse_boxes(boxes, np.ones(len(boxes)), 0.1)
        fused += len(found.boxes)
        assert (found.member_of >= 0).all()
        counts = np.bincount(found.member_of)
        for place in np.flatnonzero(counts > 1)[:1]:
            own = boxes[found.member_of == place]
            np.testing.assert_allclose(found.boxes[place], own.mean(axis=0))
    assert 15_365 < fused < 36_096


def test_draws_differ_by_seed():
    patient = np.arange(12).astype(str)
    drawn = [np.concatenate(list(draw_patient_weights(patient, 5, seed))) for seed in range(4)]
    assert all((one != other).any() for one, other in pairwise(drawn))
