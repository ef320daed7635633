"""Detectors lite: pools and their shared draws, shuffled boxes, what a training is resumed by, and what it learns."""

import sys
from functools import partial

import numpy as np
import pytest
import torch

from conftest import ROOT
from cxr.base.engines import Setup
from cxr.detection.weights import DetectorWeights
from cxr.geometry.boxes import box_iou
from cxr.metrics.average_precision import average_precision, match_predictions
from cxr.metrics.matching import Boxes
from cxr.semisyn.detectors import lite
from cxr.semisyn.detectors.engine import BOX_SELECTION, TrainingTask
from cxr.semisyn.detectors.lite import LICENCE, LiteOptions, grid_of, predict_boxes, train_lite, training_digest
from cxr.semisyn.detectors.pools import (
    LazySample,
    Sample,
    batch_drawer,
    read_sample,
    shares_at,
    shuffle_boxes,
)
from semisyn_study.runs import take_images

GRID = grid_of(["opacity"], 64)
OPTIONS = LiteOptions(
    updates=120, size=64, widths=(8, 8, 8, 8, 8), batch=8, rate=4e-3, decay=0.01, warmup=0.15, clip=5.0, memory=0.95,
    bfloat16=False, checkpoint_every=3,
)  # fmt: skip

pytestmark = pytest.mark.usefixtures("one_thread")


def films(count: int, kind: str, seed: int = 0) -> list[Sample]:
    """Return grey images; each has one bright square, which is boxed unless the pool is ``unedited``."""
    random, found = np.random.default_rng(seed), []
    for number in range(count):
        frame = random.normal(120, 6, (128, 128)).clip(0, 255).astype(np.uint8)
        x, y = random.integers(8, 60, 2)
        boxes = np.zeros((0, 4))
        if kind != "unedited":
            frame[y : y + 52, x : x + 52] += 90
            boxes = np.array([[x, y, x + 52, y + 52]], np.float64)
        boxed = tuple((0, *box) for box in boxes.tolist())
        film = LazySample(boxed, (0,), f"{kind}{number}", f"p{number // 2}", partial(np.copy, frame))
        found.append(read_sample(film, GRID))
    return found


def test_a_sample_is_on_the_grid():
    one = films(1, "real")[0]
    assert one.image.shape == (64, 64)
    (kind, x1, y1, x2, y2), *_ = one.boxes
    assert (kind, x2 - x1, y2 - y1) == (0, 52 / 32, 52 / 32)


def test_shares_change_linearly_and_add_to_one():
    shares = {"real": (0.25, 0.5), "synthetic": (0.5, 0.0), "unedited": (0.25, 0.5)}
    assert shares_at(shares, 0.0) == {"real": 0.25, "synthetic": 0.5, "unedited": 0.25}
    assert shares_at(shares, 0.5) == {"real": 0.375, "synthetic": 0.25, "unedited": 0.375}
    assert shares_at(shares, 1.0)["synthetic"] == 0
    assert sum(shares_at({"real": (2, 1), "unedited": (1, 1)}, 0.3).values()) == pytest.approx(1)


def test_runs_that_are_compared_share_their_draws():
    """Where one run shows an edited film, its control shows the source of that film, moved in the same way."""
    edited, sources = films(30, "synthetic"), films(30, "unedited")
    pools = {"real": films(10, "real", 1), "synthetic": edited, "unedited": sources}
    how = {"grid": GRID, "size": 16, "updates": 50, "seed": 4}
    first = batch_drawer(pools, {"real": (0.5, 0.5), "synthetic": (0.25, 0.25), "unedited": (0.25, 0.25)}, **how)
    other = batch_drawer(pools, {"real": (0.5, 0.5), "unedited": (0.5, 0.5)}, **how)
    same = changed = 0
    for update in range(20):
        one, two = first(None, update), other(None, update)
        for place in range(16):
            if (one.images[place] == two.images[place]).all():
                same += 1
                assert one.boxes[place] == two.boxes[place]
            else:
                changed += 1
                assert not two.boxes[place]
    assert 0.6 < same / (same + changed) < 0.9
    assert changed / (same + changed) == pytest.approx(0.25, abs=0.08)
    again = batch_drawer(pools, {"real": (0.5, 0.5), "unedited": (0.5, 0.5)}, **how)(np.random.default_rng(9), 7)
    assert all((a == b).all() for a, b in zip(again.images, other(None, 7).images, strict=True))
    assert any((a != b).any() for a, b in zip(other(None, 6).images, other(None, 7).images, strict=True))


