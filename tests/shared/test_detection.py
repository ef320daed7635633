"""The small detector: targets, loss, training, the weights file and its card."""

import json
from itertools import pairwise

import numpy as np
import pytest
import torch

from conftest import ROOT
from cxr.base.errors import UserError
from cxr.detection import training, weights
from cxr.detection.augmentation import augment_image
from cxr.detection.grid import Grid, decode_boxes, select_boxes
from cxr.detection.net import PRESENT_TARGET, Detector, assign_targets, detection_loss, image_label_loss, paired_overlap
from cxr.detection.proposals import ScoredBoxes, apply_nms, boxes_above, to_frame_pixels
from cxr.detection.training import Batch, Recipe
from cxr.geometry.boxes import bounding_box, box_iou

GRID = Grid(("bright", "dark"), (0, 1), 64)
WIDTHS = (8, 8, 8, 8, 8)
IMPORTANCE = (1.0, 2.0)
RECIPE = Recipe(updates=150, rate=4e-3, decay=1e-2, warmup=0.15, clip=5.0, memory=0.95, importance=IMPORTANCE)

pytestmark = pytest.mark.usefixtures("one_thread")


def net(seed: int = 0, grid: Grid = GRID) -> Detector:
    torch.manual_seed(seed)
    return Detector(grid, WIDTHS).to(memory_format=torch.channels_last)


def drawn(random: np.random.Generator, update: int = 0) -> Batch:
    """Grey images with one bright or dark square; the labels of half of them do not cover the dark ones."""
    pictures, boxes, known = [], [], []
    for number in range(8):
        kind = int(random.integers(2)) if number % 2 else 0
        picture = random.normal(0.5, 0.02, (64, 64)).astype(np.float32)
        x, y = random.integers(4, 30, 2)
        picture[y : y + 30, x : x + 30] += -0.4 if kind else 0.4
        pictures.append(picture)
        boxes.append([(kind, x / 16, y / 16, (x + 30) / 16, (y + 30) / 16)])
        known.append([0, 1] if number % 2 else [0])
    return Batch(pictures, boxes, known)


def test_a_net_takes_any_classes_groups_and_size():
    for grid in (GRID, Grid(("a",), (0,), 128), Grid(tuple("abcde"), (0, 1, 0, 2, 1), 96)):
        logit, distance = net(grid=grid)(torch.zeros(2, 1, grid.size, grid.size))
        cells = grid.size // 16
        assert logit.shape == (2, len(grid.classes), cells, cells)
        assert distance.shape == (2, 4 * (max(grid.groups) + 1), cells, cells)
        assert (distance > 0).all()


def test_targets_on_the_grid():
    """A large box gets the cells near its middle, a tiny one the cell that holds it; the smaller box wins a cell."""
    found = assign_targets([[(0, 0.0, 0.0, 4.0, 4.0), (0, 1.1, 1.1, 1.3, 1.3)], []], [[0], [0, 1]], GRID)
    # nearer than 1.5 cells to (2, 2); the outer centres are just as far
    assert found["positive"][0, 0].int().tolist() == [[0, 0, 0, 0], [0, 1, 1, 0], [0, 1, 1, 0], [0, 0, 0, 0]]
    assert found["truth"][0, 0, :, 1, 1].tolist() == pytest.approx([1.1, 1.1, 1.3, 1.3])
    assert found["truth"][0, 0, :, 2, 2].tolist() == [0.0, 0.0, 4.0, 4.0]
    assert not found["positive"][0, 1].any()
    assert not found["positive"][1].any()
    assert found["weight"].reshape(2, 2).tolist() == [[1.0, 0.0], [1.0, 1.0]]


def test_overlaps_are_those_of_the_boxes():
    corners = np.sort(np.random.default_rng(0).uniform(0, 9, (2, 20, 2, 2)), axis=2).reshape(2, 20, 4)
    iou, giou = paired_overlap(*torch.from_numpy(corners))
    np.testing.assert_allclose(iou, box_iou(*corners).diagonal(), atol=1e-9)
    assert ((giou <= iou + 1e-9) & (giou >= -1)).all()


def test_a_class_of_which_nothing_is_known_has_no_loss():
    target = assign_targets([[(0, 1.0, 1.0, 3.0, 3.0)]], [[0]], GRID)
    logit, distance = torch.zeros(1, 2, 4, 4, requires_grad=True), torch.ones(1, 8, 4, 4, requires_grad=True)
    sum(detection_loss(logit, distance, target, GRID, IMPORTANCE)).backward()
    assert logit.grad[0, 0].abs().sum() > 0
    assert logit.grad[0, 1].abs().sum() == 0
    assert distance.grad[0, :4].abs().sum() > 0
    assert distance.grad[0, 4:].abs().sum() == 0


