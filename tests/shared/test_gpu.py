"""The engines on a real GPU: the same masks, boxes and answers as on the CPU, and errors that only a device raises.

Run them with `pytest -m gpu tests/shared/test_gpu.py` (docs/how-to/development.md). Without a GPU each is
skipped, visibly. Tests that need Snakemake, pydantic or polars are skipped without them.
"""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from conftest import ROOT  # noqa: E402
from cxr.base import workers  # noqa: E402
from cxr.base.engines import Setup  # noqa: E402
from cxr.base.errors import UserError, out_of_memory  # noqa: E402
from cxr.nets.devices import count_gpus, select_device  # noqa: E402

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason=f"torch {torch.__version__} sees no GPU (or no -m gpu)"),
]
DEVICES = ("cpu", "cuda")


def setup(files: dict[str, str], device: str, engine_settings: dict | None = None, batch: int = 3) -> Setup:
    return Setup(engine_settings or {}, files, device=device, batch=batch, requested_gpus=int(device == "cuda"))


def pictures(count: int) -> list[np.ndarray]:
    """Frames of synthetic chests."""
    from cxr.imaging.phantom.chest import draw_chest

    drawn = (draw_chest(np.random.default_rng([5, seed]), (512, 512)).image for seed in range(count))
    return [np.round(image * 255).astype(np.uint8) for image in drawn]


def iou(one: np.ndarray, other: np.ndarray) -> float:
    return (one & other).sum() / max(1, (one | other).sum())


def test_the_device_is_a_gpu_that_adds():
    assert select_device("auto", 1).type == select_device("cuda", 1).type == "cuda"
    assert select_device("auto", 0).type == select_device("cpu", 1).type == "cpu"
    there = torch.cuda.device_count()
    assert count_gpus("auto", there) == there
    with pytest.raises(UserError, match=rf"requested {there + 1} GPUs, but it sees {there} .*built for CUDA"):
        select_device("auto", there + 1)


def test_hybridgnet_draws_the_same_organs(tmp_path):
    from cxr.imaging.organs.hybridgnet import HybridGNetOrgans, make_square_input
    from tiny_hybridgnet import coarse_ovals, publish, told

    path = publish(tmp_path, told(coarse_ovals()))
    on_cpu, on_card = (HybridGNetOrgans(path, setup({}, device)) for device in DEVICES)
    same = np.array([[1.0, 0, 0], [0, 1, 0]])
    for image in pictures(3):
        picture, _ = make_square_input(image, np.ones(2))
        np.testing.assert_allclose(on_card.landmarks([picture]), on_cpu.landmarks([picture]), atol=0.05)
        masks = [engine.segment(image, "i", same, image.shape) for engine in (on_cpu, on_card)]
        assert [iou(*both) > 0.99 or not both[0].any() for both in zip(*masks, strict=True)] == [True] * 3


def test_the_encoder_of_hybridgnet_computes_the_same(tmp_path):
    """In float64, and without the decoder: that of an untrained net moves a landmark by 12 pixels for one grey level of
    one pixel, because the last bit of a coordinate decides between three samples of a window and four."""
    from cxr.imaging.organs.hybridgnet import HybridGNetOrgans
    from cxr.imaging.organs.hybridgnet.net import HybridGNet
    from tiny_hybridgnet import publish, random_weights

    net, features = HybridGNet().double().eval(), {}
    net.load_state_dict(random_weights())
    image = torch.from_numpy(np.random.default_rng(1).random((1, 1, 1024, 1024)))
    with torch.inference_mode():
        for device in DEVICES:
            features[device] = [part.cpu() for part in net.encoder.to(device)(image.to(device))]
    torch.testing.assert_close(features["cuda"], features["cpu"], rtol=1e-6, atol=1e-6)
    engine = HybridGNetOrgans(publish(tmp_path, random_weights()), setup({}, "cuda"))
    picture = np.round(image[0, 0].numpy() * 255).astype(np.uint8)
    assert (engine.landmarks([picture]) == engine.landmarks([picture])).all()


def test_the_five_folds_find_the_same_boxes(tmp_path, monkeypatch):
    """All but 2 %: untrained nets have boxes at every score, and one at a threshold may fall on either side."""
    from cxr.imaging.boxes import scaled_yolov4
    from cxr.imaging.boxes.scaled_yolov4 import INPUTS, PUBLISHED, ScaledYolov4Engine
    from cxr.imaging.boxes.settings import BoxesSettings
    from cxr.imaging.weights.yolo import convert_scaled_yolov4
    from tiny_yolo import save, tiny_net

    files = {}
    for number, name in enumerate(INPUTS):
        source = save(tiny_net(number), tmp_path / f"scaled_yolo_fold_{number}.pt", list(PUBLISHED), half=False)
        files[name] = str(tmp_path / f"{name}.safetensors")
        convert_scaled_yolov4(source, files[name])
    monkeypatch.setattr(scaled_yolov4, "IMAGE_SIZE", 128)
    monkeypatch.setattr(scaled_yolov4, "number_type", lambda device: torch.float32)
    options = BoxesSettings(engine="scaled_yolov4", floor=0.3, excluded_classes=[])
    engines = [ScaledYolov4Engine(options, setup(files, device)) for device in DEVICES]
    for on_cpu, on_card in zip(*(engine.detect_batch(pictures(4)) for engine in engines), strict=True):
        assert len(on_cpu.boxes) > 3
        assert with_partner(on_cpu, on_card) > 0.98
        assert with_partner(on_card, on_cpu) > 0.98