def test_a_pool_gets_its_share():
    pools = {name: films(5, name) for name in ("real", "unedited")}
    draw = batch_drawer(pools, {"real": (0.25, 0.25), "unedited": (0.75, 0.75)}, GRID, size=8, updates=10, seed=1)
    boxed = sum(bool(boxes) for update in range(200) for boxes in draw(None, update).boxes)
    assert boxed / 1600 == pytest.approx(0.25, abs=0.04)


def test_shuffled_boxes_are_another_film_s():
    own = films(25, "synthetic")
    moved = shuffle_boxes(own, 3)
    assert [one.image_id for one in moved] == [one.image_id for one in own]
    assert all((one.image == other.image).all() for one, other in zip(own, moved, strict=True))
    assert all(one.boxes != other.boxes for one, other in zip(own, moved, strict=True))
    assert sorted(one.boxes for one in own) == sorted(one.boxes for one in moved)
    assert [one.boxes for one in shuffle_boxes(own, 4)] != [one.boxes for one in moved]
    assert shuffle_boxes(own[:1], 3) == own[:1]


def test_fewer_films_are_a_part_of_more_and_patients_stay_together():
    own = films(20, "real")
    five, ten = ([one.image_id for one in take_images(own, most, 2)] for most in (5, 10))
    assert five == ten[:5]
    patients = [one.subject_id for one in take_images(own, 10, 2)]
    assert len(set(patients)) == 5
    assert take_images(own, 99, 2) == take_images(own, 20, 2)
    assert [one.image_id for one in take_images(own, 5, 3)] != five


def test_a_training_is_resumed_only_if_nothing_has_changed(tmp_path):
    pools, shares = {"real": films(8, "real"), "unedited": films(8, "unedited")}, {"real": (1, 1), "unedited": (1, 1)}
    short = LiteOptions(**vars(OPTIONS) | {"updates": 8})

    class Killed(Exception):
        pass

    def kill(update: int, loss: float) -> None:
        if update == 7:
            raise Killed

    whole = train_lite(pools, shares, ["opacity"], short, 1).state_dict()
    unfinished = tmp_path / "unfinished"
    with pytest.raises(Killed):
        train_lite(pools, shares, ["opacity"], short, 1, unfinished, kill)
    told: list[int] = []
    resumed = train_lite(pools, shares, ["opacity"], short, 1, unfinished, lambda update, loss: told.append(update))
    assert told == [7, 8]
    assert all(torch.equal(whole[name], value) for name, value in resumed.state_dict().items())
    identity = training_digest(pools, shares, ["opacity"], short, 1)
    other = {"real": films(8, "real", 5), "unedited": pools["unedited"]}
    changed = [
        training_digest(other, shares, ["opacity"], short, 1),
        training_digest(pools, {"real": (1, 1), "unedited": (1, 0)}, ["opacity"], short, 1),
        training_digest(pools, shares, ["opacity", "edema"], short, 1),
        training_digest(pools, shares, ["opacity"], LiteOptions(**vars(short) | {"rate": 1e-3}), 1),
        training_digest(pools, shares, ["opacity"], short, 2),
    ]
    assert len({identity, *changed}) == 6
    with pytest.raises(ValueError, match="a pool that has images and a weight above 0 in shares"):
        train_lite({"real": []}, {"real": (1, 1)}, ["opacity"], short, 1)


