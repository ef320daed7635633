"""Engine ultralytics of semisyn_detectors (`make test-ultralytics`): YOLO and RT-DETR, trained and read back."""

import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

pytest.importorskip("ultralytics", reason="ultralytics is in an environment of its own: make test-ultralytics")

from ultralytics import YOLO

from cxr.base.engines import Setup, engine_module
from cxr.base.errors import UserError
from cxr.base.unfinished_work import prepare_folder
from cxr.detection.proposals import resize_square, stack_input
from cxr.nets import tensors
from cxr.semisyn.detectors import ultralytics
from cxr.semisyn.detectors.engine import TrainingTask
from cxr.semisyn.detectors.pools import LazySample, draw_image, shares_at
from cxr.semisyn.detectors.ultralytics import ImageSampler, num_epochs_of, raw_boxes, write_images

SIDE = 64


@pytest.fixture(autouse=True)
def _one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def film(number: int, boxed: bool = True) -> LazySample:
    """Return a grey film with a bright square, boxed as class 1."""
    random = np.random.default_rng(number)
    frame = random.normal(120, 6, (128, 128)).clip(0, 255).astype(np.uint8)
    x, y = random.integers(8, 60, 2).tolist()
    frame[y : y + 52, x : x + 52] += 90
    boxes = ((1, float(x), float(y), x + 52.0, y + 52.0),) if boxed else ()
    return LazySample(boxes, (0, 1), f"f{number}", f"p{number}", frame.copy)


def task(updates: int) -> TrainingTask:
    pools = {"real": [film(number) for number in range(6)], "unedited": [film(20 + n, False) for n in range(3)]}
    return TrainingTask(pools, {"real": (1.0, 1.0), "unedited": (1.0, 1.0)}, ("edema", "opacity"), updates, 4, 3)


def engine(plan: str = "yolo11n.yaml", **files: str):
    engine_settings = {"plan": plan, "checkpoint": "", "image_size": SIDE, "batch": 2}
    return engine_module("cxr.semisyn.detectors", "ultralytics").load(Setup(engine_settings, files, "cpu"))


def trained(folder: Path, updates: int, plan: str = "yolo11n.yaml", **files: str) -> tuple[list[float], Path]:
    (folder / "model").mkdir(parents=True)
    told = engine(plan, **files).train(task(updates), folder / "model", folder / "unfinished")
    return told[0], folder / "model"


def test_a_yolo_is_trained_to_the_same_bytes_and_read_back(tmp_path):
    losses, folder = trained(tmp_path / "one", 3)
    again, other = trained(tmp_path / "two", 3)
    assert len(losses) == 3
    assert np.isfinite(losses).all()
    assert losses == again
    assert (folder / ultralytics.WEIGHTS).read_bytes() == (other / ultralytics.WEIGHTS).read_bytes()
    frame = film(0).read_frame()
    found = engine().load(folder)(frame)
    assert set(found.classes) <= {0, 1}
    assert len(found.boxes) <= 100
    assert (np.diff(found.confidence) <= 0).all()
    assert found.boxes.min() >= 0
    assert found.boxes.max() <= 128
    # the package's own net with these weights says the same of the picture
    weights, facts = tensors.read_weights(folder / ultralytics.WEIGHTS, ultralytics.KIND)
    assert facts["names"] == ["edema", "opacity"]
    net = YOLO("yolo11n.yaml").model.__class__("yolo11n.yaml", ch=3, nc=2, verbose=False)
    net.load_state_dict(weights)
    with torch.inference_mode():
        raw = net.eval()(stack_input([resize_square(frame, SIDE)], 3, torch.device("cpu")))[0]
    best = raw[0, 4:].max().item()
    if best >= 0.001:
        assert found.confidence[0] == pytest.approx(best, abs=1e-6)
    else:
        assert len(found.boxes) == 0