def test_a_positive_cell_counts_as_its_class_says():
    """Two classes at the same place: the loss of the second one's cells weighs its importance."""
    logit, distance = torch.zeros(1, 2, 4, 4), torch.ones(1, 8, 4, 4)
    given = []
    for kind in (0, 1):
        target = assign_targets([[(kind, 1.0, 1.0, 3.0, 3.0)]], [[kind]], GRID)
        given.append(
            [float(sum(detection_loss(logit, distance, target, GRID, (1.0, weight)))) for weight in (1.0, 2.0, 3.0)]
        )
    assert given[0] == [given[0][0]] * 3
    assert given[1][0] == pytest.approx(given[0][0])
    first, second = (after - before for before, after in pairwise(given[1]))
    assert first == pytest.approx(second, rel=1e-4)
    assert first > 1e-3


def test_what_is_known_of_whole_pictures_moves_their_best_cells_alone():
    """Class 0 is in picture 0, class 1 is not in picture 2; of each the four largest logits learn it, as one mean."""
    logit = torch.linspace(-3, 3, 3 * 2 * 16).reshape(3, 2, 4, 4).requires_grad_()
    value = image_label_loss(logit, [{0: True}, {}, {1: False}])
    value.backward()
    gradient = logit.grad.flatten(2)
    assert gradient[1].abs().sum() == gradient[0, 1].abs().sum() == gradient[2, 0].abs().sum() == 0
    assert (gradient[0, 0, :12] == 0).all()
    assert (gradient[2, 1, :12] == 0).all()
    there, not_there = (logit.detach().flatten(2)[where][-4:].mean().sigmoid().item() for where in ((0, 0), (2, 1)))
    assert gradient[0, 0, 12:].tolist() == pytest.approx([(there - PRESENT_TARGET) / 2 / 4] * 4)
    assert gradient[2, 1, 12:].tolist() == pytest.approx([not_there / 2 / 4] * 4)
    ideal = np.log(PRESENT_TARGET / (1 - PRESENT_TARGET))
    at_best = image_label_loss(torch.full((1, 1, 4, 4), ideal), [{0: True}])
    assert at_best < image_label_loss(torch.full((1, 1, 4, 4), ideal + 0.1), [{0: True}])
    assert at_best < image_label_loss(torch.full((1, 1, 4, 4), ideal - 0.1), [{0: True}])


def test_labels_of_whole_pictures_teach_a_class():
    """The dark squares have no box, only a word for the picture: the net still tells pictures with one from others."""

    def draw(random: np.random.Generator, update: int) -> Batch:
        batch = drawn(random)
        kinds = [one[0][0] for one in batch.boxes]
        boxes = [one if kind == 0 else [] for one, kind in zip(batch.boxes, kinds, strict=True)]
        return Batch(batch.images, boxes, [[0]] * 8, [{1: kind == 1} for kind in kinds])

    trained = training.train_net(net(), draw, RECIPE, 3)
    batch = drawn(np.random.default_rng(99))
    with torch.no_grad():
        best = trained(torch.from_numpy(np.stack(batch.images))[:, None])[0][:, 1].flatten(1).max(dim=1).values
    dark = np.array([one[0][0] == 1 for one in batch.boxes])
    assert 0 < dark.sum() < 8
    assert best[dark].min() > best[~dark].max()


def test_a_training_learns_and_is_the_same_to_the_byte():
    told = []
    trained = training.train_net(net(), drawn, RECIPE, 3, lambda update, value: told.append((update, value)))
    assert [update for update, _ in told] == list(range(1, 151))
    values = [value for _, value in told]
    assert np.mean(values[-20:]) < 0.6 * np.mean(values[:20])
    batch = drawn(np.random.default_rng(99))
    with torch.no_grad():
        logit, distance = trained(torch.from_numpy(np.stack(batch.images))[:, None])
    hits = 0
    for scores, sides, ((kind, *box),) in zip(logit, distance, batch.boxes, strict=True):
        boxes = decode_boxes(sides.numpy(), GRID.groups, 64)
        best, _, classes = select_boxes(boxes, scores.sigmoid().numpy().astype(float), floor=0.01, iou=0.5, most=1)
        hits += len(best) and classes[0] == kind and box_iou(best, np.array([box]) * 16)[0, 0] > 0.5
    assert hits >= 6
    short = Recipe(**vars(RECIPE) | {"updates": 8})
    again = [training.train_net(training.copy_net(trained), drawn, short, seed).state_dict() for seed in (5, 5, 6)]
    same, other = ([torch.equal(again[0][name], one[name]) for name in one] for one in again[1:])
    assert all(same)
    assert not all(other)


class Killed(Exception):
    """The end of a process, as the training's loop sees it."""