@pytest.mark.slow
def test_a_detector_finds_what_it_was_shown_and_shuffled_boxes_teach_little():
    tested = films(30, "real", 77)
    scores = {}
    pools = {"synthetic": films(60, "synthetic", 2), "unedited": films(30, "unedited", 3)}
    pools["shuffled"] = shuffle_boxes(pools["synthetic"], 1)
    for pool in ("synthetic", "shuffled"):
        net = train_lite(pools, {pool: (0.7, 0.7), "unedited": (0.3, 0.3)}, ["opacity"], OPTIONS, 3)
        image, corners, sure = [], [], []
        for number, one in enumerate(tested):
            boxes, confidence, classes = predict_boxes(net, one.image, 128)
            assert set(classes) <= {0}
            image += [number] * len(boxes)
            corners.append(boxes)
            sure.append(confidence)
        truth = np.array([one.boxes[0][1:] for one in tested]) * 32
        found = match_predictions(Boxes(np.array(image), np.concatenate(corners)), np.concatenate(sure),
                        Boxes(np.arange(30), truth), 30, [0.3, 0.5])  # fmt: skip
        scores[pool] = average_precision(found)[0].mean()
    assert scores["synthetic"] > 0.8
    assert scores["shuffled"] < 0.6 * scores["synthetic"]


def test_a_detector_becomes_a_file_of_weights_with_any_class_list(tmp_path):
    pytest.importorskip("onnx", reason="the package onnx is in the environment of the training scripts alone")
    from cxr.detection.export import export_onnx

    net = train_lite({"real": films(4, "real")}, {"real": (1, 1)}, ["opacity", "edema"],
                LiteOptions(**vars(OPTIONS) | {"updates": 2}), 1)  # fmt: skip

    export_onnx(net, np.ones(2), np.zeros(2), tmp_path / "own.onnx", LICENCE)
    weights = DetectorWeights(tmp_path / "own.onnx")
    assert (weights.grid.classes, weights.grid.size) == (("opacity", "edema"), 64)
    image = films(1, "real", 5)[0].image
    boxes, confidence = weights.predict(image)
    with torch.no_grad():
        logit, _ = net(torch.from_numpy(image.astype(np.float32) / 255)[None, None])
    np.testing.assert_allclose(confidence, torch.sigmoid(logit[0]).numpy(), atol=1e-5)
    assert box_iou(boxes[0, 0], boxes[0, 0]).max() == pytest.approx(1)


def test_a_trained_detector_is_an_engine_of_the_boxes(tmp_path):
    """What the program writes of a training's folder finds the same boxes as the detector itself."""
    pytest.importorskip("onnx", reason="the package onnx is in the environment of the training scripts alone")
    sys.path.insert(0, str(ROOT / "scripts/tools"))
    import detector_onnx
    from cxr.imaging.boxes.engine import load_engine
    from cxr.imaging.boxes.settings import BoxesSettings, LiteSettings

    engine_settings = vars(OPTIONS) | {"widths": list(OPTIONS.widths)}
    frames = [one.image.repeat(2, 0).repeat(2, 1) for one in films(4, "real")]
    pool = [LazySample(((0, 20.0, 20.0, 70.0, 70.0),), (0, 1), f"r{n}", f"p{n}", partial(np.copy, frame))
            for n, frame in enumerate(frames)]  # fmt: skip
    task = TrainingTask({"real": pool}, {"real": (1, 1)}, ("opacity", "edema"), 60, 1, 1)
    engine = lite.LiteEngine({name: value for name, value in engine_settings.items() if name != "updates"})
    (tmp_path / "model").mkdir()
    engine.train(task, tmp_path / "model", tmp_path / "unfinished")
    detector_onnx.write(tmp_path / "model", tmp_path / "mine.onnx")
    options = BoxesSettings(
        excluded_classes=[],
        lite=LiteSettings(region_iou=1.0),
        floor=BOX_SELECTION["floor"],
        nms_iou=BOX_SELECTION["iou"],
        max_boxes=BOX_SELECTION["most"],
    )
    frame = frames[0]
    found = load_engine(options, Setup({}, {"model": str(tmp_path / "mine.onnx")})).detect(frame, "i", np.eye(2, 3))
    boxes, confidence, classes = engine.load(tmp_path / "model")(frame)
    opacity = classes == 0
    assert set(found.class_names) == {"Lung Opacity"}
    np.testing.assert_allclose(found.boxes[:5], boxes[opacity][:5], atol=0.05)
    np.testing.assert_allclose(found.confidence[:5], confidence[opacity][:5], atol=1e-4)
