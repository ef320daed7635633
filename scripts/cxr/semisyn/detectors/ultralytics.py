"""Engine ultralytics of semisyn_detectors: YOLO and RT-DETR, trained by the package of that name.

The package is under the AGPL: only this module and that of ``boxes`` import it, in a separate environment. It gets our
draws of images (:mod:`cxr.semisyn.detectors.pools`), one update of the weights a batch, and no mosaics, which would
mix the pools in shares of their own. It has no notion of findings that an image's labels do not tell of: an image is
taken to be without them. An interrupted training starts again.
"""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import cv2
import numpy as np
import torch
import yaml

from cxr.base.engines import Setup
from cxr.base.errors import UserError
from cxr.detection import proposals
from cxr.detection.proposals import Found
from cxr.imaging.boxes import ultralytics as boxes
from cxr.imaging.weights.ultralytics import convert_ultralytics
from cxr.nets import tensors
from cxr.nets.devices import device_of, inference
from cxr.semisyn.detectors.engine import CHOICE, Task, Trained
from cxr.semisyn.detectors.pools import Film, chosen, shares_at

GPU = True
FILES = ("checkpoint",)
KIND, WEIGHTS = "semisyn_ultralytics", "detector.safetensors"
NETWORKS = {"yolo": "DetectionModel", "rtdetr": "RTDETRDetectionModel"}
"""{how a plan's name begins: class of the package}."""
FIXED = {"deterministic": True, "amp": False, "mosaic": 0.0, "close_mosaic": 0, "plots": False, "val": False}
"""What is the same in every training."""


class UltralyticsEngine:
    """The engine, with its own settings (``semisyn.detectors.ultralytics``) and the number of epochs."""

    def __init__(self, own: dict, epochs: int, setup: Setup):
        self.own, self.epochs, self.batch = own, epochs, own["batch"]
        self.start = setup.files.get("checkpoint", "")
        self.device = device_of(setup.device, setup.asked)
        self.family = next((name for name in NETWORKS if Path(own["plan"]).name.startswith(name)), "yolo")

    def train(self, task: Task, folder: Path, unfinished: Path) -> Trained:
        """See :class:`cxr.semisyn.detectors.engine.DetectorEngine`."""
        shutil.rmtree(unfinished, ignore_errors=True)
        unfinished.mkdir(parents=True)
        data = write_images(task, unfinished)
        steps = steps_of(task.updates, self.epochs)
        draws = Draws(task, self.batch, steps)
        losses: list[float] = []
        trainer = self._trainer(draws, losses, unfinished)
        trainer = trainer(overrides=FIXED | {
            "model": self.own["plan"], "data": str(data), "epochs": steps, "imgsz": self.own["image_size"],
            "batch": self.batch, "nbs": self.batch, "seed": task.seed % 2**31, "workers": 0, "pretrained": False,
            "device": "cpu" if self.device.type == "cpu" else 0, "project": str(unfinished), "name": "run",
            "verbose": False, "exist_ok": True, "task": "detect",
        })  # fmt: skip
        trainer.train()
        net = trainer.ema.ema.float().cpu()
        facts = {"kind": KIND, "family": self.family, "yaml": net.yaml, "names": list(task.classes), "eps": 1e-3}
        weights = {name: value.contiguous() for name, value in net.state_dict().items()}
        facts |= {"size": self.own["image_size"]}
        tensors.write(folder / WEIGHTS, tensors.kinds_of(weights), weights.get, facts)
        return Trained(losses, {})

    def _trainer(self, draws: "Draws", losses: list[float], folder: Path) -> type:
        """Return the package's trainer with our draws of images, the checkpoint's weights, and ears for its losses."""
        boxes.package()
        from ultralytics.data.build import InfiniteDataLoader
        from ultralytics.models.rtdetr.train import RTDETRTrainer
        from ultralytics.models.yolo.detect import DetectionTrainer

        key = "semisyn.detectors.ultralytics"
        start = checkpoint(self.start, folder / "checkpoint.safetensors") if self.start else {}

        class Trainer({"yolo": DetectionTrainer, "rtdetr": RTDETRTrainer}[self.family]):
            def get_dataloader(self, dataset_path, batch_size=16, rank=0, mode="train"):
                if mode != "train":
                    return super().get_dataloader(dataset_path, batch_size, rank, mode)
                dataset = self.build_dataset(dataset_path, mode, batch_size)
                if len(dataset) != len(draws.images):
                    raise UserError(f"{dataset_path}: ultralytics has dropped images: its disk may be full")
                return InfiniteDataLoader(dataset, batch_size, sampler=draws, collate_fn=dataset.collate_fn)

            def get_model(self, *arguments, **named):
                net = super().get_model(*arguments, **named)
                own = net.state_dict()
                fitting = {
                    name: value for name, value in start.items() if name in own and own[name].shape == value.shape
                }
                if start and len(fitting) < len(own) / 2:
                    raise UserError(f"{key}.checkpoint is of another plan than {key}.plan: name its own plan")
                net.load_state_dict(fitting, strict=False)
                return net

            def optimizer_step(self):
                losses.append(float(self.loss.detach().sum()))
                super().optimizer_step()

            # the last weights are taken, and the stage semisyn_detection scores them: nothing is validated here
            def get_validator(self):
                return SimpleNamespace(metrics=SimpleNamespace(keys=[]))

            def validate(self):
                return {}, None

            def save_model(self):
                return False

            def final_eval(self):
                pass

        return Trainer

    def load(self, folder: Path) -> Callable[[np.ndarray], Found]:
        """See :class:`cxr.semisyn.detectors.engine.DetectorEngine`."""
        path = folder / WEIGHTS
        weights, facts = tensors.read(path, KIND)
        net = boxes.build(weights, facts, path, NETWORKS[facts["family"]]).to(self.device).eval()
        size, classes = facts["size"], np.arange(len(facts["names"]))

        @inference()
        def found(frame: np.ndarray) -> Found:
            picture = proposals.as_input([proposals.resized(frame, size)], net.yaml["channels"], self.device)
            corners, scores = raw_boxes(net(picture)[0], facts["family"], size, len(classes))
            every = proposals.above(corners, scores, classes, CHOICE["floor"])
            kept = proposals.thinned(every, CHOICE["iou"], CHOICE["most"])
            return proposals.in_frame(kept, frame.shape[0] / size, 0, frame.shape[0])

        return found