def with_partner(detections, partners) -> float:
    """Return the fraction of boxes that the partners have too: same label, 0.5 pixels and 0.002 of score aside."""
    same = np.equal.outer(np.array(detections[2]), np.array(partners[2]))
    same &= np.abs(detections[0][:, None] - partners[0]).max(axis=2) <= 0.5
    same &= np.abs(detections[1][:, None] - partners[1]) <= 2e-3
    return same.any(axis=1).mean()


def test_radedit_edits_the_same(tmp_path):
    pytest.importorskip("diffusers")
    import tiny_diffusion
    from cxr.imaging.anomaly.radedit import load
    from cxr.imaging.anomaly.settings import AnomalySettings

    settings = {"prompt": "heart normal", "steps": 4, "dtype": "float32"}
    options = AnomalySettings.from_dict({"engine": "radedit", "radedit": settings})
    files = tiny_diffusion.write_radedit(tmp_path)
    random = np.random.default_rng(3)
    images = [random.integers(0, 256, (64, 64)).astype(np.uint8) for _ in range(3)]
    lung = np.zeros((64, 64), bool)
    lung[16:48, 8:24] = True
    organs = [{"right lung": lung, "left lung": lung[:, ::-1].copy(), "heart": np.zeros_like(lung)}] * 3
    one, other = (load(options, setup(files, device)).edit_batch(images, organs, ["a", "b", "c"]) for device in DEVICES)
    for here, there in zip(one, other, strict=True):
        np.testing.assert_allclose(there, here, atol=0.5)


def test_rosalia_draws_and_says_the_same(tmp_path):
    for name in ("polars", "hdf5plugin", "transformers"):
        pytest.importorskip(name)
    from cxr.base.hdf5 import Shard
    from cxr.ils.inference.infer import run_split
    from cxr.ils.inference.settings import InferenceOptions
    from tiny_rosalia import TARGET, make, read

    (tmp_path / "tiny").mkdir()
    tiny = make(tmp_path / "tiny")
    options = InferenceOptions(max_new_tokens=24, size=TARGET)
    said, drawn = {}, {}
    for device in DEVICES:
        made = tmp_path / f"{device}.jsonl", tmp_path / f"{device}.h5"
        run_split(
            model=tiny.model, lines=tiny.lines, frames=tiny.frames, predictions=made[0], prediction_masks=made[1],
            options=options, attrs={}, compute={"device": device, "batch": 8, "asked": int(device == "cuda")},
        )  # fmt: skip
        said[device] = read(made[0])
        with Shard(made[1], key="pair_id") as shard:
            drawn[device] = {name: shard.get("mask", name) for name in shard.ids}
    assert said["cuda"] == said["cpu"]
    assert drawn["cuda"].keys() == drawn["cpu"].keys()
    assert min(iou(drawn["cpu"][name], drawn["cuda"][name]) for name in drawn["cpu"]) > 0.99


def test_a_batch_that_does_not_fit_is_halved_on_the_card_too():
    whole = torch.cuda.get_device_properties(0).total_memory
    sizes = []

    def work(rows: list[tuple]) -> list[tuple]:
        sizes.append(len(rows))
        torch.empty(len(rows) * (whole // 3), dtype=torch.uint8, device="cuda")
        return [(number, None) for (number,) in rows]

    done, batch = workers.process_fitting_batches(work, [(number,) for number in range(4)], 4, "anomaly")
    assert [number for number, _ in done] == [0, 1, 2, 3]
    assert sizes[0] == 4
    assert batch in (1, 2)
    with pytest.raises(Exception, match="memory") as told:
        torch.empty(2 * whole, dtype=torch.uint8, device="cuda")
    assert out_of_memory(told.value)


ASSERT = """
import sys
import torch
from cxr.base import jobs
from cxr.base.workers import process_rows

class Book:
    stage, accepted, excluded = "organs", [], []

    def accept(self, name):
        self.accepted.append(name)

    def exclude(self, *row):
        self.excluded.append(row)

book = Book()

table = torch.arange(8.0, device="cuda")

def work(rows):
    places = torch.tensor([number for (number,) in rows], device="cuda")
    return [(value, None) for value in table[places].tolist()]

jobs.start_logging(sys.argv[1])
names = [f"{number:02}" for number in range(12)]  # from the ninth on no place of the table
read = lambda name: (int(name),)
rows = process_rows(book, names, read, work, None if sys.argv[2] == "one" else 4, 2)
try:
    list(rows)
finally:
    print(len(book.accepted), len(book.excluded), flush=True)
"""


@pytest.mark.parametrize("how", ["one", "batches"])
def test_a_device_side_assert_ends_the_job_and_excludes_nobody(tmp_path, how):
    """It runs in a separate process, because the device is unusable afterwards."""
    log = tmp_path / "job.log"
    done = subprocess.run(
        [sys.executable, "-c", ASSERT, str(log), how], cwd=ROOT / "scripts", capture_output=True, text=True, check=False
    )
    assert done.returncode == 1, done.stderr
    accepted, excluded = map(int, done.stdout.split())
    assert accepted <= 8
    assert excluded == 0
    sentence = next(line for line in done.stderr.splitlines() if "is broken, not an image" in line)
    assert sentence.startswith("organs: the device is broken, not an image (")
    assert "device-side assert" in Path(log).read_text()
    assert "Traceback (most recent call last)" in Path(log).read_text()