def test_a_killed_yolo_is_resumed_to_the_same_bytes(tmp_path, monkeypatch):
    losses, whole = trained(tmp_path / "whole", 4)
    own, calls = ultralytics.write_state, []

    def killed(path, state):
        own(path, state)
        calls.append(state["step"])
        if len(calls) == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr(ultralytics, "write_state", killed)
    with pytest.raises(KeyboardInterrupt):
        trained(tmp_path / "killed", 4)
    shutil.rmtree(tmp_path / "killed/model")
    again, resumed = trained(tmp_path / "killed", 4)
    # at the third of four steps; then the fourth is kept once more
    assert calls == [1, 2, 3]
    assert again == losses
    assert (resumed / ultralytics.WEIGHTS).read_bytes() == (whole / ultralytics.WEIGHTS).read_bytes()


def test_another_training_is_not_resumed(tmp_path):
    path = tmp_path / "state/state.pt"
    prepare_folder(path.parent, "one")
    ultralytics.write_state(path, {"step": 3, "random": ultralytics.get_random_states()})
    assert ultralytics.read_state(path)["step"] == 3
    path.write_bytes(b"PK")
    assert ultralytics.read_state(path) is None
    prepare_folder(path.parent, "other")
    assert not path.exists()


def test_an_rt_detr_is_trained_and_read_back(tmp_path):
    losses, folder = trained(tmp_path, 1, "rtdetr-l.yaml")
    assert len(losses) == 1
    found = engine("rtdetr-l.yaml").load(folder)(film(0).read_frame())
    assert 0 < len(found.boxes) <= 100
    assert found.boxes.max() <= 128
    assert set(found.classes) <= {0, 1}


def test_a_checkpoint_gives_the_first_weights(tmp_path):
    torch.manual_seed(1)
    start = YOLO("yolo11n.yaml")  # of 80 classes: all but the last layers fit
    with torch.no_grad():
        start.model.model[0].conv.weight.fill_(0.25)
    start.save(tmp_path / "start.pt")
    _, folder = trained(tmp_path / "run", 1, checkpoint=str(tmp_path / "start.pt"))
    weights, _ = tensors.read_weights(folder / ultralytics.WEIGHTS, ultralytics.KIND)
    assert (weights["model.0.conv.weight"] - 0.25).abs().max() < 0.02


def test_the_package_sees_our_draws():
    some = task(10)
    draws = ImageSampler(some, 2, num_epochs_of(10, 4))
    assert len(draws) == 10
    seen = [*draws, *draws]
    wanted = []
    for update in range(10):
        for place in range(2):
            name, number, _ = draw_image(some.pools, shares_at(some.shares, update / 9), some.seed, update, place)
            wanted.append(number + (6 if name == "unedited" else 0))
    assert seen == wanted
    assert max(seen) >= 6
    assert min(seen) < 6


def test_steps_divide_the_updates():
    assert [num_epochs_of(*pair) for pair in ((2000, 100), (6, 4), (7, 4), (3, 100))] == [100, 3, 1, 3]


def test_labels_are_fractions_of_the_frame(tmp_path):
    some = task(1)
    write_images(some, tmp_path)
    labels = [float(cell) for cell in (tmp_path / "labels/train/0000000.txt").read_text(encoding="utf-8").split()]
    kind, x1, y1, x2, y2 = some.pools["real"][0].boxes[0]
    assert labels == pytest.approx([kind, (x1 + x2) / 256, (y1 + y2) / 256, 52 / 128, 52 / 128])
    assert (tmp_path / "labels/train/0000006.txt").read_text(encoding="utf-8") == ""
    assert len(list((tmp_path / "images/train").iterdir())) == 9


def test_both_families_give_corners_in_pixels():
    yolo = torch.tensor([[[10.0], [20.0], [4.0], [6.0], [0.1], [0.9]]])
    detr = torch.tensor([[[10 / 64, 20 / 64, 4 / 64, 6 / 64, 0.1, 0.9]]])
    for raw, family in ((yolo, "yolo"), (detr, "rtdetr")):
        boxes, scores = raw_boxes(raw, family, 64, 2)
        assert torch.allclose(boxes, torch.tensor([[8.0, 17.0, 12.0, 23.0]]))
        assert torch.allclose(scores, torch.tensor([[0.1, 0.9]]))


def test_another_file_is_refused(tmp_path):
    (tmp_path / ultralytics.WEIGHTS).write_bytes(b"none")
    with pytest.raises(UserError, match=r"detector\.safetensors is missing or damaged"):
        engine().load(tmp_path)