def test_a_resumed_training_gives_the_bytes_of_an_uninterrupted_one(tmp_path):
    short = Recipe(**vars(RECIPE) | {"updates": 8})
    whole = training.train_net(net(), drawn, short, 5).state_dict()
    kept = training.Checkpoint(tmp_path / "unfinished", 3, "one")

    def killed(update: int, value: float) -> None:
        if update == 7:
            raise Killed

    with pytest.raises(Killed):
        training.train_net(net(), drawn, short, 5, killed, kept)
    told = []
    resumed = training.train_net(net(9), drawn, short, 5, lambda update, value: told.append(update), kept).state_dict()
    assert told == [7, 8]
    assert all(torch.equal(whole[name], resumed[name]) for name in whole)
    told.clear()
    training.train_net(
        net(), drawn, short, 5, lambda update, value: told.append(update), kept._replace(identity="other")
    )
    assert told == list(range(1, 9)), "a checkpoint of a different run is never resumed"
    (kept.folder / "checkpoint.pt").write_bytes(b"damaged")
    training.train_net(net(), drawn, short, 5, lambda update, value: told.append(update), kept)
    assert len(told) == 16


def test_moved_boxes_stay_on_their_lesions():
    image = np.zeros((128, 128), np.uint8)
    image[40:72, 24:56] = 200
    random, gaps, seen = np.random.default_rng(3), [], 0
    for _ in range(60):
        picture, boxes = augment_image(image, [(1, 3.0, 5.0, 7.0, 9.0)], 16, random)
        assert picture.dtype == np.float32
        assert 0 <= picture.min() <= picture.max() <= 1
        if boxes:
            (label, *box), seen = boxes[0], seen + 1
            assert label == 1
            bright = picture > (picture.min() + picture.max()) / 2
            gaps.append(np.abs(np.array(bounding_box(bright)) / 8 - box).max())
    assert seen > 50
    assert np.median(gaps) < 0.4


def test_calibration_is_the_share_of_hits():
    random = np.random.default_rng(0)
    truth = random.uniform(0.05, 0.95, 20_000)
    logit = np.log(truth / (1 - truth))
    told = 1 / (1 + np.exp(-(2 * logit - 1)))  # overconfident, and shifted
    slope, offset = training.fit_platt(told, random.random(20_000) < truth)
    assert slope == pytest.approx(0.5, abs=0.02)
    assert offset == pytest.approx(0.5, abs=0.05)
    hit = random.random(20_000) < truth
    twice = training.fit_platt(np.repeat(told, 2), np.repeat(hit, 2))
    assert training.fit_platt(told, hit, np.full(20_000, 2.0)) == pytest.approx(twice, abs=1e-6)


def test_a_file_of_weights_gives_what_the_net_gives(tmp_path):
    pytest.importorskip("onnx", reason="the package onnx is in the environment of the training scripts alone")

    from cxr.detection.export import export_onnx

    made, path = net(4).eval(), tmp_path / "own.onnx"
    slope, offset = np.array([2.0, 0.5]), np.array([-1.0, 0.25])
    export_onnx(made, slope, offset, path, "for tests")
    assert weights.read_card(path) == weights.Card(GRID, "for tests")
    image = np.random.default_rng(1).integers(0, 256, (128, 128)).astype(np.uint8)
    boxes, confidence = weights.DetectorWeights(path).predict(image)
    with torch.no_grad():
        small = image.reshape(64, 2, 64, 2).mean(axis=(1, 3)).round().astype(np.float32) / 255
        logit, distance = made(torch.from_numpy(small)[None, None])
    calibrated = logit[0].numpy() * slope[:, None, None] + offset[:, None, None]
    np.testing.assert_allclose(confidence, 1 / (1 + np.exp(-calibrated)), atol=0.02)
    np.testing.assert_allclose(boxes, decode_boxes(distance[0].numpy(), GRID.groups, 128), atol=2.0)


def test_the_card_of_the_embedded_detector():
    path = ROOT / "resources/boxes/lite.onnx"
    card = weights.read_card(path)
    assert (card.grid.size, card.grid.cells, card.grid.groups) == (256, 16, (0, 0, 0, 0, 0, 0, 1, 2))
    assert card.grid.classes[:2] == ("Lung Opacity", "Consolidation")
    assert card.licence.startswith("academic, non-commercial use only")
    assert json.loads(card.notes()["classes"]) == list(card.grid.classes)
    with pytest.raises(UserError, match="does not exist"):
        weights.read_card(path.with_name("none.onnx"))


def test_the_choice_among_all_boxes_of_a_net():
    boxes = torch.tensor([[0.0, 0, 10, 10], [1, 0, 11, 10], [20, 20, 30, 30]])
    scores = torch.tensor([[0.9, 0.2], [0.8, 0.1], [0.05, 0.6]])
    found = boxes_above(boxes, scores, np.array([4, -1]), 0.1)
    assert (found.confidence.round(3).tolist(), found.classes.tolist()) == ([0.9, 0.8], [4, 4])
    assert apply_nms(found, 0.5, 9).boxes.tolist() == [[0, 0, 10, 10]]
    inside = to_frame_pixels(
        ScoredBoxes(np.array([[2.0, 2, 12, 22], [0, 0, 2, 9]]), np.ones(2), np.zeros(2, int)), 4.0, 2, 32
    )
    assert inside.boxes.tolist() == [[0, 0, 32, 32]]
    with pytest.raises(ArithmeticError, match="not a finite number"):
        boxes_above(boxes * torch.nan, scores, np.array([0, 1]), 0.1)