def raw_boxes(raw: torch.Tensor, family: str, size: int, classes: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return a net's boxes (N, 4) in pixels of its input and scores (N, classes) of one image.

    YOLO gives (1, 4 + classes, N) in pixels, RT-DETR (1, N, 4 + classes) as fractions of the image.
    """
    rows = raw[0] if family == "rtdetr" else raw[0].T
    centre, sides, scores = rows.split((2, 2, classes), dim=1)
    scale = size if family == "rtdetr" else 1
    return torch.cat((centre - sides / 2, centre + sides / 2), dim=1) * scale, scores


def steps_of(updates: int, epochs: int) -> int:
    """Return the steps of the package's schedule: the largest number up to ``epochs`` that divides ``updates``."""
    return max(number for number in range(1, min(updates, epochs) + 1) if updates % number == 0)


class Draws(torch.utils.data.Sampler):
    """Numbers of the images of one epoch after another, as :func:`cxr.semisyn.detectors.pools.chosen` draws them."""

    def __init__(self, task: Task, batch: int, steps: int):
        self.task, self.batch, self.each, self.done = task, batch, task.updates // steps, 0
        self.images = [(name, film) for name in task.shares for film in task.pools[name]]
        sizes = [len(task.pools[name]) for name in task.shares]
        self.first = dict(zip(task.shares, np.cumsum([0, *sizes[:-1]]).tolist(), strict=True))

    def __len__(self) -> int:
        return self.each * self.batch

    def __iter__(self) -> Iterator[int]:
        for _ in range(self.each):
            now = shares_at(self.task.shares, min(self.done / max(self.task.updates - 1, 1), 1.0))
            for place in range(self.batch):
                name, number, _ = chosen(self.task.pools, now, self.task.seed, self.done, place)
                yield self.first[name] + number
            self.done += 1


def write_images(task: Task, folder: Path) -> Path:
    """Write the images and labels of a task as YOLO reads them, in the order of :class:`Draws`; return data.yaml."""
    films: list[Film] = [film for name in task.shares for film in task.pools[name]]
    for kind in ("images", "labels"):
        (folder / kind / "train").mkdir(parents=True)
    for number, film in enumerate(films):
        frame = film.read()
        if not cv2.imwrite(str(folder / f"images/train/{number:07d}.png"), frame):
            raise UserError(f"{folder}: a picture could not be written: its disk may be full")
        lines = []
        for kind, *box in film.boxes:
            x1, y1, x2, y2 = np.clip(np.array(box) / np.tile(frame.shape[::-1], 2), 0, 1)
            lines.append(f"{kind} {(x1 + x2) / 2:.8f} {(y1 + y2) / 2:.8f} {x2 - x1:.8f} {y2 - y1:.8f}\n")
        (folder / f"labels/train/{number:07d}.txt").write_text("".join(lines), encoding="utf-8")
    (folder / "val.txt").write_text(f"{(folder / 'images/train/0000000.png').absolute()}\n", encoding="utf-8")
    told = {"path": str(folder.absolute()), "train": "images/train", "val": "val.txt"}
    path = (folder / "data.yaml").absolute()
    path.write_text(yaml.safe_dump(told | {"names": dict(enumerate(task.classes))}), encoding="utf-8")
    return path


def checkpoint(path: str, target: Path) -> dict[str, torch.Tensor]:
    """Return the weights of a checkpoint of the package, read without running its pickle. Raises UserError."""
    convert_ultralytics(Path(path), target)
    return tensors.read(target, "ultralytics")[0]


def load(options: object, setup: Setup) -> UltralyticsEngine:
    """Load the engine. Raises UserError where the package is not installed."""
    try:
        boxes.package()
    except ImportError:
        raise UserError(
            "semisyn.detectors.engine is 'ultralytics', whose package is not installed here: run snakemake with --sdm "
            "conda, or choose lite"
        ) from None
    return UltralyticsEngine(setup.own, getattr(options, "epochs", 1), setup)
